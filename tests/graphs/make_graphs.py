"""Writes, beside each model of this folder, what the golden tests have too: NAME.init.safetensors, samples in
NAME.0.npy, NAME.1.npy ... (one file for each input and target, in order of declaration), and by PyTorch's autograd
in double NAME.want.safetensors, the parameters after one update of SGD at a rate of 2^20, and NAME.loss.
Needs PyTorch; the files are committed, so that the tests do not."""
import math
import os
import sys

import numpy
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import tensors  # noqa: E402

RATE = 2.0 ** 20
SAMPLES = 8


class Case:
    def __init__(self, name, linears=(), norms=(), **others):
        self.name = name
        self.generator = numpy.random.default_rng(sum(name.encode()))
        shapes = {key: shape for key, shape in others.items()}
        for key, rows, columns in linears:
            shapes[key + ".weight"], shapes[key + ".bias"] = (rows, columns), (rows,)
        for key, width in norms:
            shapes[key + ".weight"], shapes[key + ".bias"] = (width,), (width,)
        self.w = {key: (self.generator.standard_normal(shape) / math.sqrt(shape[-1])).astype(numpy.float32)
                  for key, shape in shapes.items()}
        self.arrays = []

    def numbers(self, *shape):
        self.arrays.append(self.generator.standard_normal((SAMPLES, *shape)).astype(numpy.float32))
        return torch.from_numpy(self.arrays[-1]).double()

    def tokens(self, length, classes):
        self.arrays.append(self.generator.integers(0, classes, (SAMPLES, length)).astype(numpy.int32))
        return torch.from_numpy(self.arrays[-1]).long()

    def padded_tokens(self, length, classes, lengths):
        """No 0 but behind the lengths."""
        self.tokens(length, classes - 1)
        self.arrays[-1] += 1
        for row, n in zip(self.arrays[-1], lengths):
            row[n:] = 0
        return torch.from_numpy(self.arrays[-1]).long()

    def path(self, end):
        return os.path.join(HERE, self.name + end)

    def write(self, loss_of):
        for i, array in enumerate(self.arrays):
            numpy.save(self.path(f".{i}.npy"), array)
        tensors.save(self.path(".init.safetensors"), self.w)
        leaves = {key: torch.from_numpy(array).double().requires_grad_() for key, array in self.w.items()}
        loss = loss_of(leaves)
        loss.backward()
        tensors.save(self.path(".want.safetensors"),
                     {key: (leaf.detach() - RATE * (0 if leaf.grad is None else leaf.grad)).float().numpy()
                      for key, leaf in leaves.items()})
        with open(self.path(".loss"), "w") as file:
            file.write(f"{loss.item():.9g}\n")


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w[name + ".bias"])


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"])


