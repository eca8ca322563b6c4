"""Writes the golden runs beside it, from plain PyTorch loops in double precision: for every model MODEL
  MODEL.init.safetensors              the weights before
  MODEL.SCHEDULE.losses               the losses of 20 updates
  MODEL.SCHEDULE.want.safetensors     the weights after them
SCHEDULE is `flush` (no delay) or `2bw` (one update of delay). Samples are windows of text.txt in the order of
sampler.py with seed 1. What `run` passes to pdc says the same hyperparameters. Needs PyTorch; the files are
committed, so that the tests do not."""
import functools
import os
import sys

import numpy
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import models
import tensors
import training
from sampler import Windows

UPDATES, BATCH, CONTEXT, VOCABULARY, SEED = 20, 8, 16, 128, 1


def initial(shapes, seed):
    """Far from any symmetry: every parameter matters from the first update on."""
    generator, weights = numpy.random.default_rng(seed), {}
    for name, shape in shapes.items():
        noise = generator.standard_normal(shape)
        if len(shape) == 1:
            noise = 0.1 * noise + (0 if name.endswith("bias") else 1)
        else:
            noise = 0.2 * noise
        weights[name] = noise.astype(numpy.float32)
    return weights


def golden(name, loss_of, shapes, optimizer_of, rate_of, microbatch, clip_norm):
    with open(os.path.join(HERE, "text.txt"), "rb") as file:
        windows = Windows(file.read(), CONTEXT, BATCH, SEED)
    start = initial(shapes, sum(name.encode()))
    tensors.save(os.path.join(HERE, f"{name}.init.safetensors"), start)
    for schedule, delay in (("flush", 0), ("2bw", 1)):
        weights = {key: torch.from_numpy(array).double() for key, array in start.items()}
        losses, weights = training.train(loss_of, weights, optimizer_of(weights), windows, UPDATES, rate_of,
                                         delay, microbatch, clip_norm)
        with open(os.path.join(HERE, f"{name}.{schedule}.losses"), "w") as file:
            file.writelines(f"{loss:.9g}\n" for loss in losses)
        tensors.save(os.path.join(HERE, f"{name}.{schedule}.want.safetensors"), weights)


def gpt2():
    """Two blocks of width 16. eps is large because the gradient of the keys' bias is zero but for rounding,
    which AdamW would otherwise scale up to the learning rate."""
    loss_of = functools.partial(models.gpt2, n_layer=2, n_head=2)
    shapes = models.gpt2_shapes(2, 16, CONTEXT, VOCABULARY)
    optimizer_of = functools.partial(training.AdamW, betas=(0.9, 0.95), weight_decay=0.1, eps=1e-4)
    rate_of = functools.partial(training.learning_rate, lr=0.01, warmup=4, total=20, floor=1e-3)
    golden("gpt2", loss_of, shapes, optimizer_of, rate_of, microbatch=2, clip_norm=1.0)


def llama():
    """Two blocks of width 16, two query heads a key head; no clipping."""
    loss_of = functools.partial(models.llama, n_layer=2, n_head=4, n_kv_head=2)
    shapes = models.llama_shapes(2, 4, 2, 16, 24, VOCABULARY)
    optimizer_of = functools.partial(training.AdamW, betas=(0.9, 0.99), weight_decay=0.05, eps=1e-4)
    rate_of = functools.partial(training.learning_rate, lr=0.01, warmup=3, total=30, kind="linear")
    golden("llama_mini", loss_of, shapes, optimizer_of, rate_of, microbatch=2, clip_norm=0.0)


def mlp():
    shapes = models.mlp_shapes(CONTEXT, 4, 16, VOCABULARY)
    optimizer_of = functools.partial(training.SGD, momentum=0.9, weight_decay=0.01)
    rate_of = functools.partial(training.learning_rate, lr=0.1, kind="constant")
    golden("mlp", models.mlp, shapes, optimizer_of, rate_of, microbatch=4, clip_norm=2.0)


if __name__ == "__main__":
    gpt2()
    llama()
    mlp()
