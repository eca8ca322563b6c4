"""Writes the golden files of lion.pdm, from gradients by hand and Lion's algorithm 2 (Chen et al. 2023) in double:
  lion.x.npy, lion.y.npy      the samples, in the order of sampler.py with seed 1
  lion.init.safetensors       the parameters before
  lion.D.want.safetensors     those after UPDATES updates
  lion.D.loss                 the losses of the updates
D is the delay of the weights that a batch's gradient is taken at, in updates: 0, or 1 as under 2BW. No element's
step is near the point where its sign turns, so that floats take the same steps. Needs numpy; the files are committed,
so that the tests do not."""
import os
import sys

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "reference"))
import tensors
from sampler import sample

SAMPLES, BATCH, UPDATES, SEED = 20, 8, 6, 1
RATE, BETA1, BETA2, DECAY, CLIP = 0.01, 0.8, 0.95, 0.1, 0.5
LAYERS = ("fc1", "fc2", "fc3")


def gradients(w, x, y):
    """The mean loss and its gradients."""
    values = [x]
    for i, name in enumerate(LAYERS):
        z = values[-1] @ w[name + ".weight"].T + w[name + ".bias"]
        values.append(z if i == len(LAYERS) - 1 else numpy.tanh(z))
    error = values[-1] - y
    back, g = 2 * error / error.size, {}
    for i in reversed(range(len(LAYERS))):
        if i < len(LAYERS) - 1:
            back = back * (1 - values[i + 1] ** 2)
        g[LAYERS[i] + ".weight"], g[LAYERS[i] + ".bias"] = back.T @ values[i], back.sum(0)
        back = back @ w[LAYERS[i] + ".weight"]
    return (error ** 2).mean(), g


def lion(w, m, g):
    """The weights and moments after an update."""
    new = {}
    for name in w:
        c = BETA1 * m[name] + (1 - BETA1) * g[name]
        assert abs(c).min() > 1e-5 * abs(c).max(), name
        kept = w[name] * (1 - RATE * DECAY) if w[name].ndim > 1 else w[name]
        new[name] = kept - RATE * numpy.sign(c)
        m[name] = BETA2 * m[name] + (1 - BETA2) * g[name]
    return new


def train(w, x, y, delay):
    versions, losses, m = [w], [], {name: 0 * a for name, a in w.items()}
    for t in range(UPDATES):
        rows = [sample(SEED, SAMPLES, t * BATCH + i) for i in range(BATCH)]
        loss, g = gradients(versions[max(t - delay, 0)], x[rows], y[rows])
        losses.append(loss)
        norm = numpy.sqrt(sum((a ** 2).sum() for a in g.values()))
        scale = min(1, CLIP / (norm + 1e-6))
        versions.append(lion(versions[-1], m, {name: a * scale for name, a in g.items()}))
    return versions[-1], losses


def main():
    generator = numpy.random.default_rng(11)
    draw = lambda *shape: generator.standard_normal(shape).astype(numpy.float32)
    x, y = draw(SAMPLES, 8), 2 * draw(SAMPLES, 3)
    numpy.save(os.path.join(HERE, "lion.x.npy"), x)
    numpy.save(os.path.join(HERE, "lion.y.npy"), y)
    w = {}
    for name, rows, columns in (("fc1", 6, 8), ("fc2", 6, 6), ("fc3", 3, 6)):
        w[name + ".weight"], w[name + ".bias"] = draw(rows, columns) / 2, draw(rows) / 2
    tensors.save(os.path.join(HERE, "lion.init.safetensors"), w)
    for delay in (0, 1):
        start = {name: a.astype(numpy.float64) for name, a in w.items()}
        want, losses = train(start, x.astype(numpy.float64), y.astype(numpy.float64), delay)
        path = os.path.join(HERE, f"lion.{delay}")
        tensors.save(path + ".want.safetensors", want)
        with open(path + ".loss", "w") as file:
            file.writelines(f"{loss:.9g}\n" for loss in losses)


main()