def cross_entropy(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def unet():
    case = Case("unet", [("down.1.fc", 20, 12), ("down.2.fc", 16, 20), ("down.3.fc", 8, 16), ("bottom.fc", 8, 8),
                         ("up.3.fc", 16, 16), ("up.2.fc", 20, 16), ("up.1.fc", 12, 40), ("out", 12, 12)])
    x, y = case.numbers(3, 12), case.numbers(3, 12)

    def loss(w):
        a = linear(w, "down.1.fc", x).tanh()
        b = linear(w, "down.2.fc", a).tanh()
        c = linear(w, "down.3.fc", b).tanh()
        d = linear(w, "bottom.fc", c).tanh()
        d = linear(w, "up.3.fc", torch.cat((d, c), -1)).tanh()
        d = linear(w, "up.2.fc", d + b).tanh()
        d = linear(w, "up.1.fc", torch.cat((d, a), -1)).tanh()
        return F.mse_loss(linear(w, "out", d), y)

    case.write(loss)


def fan():
    case = Case("fan", [(name, 10, 10) for name in ("stem", "one", "three", "five")] + [("out", 6, 10)])
    x, y = case.numbers(4, 10), case.numbers(4, 6)

    def loss(w):
        stem = linear(w, "stem", x)
        kept = stem + linear(w, "one", stem.tanh())
        h = kept * stem.sigmoid()
        h = linear(w, "three", h.tanh())
        centered = h - h.mean(-1, keepdim=True)
        h = centered * (centered.square().mean(-1, keepdim=True) + 0.01).rsqrt()
        h = linear(w, "five", h) + kept
        h = h * stem.sigmoid() - stem
        return F.mse_loss(linear(w, "out", h), y)

    case.write(loss)


def parts():
    case = Case("parts", [("stem", 24, 8), ("one", 8, 8), ("two", 8, 8), ("three", 8, 8), ("four", 4, 4),
                          ("five", 8, 8), ("out", 8, 8)])
    x, y = case.numbers(4, 8), case.numbers(4, 8)

    def loss(w):
        stem = linear(w, "stem", x)
        a, b, c = stem.chunk(3, -1)
        paired = stem.reshape(-1, 12, 8)
        h = linear(w, "one", a.tanh())
        h = linear(w, "two", h * b) + paired[:, 3:7].sum(-1, keepdim=True)
        h = linear(w, "three", h + c)
        h = h + linear(w, "four", a.mT).mT
        h = h + linear(w, "five", stem[..., 5:13])
        h = h * paired[:, 8:].sigmoid()
        return F.mse_loss(linear(w, "out", h), y)

    case.write(loss)


def ties():
    case = Case("ties", [(name, 12, 12) for name in ("mix", "own", "other")],
                **{"wte.weight": (24, 12), "shift": (12,)})
    tokens, following = case.tokens(5, 24), case.tokens(5, 24)

    def loss(w):
        table, shift = w["wte.weight"], w["shift"]
        x = table[tokens]
        x = x + linear(w, "mix", x)
        x = x + linear(w, "own", (x + shift).tanh())
        x = x + linear(w, "mix", x.tanh())
        x = x + (x @ table.T).softmax(-1) @ table
        x = x + linear(w, "other", x * shift)
        return cross_entropy(linear(w, "mix", x) @ table.T, following)

    case.write(loss)


def sources():
    case = Case("sources", [("one", 12, 12), ("probe", 24, 12), ("two", 12, 18), ("rate", 2, 60), ("three", 12, 15),
                            ("four", 12, 24), ("head", 24, 12)],
                **{"wte.weight": (24, 12), "position.weight": (24, 12)})
    tokens, features = case.tokens(5, 24), case.numbers(5, 6)
    following, score = case.tokens(5, 24), case.numbers(2)

    def loss(w):
        x = w["wte.weight"][tokens]
        x = x + linear(w, "one", x)
        total = 0.5 * cross_entropy(linear(w, "probe", x.tanh()), following)
        x = x + linear(w, "two", torch.cat((x, features), -1))
        x = x + w["position.weight"][tokens]
        total = total + 0.1 * F.mse_loss(linear(w, "rate", x.flatten(1)), score)
        x = x + linear(w, "three", torch.cat((x.tanh(), features[..., 2:5]), -1))
        x = x * linear(w, "four", F.one_hot(tokens, 24).double())
        total = total + cross_entropy(linear(w, "head", x), following)
        return total + 0.01 * x.sum(-1).square().mean()

    case.write(loss)


def frozen():
    case = Case("frozen", [(name, 8, 8) for name in ("fixed", "one", "two", "three", "out")], scale=(8, 8))
    x, y = case.numbers(4, 8), case.numbers(4, 8)

    def loss(w):
        features = linear(w, "fixed", (x @ x.mT * 0.5).tanh() @ x)
        h = linear(w, "one", features.tanh().detach())
        h = linear(w, "two", h @ w["scale"].square()) + features.detach()
        h = linear(w, "three", h.tanh() @ w["scale"].square().T)
        return F.mse_loss(linear(w, "out", h), y)

    case.write(loss)


def spare():
    case = Case("spare", [(name, 8, 8) for name in ("one", "two.a", "two.b", "three", "four", "out")] +
                [("probe", 2, 8)], unread=(3, 5), mask=(4, 4))
    x, y = case.numbers(4, 8), case.numbers(4, 8)

    def loss(w):
        h = linear(w, "two.a", linear(w, "one", x).tanh())
        h = h + (h @ h.mT / math.sqrt(8) + w["mask"].detach()).softmax(-1) @ h
        h = linear(w, "three", h.tanh())
        return F.mse_loss(linear(w, "out", h), y)

    case.write(loss)


def translate():
    linears = [("head", 20, 16)]
    for name in ("encoder.attn", "decoder.h.0.cross", "decoder.h.1.cross"):
        linears += [(name + ".query", 16, 16), (name + ".kv", 32, 16), (name + ".proj", 16, 16)]
    norms = [("encoder.ln", 16)]
    for i in range(2):
        linears.append((f"decoder.h.{i}.fc", 16, 16))
        norms += [(f"decoder.h.{i}.ln_1", 16), (f"decoder.h.{i}.ln_2", 16)]
    case = Case("translate", linears, norms, **{"encoder.wte.weight": (20, 16), "decoder.wte.weight": (20, 16)})
    source, before, after = case.tokens(6, 20), case.tokens(4, 20), case.tokens(4, 20)

    def attend(w, name, x, memory):
        q = linear(w, name + ".query", x)
        k, v = linear(w, name + ".kv", memory).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in (q, k, v))
        y = (q @ k.mT / math.sqrt(8)).softmax(-1) @ v
        return linear(w, name + ".proj", y.transpose(1, 2).flatten(2))

    def loss(w):
        memory = w["encoder.wte.weight"][source]
        memory = layer_norm(w, "encoder.ln", memory + attend(w, "encoder.attn", memory, memory))
        x = w["decoder.wte.weight"][before]
        for i in range(2):
            h = f"decoder.h.{i}."
            x = x + attend(w, h + "cross", layer_norm(w, h + "ln_1", x), memory)
            x = x + linear(w, h + "fc", layer_norm(w, h + "ln_2", x).tanh())
        return cross_entropy(linear(w, "head", x), after)

    case.write(loss)


