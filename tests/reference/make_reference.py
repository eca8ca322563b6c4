"""Writes the golden runs beside it, from plain PyTorch loops in double precision. For every MODEL
  MODEL.init.safetensors           the weights before
  MODEL.GOLDEN.losses              the losses of 20 updates
  MODEL.GOLDEN.want.safetensors    the weights after them
GOLDEN is BATCH.DELAYS: the samples of an update, and by how many updates the weights lag that its gradient is
taken at (training.py): 8.0 without delay, 8.1 with one update of it, 2.2-1-0 with what `pipedream` gives three
stages and microbatches of two. A `c` at the end: the delay is corrected (`delay_correction = auto`). Stages begin at the pieces of CUTS. Samples are windows of text.txt in the order
of sampler.py with seed 1. What `run` passes to pdc says the same hyperparameters. Needs PyTorch; the files are
committed, so that the tests do not."""
import functools
import os
import sys
from typing import Callable, NamedTuple

import numpy
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import models
import tensors
import training
from sampler import Windows

UPDATES, CONTEXT, VOCABULARY, SEED = 20, 16, 128, 1

# By number of stages: the pieces at which stages 1, 2, ... begin. `run` names the same cuts.
CUTS = {1: [], 2: [2], 3: [1, 3], 4: [1, 2, 3]}


class Model(NamedTuple):
    pieces: list
    shapes: dict
    optimizer_of: Callable  # of the weights
    rate_of: Callable       # of the update's number
    clip_norm: float


def gpt2(n_embd):
    """Two blocks, tied embeddings. eps is large because the gradient of the keys' bias is zero but for rounding,
    which AdamW would otherwise scale up to the learning rate."""
    return Model(models.gpt2_pieces(n_layer=2, n_head=2), models.gpt2_shapes(2, n_embd, CONTEXT, VOCABULARY),
                 functools.partial(training.AdamW, betas=(0.9, 0.95), weight_decay=0.1, eps=1e-4),
                 functools.partial(training.learning_rate, lr=0.01, warmup=4, total=20, floor=1e-3), 1.0)


def llama(n_embd, hidden):
    """Two blocks, two query heads a key head; no clipping."""
    return Model(models.llama_pieces(n_layer=2, n_head=4, n_kv_head=2),
                 models.llama_shapes(2, 4, 2, n_embd, hidden, VOCABULARY),
                 functools.partial(training.AdamW, betas=(0.9, 0.99), weight_decay=0.05, eps=1e-4),
                 functools.partial(training.learning_rate, lr=0.01, warmup=3, total=30, kind="linear"), 0.0)


def mlp(hidden, clip_norm):
    return Model(models.mlp_pieces(), models.mlp_shapes(CONTEXT, 4, hidden, VOCABULARY),
                 functools.partial(training.SGD, momentum=0.9, weight_decay=0.01),
                 functools.partial(training.learning_rate, lr=0.1, kind="constant"), clip_norm)


MODELS = {"gpt2": gpt2(16), "llama_mini": llama(16, 24), "mlp": mlp(16, 2.0),
          "small_gpt2": gpt2(8), "small_llama": llama(8, 12), "small_mlp": mlp(8, 0.0)}
GOLDEN = {"gpt2": ["8.0", "8.1"], "llama_mini": ["8.0", "8.1"], "mlp": ["8.0", "8.1"],
          "small_gpt2": ["12.0", "12.1", "12.1c", "2.0", "2.1", "2.2", "2.3", "4.3", "6.3"],
          "small_llama": ["12.0", "12.1", "2.0", "2.1", "2.2", "2.3", "2.1-0", "2.2-0", "2.2-1-0", "2.3-2-1-0",
                          "4.1-0", "4.3-1-0", "6.1-0", "6.3-1-0", "2.2-1-0c"],
          "small_mlp": ["12.0", "12.1", "12.1c", "2.0", "2.1-0", "2.2-1-0", "2.3-2-1-0", "4.3-1-0", "6.1-0"]}


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


def start(name):
    return {key: torch.from_numpy(array).double()
            for key, array in initial(MODELS[name].shapes, sum(name.encode())).items()}


def batches(batch):
    with open(os.path.join(HERE, "text.txt"), "rb") as file:
        return Windows(file.read(), CONTEXT, batch, SEED)


class Reads(dict):
    """Weights that note which of them were read."""

    def __init__(self, weights):
        super().__init__(weights)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def stages(name, n):
    """The model on n stages: of each its pieces and the names of the parameters that these read."""
    pieces, ends = MODELS[name].pieces, CUTS[n] + [None]
    x, y = batches(1)(0)
    h, parts = None, []
    for first, end in zip([0] + ends, ends):
        weights = Reads(start(name))
        for piece in pieces[first:end]:
            h = piece(weights, h, x, y)
        parts.append((pieces[first:end], weights.read))
    return parts


def parse(golden):
    """BATCH.DELAYS as a number and a list, whatever is behind them."""
    batch, delays = golden.removesuffix("c").split(".")
    return int(batch), [int(delay) for delay in delays.split("-")]


def delays_of(name, by_stage):
    """The delay of every parameter; one that several stages read cannot have several."""
    if len(by_stage) == 1:
        return by_stage[0]
    delays = {}
    for delay, (_, names) in zip(by_stage, stages(name, len(by_stage))):
        if names & delays.keys():
            raise ValueError(f"{name}: tied across stages")
        delays.update(dict.fromkeys(names, delay))
    return delays


def run(name, golden):
    """Losses and weights of the golden run."""
    model, weights, (batch, by_stage) = MODELS[name], start(name), parse(golden)
    return training.train(functools.partial(models.through, model.pieces), weights, model.optimizer_of(weights),
                          batches(batch), UPDATES, model.rate_of, delays_of(name, by_stage), 2, model.clip_norm,
                          corrects=golden.endswith("c"))


def main():
    for name, goldens in GOLDEN.items():
        tensors.save(os.path.join(HERE, f"{name}.init.safetensors"), start(name))
        for golden in goldens:
            losses, weights = run(name, golden)
            with open(os.path.join(HERE, f"{name}.{golden}.losses"), "w") as file:
                file.writelines(f"{loss:.9g}\n" for loss in losses)
            tensors.save(os.path.join(HERE, f"{name}.{golden}.want.safetensors"), weights)


if __name__ == "__main__":
    main()
