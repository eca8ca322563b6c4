"""Writes the golden files of `optimizers`, of lion.pdm's model, samples and first weights, by PyTorch 2 in double:
  optimizers.NAME.D.want.safetensors   the parameters after UPDATES updates
  optimizers.NAME.D.loss               the losses of the updates
and, but for muon, of `tuned`, the same with groups of parameters and averaged weights:
  tuned.NAME.D.want.safetensors, tuned.NAME.D.raw.safetensors, tuned.NAME.D.loss   the averages, the weights, the losses
NAME: nesterov and adafactor by torch.optim's SGD and Adafactor, lamb by You et al.'s algorithm 2, lion (`tuned` alone) by
Chen et al.'s, muon by torch.optim's Muon and AdamW, the iteration of Muon in double, too, which PyTorch does in bfloat16. D is
the delay of the weights that a batch's gradient is taken at, in updates: 0, or 1 as under 2BW. Needs PyTorch 2.9 and numpy; the
files are committed, so that the tests do not."""
import os
import sys

import numpy
import torch
from torch.optim import swa_utils

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
import tensors
from sampler import sample

BATCH, UPDATES, SEED, CLIP = 8, 6, 1, 0.5
LAYERS = ("fc1", "fc2", "fc3")


class Lamb(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas, eps, weight_decay):
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                b1, b2 = group["betas"]
                state["t"] += 1
                state["m"] = b1 * state["m"] + (1 - b1) * p.grad
                state["v"] = b2 * state["v"] + (1 - b2) * p.grad ** 2
                m, v = state["m"] / (1 - b1 ** state["t"]), state["v"] / (1 - b2 ** state["t"])
                r = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                p.sub_(group["lr"] * p.norm() / r.norm() * r)


class InDouble:
    """A tensor whose conversion to bfloat16 is a copy."""

    def __init__(self, x):
        self.x = x

    def __getattr__(self, name):
        return getattr(self.x, name)

    def to(self, dtype, copy):
        assert dtype == torch.bfloat16 and copy
        return self.x.clone()


newton_schulz = torch.optim._muon._zeropower_via_newtonschulz
torch.optim._muon._zeropower_via_newtonschulz = lambda update, *rest: newton_schulz(InDouble(update), *rest)


class Muon:
    """Of a head, the last matrix, and of vectors AdamW."""

    def __init__(self, groups, lr, weight_decay, betas, **muon):
        matrices, vectors = groups
        self.parts = [torch.optim.Muon(matrices["params"][:-1], lr=lr, weight_decay=weight_decay,
                                       adjust_lr_fn="match_rms_adamw", **muon),
                      torch.optim.AdamW([{"params": matrices["params"][-1:]}, vectors], lr=lr, betas=betas,
                                        weight_decay=weight_decay)]

    def step(self):
        for part in self.parts:
            part.step()


class Lion(torch.optim.Optimizer):
    """No element's step is near the point where its sign turns, so that floats take the same steps."""

    def __init__(self, groups, lr, betas, weight_decay):
        super().__init__(groups, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(m=torch.zeros_like(p))
                b1, b2 = group["betas"]
                c = b1 * state["m"] + (1 - b1) * p.grad
                assert c.abs().min() > 1e-5 * c.abs().max()
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * torch.sign(c))
                state["m"] = b2 * state["m"] + (1 - b2) * p.grad


# As `optimizers` and `tuned` give the same to pdc.
OPTIMIZERS = {
    "nesterov": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "lamb": lambda groups: Lamb(groups, lr=0.05, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1),
    "adafactor": lambda groups: torch.optim.Adafactor(groups, lr=0.05, beta2_decay=-0.7, eps=(1e-7, 1e-3), d=1.0,
                                                      weight_decay=0.1),
    "muon": lambda groups: Muon(groups, lr=0.02, weight_decay=0.2, momentum=0.9, betas=(0.9, 0.95)),
    "lion": lambda groups: Lion(groups, lr=0.01, betas=(0.8, 0.95), weight_decay=0.1),
}
EMA = 0.7
# What `tuned` gives the second layer's group.
OWN = {"nesterov": {"momentum": 0.5}, "lamb": {"betas": (0.8, 0.9)}, "adafactor": {"beta2_decay": -0.9},
       "lion": {"betas": (0.7, 0.9)}}


def by_rank(w, name):
    return [{"params": [a for a in w.values() if a.ndim > 1]},
            {"params": [a for a in w.values() if a.ndim < 2], "weight_decay": 0.0}]


def tuned(w, name):
    """A group for each parameter."""
    rate = OPTIMIZERS[name]([torch.zeros(1)]).param_groups[0]["lr"]
    groups = []
    for key, a in w.items():
        group = {"params": [a], "weight_decay": 0.1 if a.ndim > 1 else 0.0}
        if key == "fc1.weight":
            group["lr"] = 0.5 * rate
        elif key.startswith("fc2."):
            group.update(OWN[name])
        elif key.startswith("fc3."):
            group.update(lr=2 * rate, weight_decay=0.05)
        groups.append(group)
    return groups


def loss_of(w, x, y):
    for name in LAYERS:
        x = x @ w[name + ".weight"].T + w[name + ".bias"]
        x = x if name == LAYERS[-1] else torch.tanh(x)
    return ((x - y) ** 2).mean()


def train(start, name, group, x, y, delay):
    """The parameters after the updates, their averages, the losses."""
    model = torch.nn.ParameterDict({key.replace(".", "_"): torch.tensor(a, dtype=torch.float64) for key, a in start.items()})
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(EMA))
    w = {key: model[key.replace(".", "_")] for key in start}
    make = OPTIMIZERS[name]
    optimizer = make(group(w, name))
    versions, losses = [{key: a.detach().clone() for key, a in w.items()}], []
    for t in range(UPDATES):
        rows = [sample(SEED, len(x), t * BATCH + i) for i in range(BATCH)]
        at = {name: a.clone().requires_grad_() for name, a in versions[max(t - delay, 0)].items()}
        loss = loss_of(at, x[rows], y[rows])
        loss.backward()
        losses.append(loss.item())
        norm = torch.sqrt(sum((a.grad ** 2).sum() for a in at.values()))
        for name, a in w.items():
            a.grad = at[name].grad * min(1, CLIP / (norm.item() + 1e-6))
        with torch.no_grad():
            optimizer.step()
        averaged.update_parameters(model)
        versions.append({name: a.detach().clone() for name, a in w.items()})
    averages = {key: averaged.module[key.replace(".", "_")].detach().numpy() for key in start}
    return {name: a.numpy() for name, a in versions[-1].items()}, averages, losses


def main():
    x, y = (torch.tensor(numpy.load(os.path.join(HERE, f"lion.{name}.npy")), dtype=torch.float64) for name in "xy")
    start = tensors.load(os.path.join(HERE, "lion.init.safetensors"))
    for case, group in (("optimizers", by_rank), ("tuned", tuned)):
        for name in OPTIMIZERS:
            if (case, name) in (("optimizers", "lion"), ("tuned", "muon")):  # make_lion.py has the first
                continue
            for delay in (0, 1):
                raw, averages, losses = train(start, name, group, x, y, delay)
                path = os.path.join(HERE, f"{case}.{name}.{delay}")
                tensors.save(path + ".want.safetensors", averages if case == "tuned" else raw)
                if case == "tuned":
                    tensors.save(path + ".raw.safetensors", raw)
                with open(path + ".loss", "w") as file:
                    file.writelines(f"{loss:.9g}\n" for loss in losses)


main()