def padded():
    case = Case("padded", [("one", 12, 12), ("two", 12, 12), ("three", 12, 18), ("four", 12, 12), ("head", 20, 12)],
                **{"wte.weight": (20, 12), "wse.weight": (2, 12), "wle.weight": (7, 12), "wbe.weight": (20, 12)})
    lengths = torch.tensor([6, 1, 4, 5, 0, 3, 6, 2])
    source = case.padded_tokens(6, 20, lengths)
    source[lengths > 2, 2] = 3  # ends the first part
    case.arrays[-1] = source.int().numpy()
    picture, following = case.numbers(2, 3, 3), case.padded_tokens(5, 20, [5, 2, 1, 0, 3, 5, 1, 4])
    present = (torch.arange(6) < lengths[:, None]).double()
    behind = torch.cat((torch.zeros(SAMPLES, 1), (source == 3).cumsum(1)[:, :-1]), 1) > 0
    types = (behind & (present > 0)).long()
    before = torch.cat((torch.ones(SAMPLES, 1).long(), following[:, :-1]), 1)
    mean, deviation = torch.tensor([0.5, -0.25]).double(), torch.tensor([2, 0.5]).double()

    def loss(w):
        x = w["wte.weight"][source] + w["wse.weight"][types]
        x = x + linear(w, "one", x.tanh())
        y = w["wbe.weight"][before] + present[:, None] @ x + w["wle.weight"][lengths][:, None]
        y = y + linear(w, "two", y.tanh())
        normalised = (picture - mean[:, None, None]) / deviation[:, None, None]
        y = y + linear(w, "three", normalised.flatten(1))[:, None]
        y = y + linear(w, "four", y.tanh())
        return F.cross_entropy(linear(w, "head", y).flatten(0, 1), following.flatten(), ignore_index=0)

    case.write(loss)


if __name__ == "__main__":
    for make in (unet, fan, parts, ties, sources, frozen, spare, translate, padded):
        make()
