"""Writes the golden files of statistics.pdm, from PyTorch's BatchNorm layers in double:
  statistics.x.npy, statistics.y.npy        the samples, in the order of sampler.py with seed 1
  statistics.init.safetensors               parameters and running averages before
  statistics.D.want.safetensors             those after UPDATES updates of MICROBATCHES microbatches each
  statistics.D.loss, statistics.D.validation  the losses of the updates, the mean loss of all samples after them
D is the delay of the weights that a batch's gradient is taken at, in updates: 0, or 1 as under 2BW. Running
averages are folded microbatch by microbatch in both: those of update t are of batch t, with the weights it used.
Needs PyTorch; the files are committed, so that the tests do not."""
import os
import sys

import numpy
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
import tensors
from sampler import sample

SAMPLES, BATCH, MICROBATCHES, UPDATES, SEED = 30, 12, 4, 4, 1


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(12, 12, bias=False)
        self.bn1 = torch.nn.BatchNorm1d(12)
        self.fc2 = torch.nn.Linear(12, 24, bias=False)
        self.bn2 = torch.nn.BatchNorm1d(4, momentum=0.3)
        self.bn3 = torch.nn.BatchNorm2d(4, eps=1e-3)
        self.mix = torch.nn.Linear(6, 6)
        self.bn4 = torch.nn.BatchNorm1d(2, momentum=1.0)
        self.fc3 = torch.nn.Linear(24, 1)

    def forward(self, x):
        n = len(x)
        a = torch.relu(self.bn1(self.fc1(x)))
        a = torch.relu(self.bn2(self.fc2(a).reshape(n, 4, 6)))
        c = self.mix(self.bn3(a.reshape(n, 4, 2, 3)).reshape(n, 4, 6))
        return self.fc3(self.bn4((a + c).reshape(n, 2, 12)).reshape(n, 24))


def draw(model):
    generator = numpy.random.default_rng(7)
    state = {}
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        noise = generator.standard_normal(tuple(value.shape)).astype(numpy.float32)
        half = numpy.float32(0.5)
        state[name] = abs(noise) + half if name.endswith("running_var") else noise * half
        if name.startswith("bn") and name.endswith("weight"):
            state[name] += 1
    return state


def loss_of(model, x, y):
    return ((model(x) - y) ** 2).mean()


def train(model, data, delay):
    """As many losses as updates. Weights lag, buffers do not: torch.optim.SGD with dampening 0."""
    parameters = list(model.parameters())
    velocity = [torch.zeros_like(p) for p in parameters]
    newest = [p.detach().clone() for p in parameters]
    versions, losses = [newest], []
    for t in range(UPDATES):
        rows = [sample(SEED, SAMPLES, t * BATCH + i) for i in range(BATCH)]
        used = versions[max(t - delay, 0)]
        for p, w in zip(parameters, used):
            p.data.copy_(w)
        model.zero_grad()
        total = 0
        for part in numpy.split(numpy.array(rows), MICROBATCHES):
            loss = loss_of(model, *(d[part] for d in data)) / MICROBATCHES
            loss.backward()
            total += loss.item()
        losses.append(total)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        newest = []
        for i, (p, w) in enumerate(zip(parameters, versions[-1])):
            decay = 0.01 if w.dim() > 1 else 0
            velocity[i] = 0.9 * velocity[i] + (p.grad + decay * w)
            newest.append(w - 0.05 * velocity[i])
        versions.append(newest)
    for p, w in zip(parameters, newest):
        p.data.copy_(w)
    return losses


def main():
    torch.manual_seed(0)
    generator = numpy.random.default_rng(3)
    x = generator.standard_normal((SAMPLES, 12)).astype(numpy.float32) + numpy.float32(0.5)
    y = generator.standard_normal((SAMPLES, 1)).astype(numpy.float32)
    numpy.save(os.path.join(HERE, "statistics.x.npy"), x)
    numpy.save(os.path.join(HERE, "statistics.y.npy"), y)
    data = [torch.from_numpy(a).double() for a in (x, y)]
    state = draw(Model())
    tensors.save(os.path.join(HERE, "statistics.init.safetensors"), state)
    for delay in (0, 1):
        model = Model().double()
        model.load_state_dict({k: torch.from_numpy(v).double() for k, v in state.items()}, strict=False)
        losses = train(model, data, delay)
        path = os.path.join(HERE, f"statistics.{delay}")
        tensors.save(path + ".want.safetensors", {k: v for k, v in model.state_dict().items() if k in state})
        with open(path + ".loss", "w") as file:
            file.writelines(f"{loss:.9g}\n" for loss in losses)
        model.eval()
        with open(path + ".validation", "w") as file:
            file.write(f"{loss_of(model, *data).item():.9g}\n")


if __name__ == "__main__":
    main()
