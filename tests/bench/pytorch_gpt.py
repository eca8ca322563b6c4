"""The other side of `run`'s PyTorch comparison: one GPT training step in PyTorch eager, one thread.

Reads lines from its input, each a number of updates to make; answers with the milliseconds of every update by CLOCK, a
function of Python's module time; COMPILED=yes compiles the model, PRECISION=bf16 runs it under autocast.
The model is nanoGPT's with GPT-2's biases and tied embeddings, in the form that is fastest in eager mode."""
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FUSED = int(torch.__version__.split(".")[0]) >= 2  # attention in blocks, forward and backward


class Block(nn.Module):
    def __init__(self, width, n_head, context):
        super().__init__()
        self.n_head = n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.ones(context, context, dtype=torch.bool).triu(1))

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.c_attn(self.ln_1(x)).split(c, 2)
        q, k, v = (y.view(b, t, self.n_head, -1).transpose(1, 2) for y in qkv)
        if FUSED:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(c // self.n_head))
            y = F.softmax(scores.masked_fill_(self.mask, -math.inf), -1) @ v
        x = x + self.attn_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, n_layer, n_head, width, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, n_head, context) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            nn.init.normal_(p, std=0.02) if p.dim() > 1 else None

    def forward(self, x, y):
        h = self.wte(x) + self.wpe.weight
        for block in self.h:
            h = block(h)
        logits = F.linear(self.ln_f(h), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.flatten())


def main():
    n_layer, n_head, width, context, vocabulary, batch = map(int, sys.argv[1:7])
    torch.set_num_threads(1)
    clock = getattr(time, os.environ.get("CLOCK", "perf_counter"))
    torch.manual_seed(1)
    model = GPT(n_layer, n_head, width, context, vocabulary)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), foreach=True)
    data = torch.randint(0, vocabulary, (64, batch, context + 1))
    step = 0
    bf16 = os.environ.get("PRECISION") == "bf16"
    run = torch.compile(model) if os.environ.get("COMPILED") else model
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = clock()
            x = data[step % 64]
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = run(x[:, :-1], x[:, 1:])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()
            times.append(1000 * (clock() - start))
            step += 1
        print(" ".join(f"{ms:.3f}" for ms in times), flush=True)


if __name__ == "__main__":
    main()
