"""Writes the golden files of frozen.pdm, groups.pdm and ema.pdm from PyTorch in double:
  tune.x.npy, tune.y.npy    the samples, in the order of sampler.py with seed 1
  tune.init.safetensors     parameters and running averages before
  CASE.D.want.safetensors   those after UPDATES updates of MICROBATCHES microbatches each
  CASE.D.loss               the losses of the updates
  ema.D.raw.safetensors, ema.D.validation   the weights that are not averaged; the averaged ones' loss of all samples
D is the delay of the weights that a batch's gradient is taken at, in updates: 0, or 1 as under 2BW.
Needs PyTorch; the files are committed, so that the tests do not."""
import os
import sys

import numpy
import torch
from torch.optim import swa_utils

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
import tensors
from sampler import sample

SAMPLES, BATCH, MICROBATCHES, UPDATES, SEED = 30, 12, 4, 6, 1


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = torch.nn.Parameter(torch.zeros(6, 6))
        self.base = torch.nn.Linear(6, 6)
        self.bn = torch.nn.BatchNorm1d(6)
        self.adapter = torch.nn.Linear(6, 6)
        self.middle = torch.nn.Linear(6, 6)
        self.head = torch.nn.Linear(6, 2)

    def forward(self, x):
        a = torch.relu(self.bn(self.base(x @ self.shared)))
        b = torch.tanh(self.adapter(a) + a)
        return self.head(torch.tanh(self.middle(b)) @ self.shared.T)


def draw(model):
    generator = numpy.random.default_rng(7)
    state = {}
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        noise = generator.standard_normal(tuple(value.shape)).astype(numpy.float32)
        half = numpy.float32(0.5)
        state[name] = abs(noise) + half if name.endswith("running_var") else noise * half
    return state


def freeze(model):
    """Those that are trained, in groups for the optimizer."""
    for name, p in model.named_parameters():
        p.requires_grad = name.split(".")[0] not in ("base", "bn", "shared") and name != "middle.weight"
    trained = [p for p in model.parameters() if p.requires_grad]
    return [{"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0}]


def group(model):
    """Every trained parameter its own group."""
    groups = []
    for name, p in model.named_parameters():
        decay = 0.1 if p.dim() > 1 else 0
        layer = name.split(".")[0]
        p.requires_grad = layer != "base"
        if layer == "bn" or name == "head.bias":
            groups.append({"params": [p], "weight_decay": 0.05})
        elif layer == "head":
            groups.append({"params": [p], "weight_decay": decay, "lr": 0.002, "betas": (0.7, 0.95)})
        elif name in ("shared", "adapter.bias"):
            groups.append({"params": [p], "weight_decay": 0, "lr": 0.04})
        elif p.requires_grad:
            groups.append({"params": [p], "weight_decay": decay})
    return groups


def falling(t):
    """linear(warmup = 2, total = 8, floor = 0.004) of 0.02."""
    return (t + 1) / 3 if t < 2 else 0.2 + (1 - (t - 2) / 6) * 0.8


def all_but_base(model):
    for name, p in model.named_parameters():
        p.requires_grad = not name.startswith("base")
    trained = [p for p in model.parameters() if p.requires_grad]
    return [{"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0}]


CASES = {"frozen": (freeze, lambda t: 1), "groups": (group, falling), "ema": (all_but_base, lambda t: 1)}


def train(model, groups, schedule, data, delay):
    """As many losses as updates, and the averaged model. Weights lag, running averages do not."""
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.7))
    optimizer = torch.optim.AdamW(groups, lr=0.02, betas=(0.8, 0.9))
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    parameters = [p for p in model.parameters() if p.requires_grad]
    versions, losses = [[p.detach().clone() for p in parameters]], []
    for t in range(UPDATES):
        rows = [sample(SEED, SAMPLES, t * BATCH + i) for i in range(BATCH)]
        for p, w in zip(parameters, versions[max(t - delay, 0)]):
            p.data.copy_(w)
        optimizer.zero_grad()
        total = 0
        for part in numpy.split(numpy.array(rows), MICROBATCHES):
            x, y = (d[part] for d in data)
            loss = ((model(x) - y) ** 2).mean() / MICROBATCHES
            loss.backward()
            total += loss.item()
        losses.append(total)
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        for p, w in zip(parameters, versions[-1]):
            p.data.copy_(w)
        optimizer.step()
        rates.step()
        averaged.update_parameters(model)
        versions.append([p.detach().clone() for p in parameters])
    return losses, averaged.module


def save(path, model, state):
    tensors.save(path, {k: v for k, v in model.state_dict().items() if k in state})


def main():
    generator = numpy.random.default_rng(3)
    x = generator.standard_normal((SAMPLES, 6)).astype(numpy.float32) + numpy.float32(0.5)
    y = generator.standard_normal((SAMPLES, 2)).astype(numpy.float32)
    numpy.save(os.path.join(HERE, "tune.x.npy"), x)
    numpy.save(os.path.join(HERE, "tune.y.npy"), y)
    data = [torch.from_numpy(a).double() for a in (x, y)]
    state = draw(Model())
    tensors.save(os.path.join(HERE, "tune.init.safetensors"), state)
    for case, (groups_of, schedule) in CASES.items():
        for delay in (0, 1):
            model = Model().double()
            model.load_state_dict({k: torch.from_numpy(v).double() for k, v in state.items()}, strict=False)
            losses, averaged = train(model, groups_of(model), schedule, data, delay)
            path = os.path.join(HERE, f"{case}.{delay}")
            save(path + ".want.safetensors", averaged if case == "ema" else model, state)
            if case == "ema":
                save(path + ".raw.safetensors", model, state)
                averaged.eval()
                with open(path + ".validation", "w") as file:
                    file.write(f"{((averaged(data[0]) - data[1]) ** 2).mean().item():.9g}\n")
            with open(path + ".loss", "w") as file:
                file.writelines(f"{loss:.9g}\n" for loss in losses)


if __name__ == "__main__":
    main()
