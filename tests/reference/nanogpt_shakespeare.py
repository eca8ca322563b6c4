"""nanoGPT's small Shakespeare model as a plain PyTorch loop, with or without one update of delay.

  nanogpt_shakespeare.py TEXT [--delay 1] [--seed S] [--init FILE.safetensors] [--updates N]

TEXT is tinyshakespeare (or any text); its last tenth is held out. The configuration is that of nanoGPT's
README for a CPU: 4 blocks, 4 heads, width 128, context 64, batch 12, 2000 updates, no dropout, AdamW with
betas 0.9 and 0.99, weight decay 0.1 on matrices, rate 1e-3 falling to 1e-4 by a cosine after 100 updates,
gradients clipped at 1. Vocabulary: bytes. Linears and layer norms have biases, as GPT-2's. Samples come
in the order of pdc's programs, so that with --init (a file that `train --steps 0 --save` wrote) the
losses can be compared update by update. Prints the training loss every 100 updates and, at the end, the
loss over all held-out windows."""
import argparse
import functools
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import models
import tensors
import training
from sampler import Windows

N_LAYER, N_HEAD, N_EMBD, CONTEXT, BATCH, VOCABULARY = 4, 4, 128, 64, 12, 256


def held_out(loss_of, weights, windows):
    with torch.no_grad():
        parts = [(loss_of(weights, x, y).item(), len(x)) for x, y in windows.in_order()]
    return sum(loss * n for loss, n in parts) / sum(n for _, n in parts)


def main():
    parser = argparse.ArgumentParser(description="nanoGPT's small Shakespeare model in PyTorch")
    parser.add_argument("text")
    parser.add_argument("--delay", type=int, default=0, choices=[0, 1])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--init")
    parser.add_argument("--updates", type=int, default=2000)
    options = parser.parse_args()

    with open(options.text, "rb") as file:
        text = file.read()
    cut = len(text) - len(text) // 10
    train_windows = Windows(text[:cut], CONTEXT, BATCH, options.seed)
    held_out_windows = Windows(text[cut:], CONTEXT, 64, options.seed)

    if options.init:
        weights = {name: torch.from_numpy(array) for name, array in tensors.load(options.init).items()}
    else:
        shapes = models.gpt2_shapes(N_LAYER, N_EMBD, CONTEXT, VOCABULARY)
        weights = models.gpt2_initial(shapes, N_LAYER, torch.Generator().manual_seed(options.seed))
    loss_of = functools.partial(models.gpt2, n_layer=N_LAYER, n_head=N_HEAD)
    optimizer = training.AdamW(weights, betas=(0.9, 0.99), weight_decay=0.1)
    rate_of = functools.partial(training.learning_rate, lr=1e-3, warmup=100, total=2000, floor=1e-4)

    def observe(t, loss, _):
        if (t + 1) % 100 == 0 or t == 0:
            print(f"update {t + 1:5d}  loss {loss:.4f}", flush=True)

    _, weights = training.train(loss_of, weights, optimizer, train_windows, options.updates, rate_of,
                                options.delay, BATCH, clip_norm=1.0, observe=observe)
    print(f"held-out loss {held_out(loss_of, weights, held_out_windows):.4f}")


if __name__ == "__main__":
    main()
