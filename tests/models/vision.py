"""Models of images: vision.py PDC MODEL, of models/alexnet.pdm and the like. Their data is images.c's."""
import functools
import sys

import numpy
import torch
import torch.nn.functional as F

import harness
import training

CLASSES, BATCH, MICROBATCH, SAMPLES = 10, 16, 4, 48


def images(side):
    """What images.c writes, normalised as the models say."""
    def scrambled(x):
        x = (x ^ x >> 16) * numpy.uint32(0x7FEB352D)
        x = (x ^ x >> 15) * numpy.uint32(0x846CA68B)
        return (x ^ x >> 16) >> 25

    def numbers(n):
        return numpy.arange(SAMPLES * 3 * n * n, dtype=numpy.uint32).reshape(SAMPLES * 3, n, n)

    squares = scrambled(numbers((side + 7) // 8)).repeat(8, 1).repeat(8, 2)[:, :side, :side]
    pixels = torch.from_numpy((squares + scrambled(~numbers(side))).astype(numpy.float64)) / 255
    mean, std = (torch.tensor(x).double()[:, None, None] for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    return (pixels.reshape(SAMPLES, 3, side, side) - mean) / std


def batch(x, t):
    rows = [harness.sample(SAMPLES, s) for s in range(t * BATCH, (t + 1) * BATCH)]
    return x[rows], torch.tensor(rows) % CLASSES


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w[name + ".bias"])


def conv(w, name, x, **options):
    return F.conv2d(x, w[name + ".weight"], w.get(name + ".bias"), **options)


def norm(w, name, x, eps=1e-5):
    """Keeps the running statistics of `w` up to date, microbatch by microbatch."""
    return F.batch_norm(x, w[name + ".running_mean"], w[name + ".running_var"], w[name + ".weight"],
                        w[name + ".bias"], True, 0.1, eps)


def alexnet(w, x):
    x = F.max_pool2d(conv(w, "features.0", x, stride=4, padding=2).relu(), 3, 2)
    x = F.max_pool2d(conv(w, "features.3", x, padding=2).relu(), 3, 2)
    for at in 6, 8, 10:
        x = conv(w, f"features.{at}", x, padding=1).relu()
    x = F.adaptive_avg_pool2d(F.max_pool2d(x, 3, 2), 6).flatten(1)
    x = linear(w, "classifier.4", linear(w, "classifier.1", x).relu()).relu()
    return linear(w, "classifier.6", x)


def vgg16(w, x):
    for block in (0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28):
        for at in block:
            x = conv(w, f"features.{at}", x, padding=1).relu()
        x = F.max_pool2d(x, 2)
    x = F.adaptive_avg_pool2d(x, 7).flatten(1)
    x = linear(w, "classifier.3", linear(w, "classifier.0", x).relu()).relu()
    return linear(w, "classifier.6", x)


def bottleneck(w, name, x, stride):
    y = norm(w, name + ".bn1", conv(w, name + ".conv1", x)).relu()
    y = norm(w, name + ".bn2", conv(w, name + ".conv2", y, stride=stride, padding=1)).relu()
    y = norm(w, name + ".bn3", conv(w, name + ".conv3", y))
    if name + ".downsample.0.weight" in w:
        x = norm(w, name + ".downsample.1", conv(w, name + ".downsample.0", x, stride=stride))
    return (y + x).relu()


def resnet50(w, x):
    x = norm(w, "bn1", conv(w, "conv1", x, stride=2, padding=3)).relu()
    x = F.max_pool2d(x, 3, 2, 1)
    for layer in range(1, 5):
        block = 0
        while f"layer{layer}.{block}.conv1.weight" in w:
            x = bottleneck(w, f"layer{layer}.{block}", x, 2 if layer > 1 and block == 0 else 1)
            block += 1
    return linear(w, "fc", F.adaptive_avg_pool2d(x, 1).flatten(1))


def basic(w, x, *names, **options):
    """The convolutions of these names one behind the other, the last with the options; the others keep the size."""
    for i, name in enumerate(names):
        kernel = w[name + ".conv.weight"].shape[2:]
        same = {"padding": [k // 2 for k in kernel]}
        x = conv(w, name + ".conv", x, **(options if options and i + 1 == len(names) else same))
        x = norm(w, name + ".bn", x, 0.001).relu()
    return x


def inception_v3(w, x):
    def module(name, x, chains, reduces=False):
        """The chains side by side, and the pooled branch. A tuple's convolutions end the same chain."""
        end, parts = {"stride": 2} if reduces else {}, []
        for *names, last in chains:
            if isinstance(last, tuple):
                y = basic(w, x, *(f"{name}.{part}" for part in names))
                parts += [basic(w, y, f"{name}.{part}") for part in last]
            else:
                parts.append(basic(w, x, *(f"{name}.{part}" for part in [*names, last]), **end))
        if reduces:
            return torch.cat([*parts, F.max_pool2d(x, 3, 2)], 1)
        return torch.cat([*parts, basic(w, F.avg_pool2d(x, 3, 1, 1), name + ".branch_pool")], 1)

    def numbered(stem, n):
        return [f"{stem}_{i + 1}" for i in range(n)]

    x = basic(w, x, "Conv2d_1a_3x3", stride=2)
    x = basic(w, x, "Conv2d_2a_3x3", padding=0)
    x = F.max_pool2d(basic(w, x, "Conv2d_2b_3x3"), 3, 2)
    x = basic(w, basic(w, x, "Conv2d_3b_1x1"), "Conv2d_4a_3x3", padding=0)
    x = F.max_pool2d(x, 3, 2)
    for name in "Mixed_5b", "Mixed_5c", "Mixed_5d":
        x = module(name, x, [["branch1x1"], numbered("branch5x5", 2), numbered("branch3x3dbl", 3)])
    x = module("Mixed_6a", x, [["branch3x3"], numbered("branch3x3dbl", 3)], reduces=True)
    for name in "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e":
        x = module(name, x, [["branch1x1"], numbered("branch7x7", 3), numbered("branch7x7dbl", 5)])
    x = module("Mixed_7a", x, [numbered("branch3x3", 2), numbered("branch7x7x3", 4)], reduces=True)
    for name in "Mixed_7b", "Mixed_7c":
        x = module(name, x, [["branch1x1"], ["branch3x3_1", ("branch3x3_2a", "branch3x3_2b")],
                             ["branch3x3dbl_1", "branch3x3dbl_2", ("branch3x3dbl_3a", "branch3x3dbl_3b")]])
    return linear(w, "fc", F.adaptive_avg_pool2d(x, 1).flatten(1))


def separable(w, name, x, stride=1):
    for i in "1", "2":
        depthwise = w[f"{name}.depthwise_{i}.weight"]
        x = F.conv2d(x.relu(), depthwise, stride=stride, padding=depthwise.shape[-1] // 2, groups=x.shape[1])
        x, stride = norm(w, f"{name}.bn_{i}", conv(w, f"{name}.pointwise_{i}", x)), 1
    return x


def crossed(w, name, x):
    x = conv(w, name + ".row", x.relu(), stride=(1, 2), padding=(0, 3))
    return norm(w, name + ".bn", conv(w, name + ".column", x, stride=(2, 1), padding=(3, 0)))


def fitted(w, name, x):
    """Half as high and wide where the weights are those of two convolutions."""
    x = x.relu()
    if name + ".conv.weight" in w:
        x = conv(w, name + ".conv", x)
    else:
        x = torch.cat([conv(w, name + ".conv_even", x[:, :, ::2, ::2]),
                       conv(w, name + ".conv_odd", x[:, :, 1::2, 1::2])], 1)
    return norm(w, name + ".bn", x)


def amoebanet_cell(w, x):
    def avg(x, stride=1):
        return F.avg_pool2d(x, 3, stride, 1, count_include_pad=False)

    def highest(x, stride=1):
        return F.max_pool2d(x, 3, stride, 1)

    def normal(name, a, b):
        c = avg(a) + highest(b)
        d = separable(w, name + "1_left", a) + separable(w, name + "1_right", c)
        e = separable(w, name + "2_left", a) + avg(d)
        f = separable(w, name + "3_left", b) + b
        return e, f, a + avg(b)

    def reduction(name, a, b):
        c = avg(a, 2) + separable(w, name + "0_right", b, 2)
        d = highest(a, 2) + separable(w, name + "1_right", c)
        e = separable(w, name + "2_left", a, 2) + avg(b, 2)
        f = highest(a, 2) + highest(b, 2)
        return d, e, crossed(w, name + "4_left", a) + separable(w, name + "4_right", f)

    x = norm(w, "bn0", conv(w, "conv0", x, padding=1))
    previous, at = x, 0
    while f"cells.{at}.conv_1x1.conv.weight" in w:
        cell = f"cells.{at}."
        a, b = fitted(w, cell + "conv_1x1", x), fitted(w, cell + "conv_prev_1x1", previous)
        reduces = cell + "comb_iter_0_right.bn_1.weight" in w
        previous, x = x, torch.cat((reduction if reduces else normal)(cell + "comb_iter_", a, b), 1)
        at += 1
    return linear(w, "fc", F.adaptive_avg_pool2d(x.relu(), 1).flatten(1))


def loss(model, w, batch):
    """The mean over microbatches, one after the other: batch norm's statistics are a microbatch's."""
    x, y = (part.split(MICROBATCH) for part in batch)
    smoothing = 0.1 if model is inception_v3 else 0
    parts = [F.cross_entropy(model(w, a), b, label_smoothing=smoothing) for a, b in zip(x, y)]
    return sum(parts) / len(parts)


MODELS = {"alexnet": (alexnet, 224), "vgg16": (vgg16, 64), "resnet50": (resnet50, 64),
          "inception_v3": (inception_v3, 107), "amoebanet_cell": (amoebanet_cell, 32)}


def start(model, weights):
    """What the test, run, changes of the initial weights."""
    return {name: torch.full_like(w, 1) if model is inception_v3 and name.endswith(".bn.bias") else w
            for name, w in weights.items()}


if __name__ == "__main__":
    model, side = MODELS[sys.argv[2]]
    sgd = functools.partial(training.SGD, momentum=0.9, weight_decay=5e-4)
    harness.write(sys.argv[2], functools.partial(loss, model), functools.partial(batch, images(side)), sgd,
                  rate=1e-3, clip_norm=1.0, start=functools.partial(start, model))
