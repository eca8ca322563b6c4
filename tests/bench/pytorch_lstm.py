"""The other side of `lstm`: a training step of a stack of LSTM or GRU layers (LAYER=gru) in PyTorch eager, one thread.

Reads lines from its input, each a number of updates to make; answers with the milliseconds of every update by CLOCK, a
function of Python's module time; COMPILED=yes compiles the model. A fifth argument, bf16, multiplies under autocast."""
import os
import sys
import time

import torch
import torch.nn.functional as F


def main():
    layers, width, length, batch = map(int, sys.argv[1:5])
    rounded = sys.argv[5:] == ["bf16"]
    torch.set_num_threads(1)
    clock = getattr(time, os.environ.get("CLOCK", "perf_counter"))
    torch.manual_seed(1)
    layer = getattr(torch.nn, os.environ.get("LAYER", "lstm").upper())
    model = layer(width, width, layers, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(batch, length, width), torch.randn(batch, length, width)
    run = torch.compile(model) if os.environ.get("COMPILED") else model
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = clock()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rounded):
                y_hat = run(x)[0]
            loss = F.mse_loss(y_hat.float(), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            loss.item()
            times.append((clock() - start) * 1e3)
        print(*times, flush=True)


main()
