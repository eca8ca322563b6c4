#!/usr/bin/env python3
"""How far curves of losses in bf16 are from those in f32, beside PyTorch's under autocast.

  curves.py PDC DIGITS TEXT [MODEL [UPDATES [SEEDS]]]     the table of docs/results/accuracy.md         (default all, 500, 5)
  curves.py PDC DIGITS --golden                           writes small.losses, what `run` compares pdc with

Three models (a GPT, LeNet on drawn digits, LSTMs over bytes) are trained four times for each seed: in PyTorch in f32 and under autocast
to bf16, and by pdc in both; the GPT besides with its residual stream in bf16 (`residual`: pdc's --residual bf16). All four start from the same weights and take the same samples in the same order. The distance of two
curves is the mean over updates of |a - b|, a and b losses averaged over the last 20 updates. PyTorch's loss is computed in f32 of logits
in bf16, as pdc's. DIGITS: the program of tests/data. Needs PyTorch 2; one thread a side."""
import functools
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
top = here.parents[1]
for folder in ("golden", "reference"):
    sys.path.insert(0, str(top / "tests" / folder))

import numpy
import torch
import torch.nn.functional as F

import tensors
import training
from sampler import Windows, sample

os.environ.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
torch.set_num_threads(1)
BETAS, DECAY, CLIP, LAST = (0.9, 0.99), 0.1, 1.0, 20


# ---- the models in PyTorch, of weights by pdc's names ----------------------------------------------------


def entropy(logits, y):
    return F.cross_entropy(logits.float().flatten(0, -2), y.flatten())


def gpt(sizes, w, x, y, residual=torch.float32):
    def linear(name, h):
        return F.linear(h, w[name + ".weight"].T, w[name + ".bias"])

    def norm(name, h):
        return F.layer_norm(h, h.shape[-1:], w[name + ".weight"], w[name + ".bias"])

    def heads(h):
        return h.unflatten(-1, (sizes["n_head"], -1)).transpose(1, 2)

    h = w["wte.weight"][x] + w["wpe.weight"]
    if torch.is_autocast_enabled("cpu"):
        h = h.to(residual)  # and so are all sums with it
    for i in range(sizes["n_layer"]):
        block = f"h.{i}."
        q, k, v = map(heads, linear(block + "attn.c_attn", norm(block + "ln_1", h)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        h = h + linear(block + "attn.c_proj", a)
        m = F.gelu(linear(block + "mlp.c_fc", norm(block + "ln_2", h)), approximate="tanh")
        h = h + linear(block + "mlp.c_proj", m)
    return entropy(F.linear(norm("ln_f", h), w["wte.weight"]), y)


def lenet(sizes, w, x, y):
    x = F.max_pool2d(F.relu(F.conv2d(x, w["conv1.weight"], w["conv1.bias"], padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, w["conv2.weight"], w["conv2.bias"])), 2).flatten(1)
    for name in ("fc1", "fc2"):
        x = F.relu(F.linear(x, w[name + ".weight"], w[name + ".bias"]))
    return entropy(F.linear(x, w["fc3.weight"], w["fc3.bias"]), y)


def characters(sizes, w, x, y):
    rnn = recurrence(sizes["width"], sizes["hidden"])
    own = {name[4:]: value for name, value in w.items() if name.startswith("rnn.")}
    h, _ = torch.func.functional_call(rnn, own, w["wte.weight"][x])
    return entropy(F.linear(h, w["head.weight"], w["head.bias"]), y)


@functools.cache
def recurrence(width, hidden):
    return torch.nn.LSTM(width, hidden, 2, batch_first=True)


# ---- data -------------------------------------------------------------------------------------------------


class Images:
    """MNIST's files, in batches as pdc's programs take them."""

    def __init__(self, paths, batch, seed):
        images, labels = (numpy.frombuffer(path.read_bytes(), dtype=numpy.uint8) for path in paths)
        self.images = (images[16:].reshape(-1, 1, 28, 28).astype(numpy.float32) / 255 - 0.1307) / 0.3081
        self.labels, self.batch, self.seed = labels[8:].astype(numpy.int64), batch, seed

    def __call__(self, t):
        rows = [sample(self.seed, len(self.labels), t * self.batch + i) for i in range(self.batch)]
        return torch.from_numpy(self.images[rows].astype(numpy.float32)), torch.from_numpy(self.labels[rows])


def texts(sizes, paths, batch, seed):
    return Windows(paths[0].read_bytes(), sizes["n_ctx"], batch, seed)


def images(sizes, paths, batch, seed):
    return Images(paths, batch, seed)


# ---- a training ---------------------------------------------------------------------------------------------


class Model:
    def __init__(self, name, loss, file, data_of, rate, batch, **sizes):
        self.name, self.loss, self.file, self.data_of = name, loss, top / file, data_of
        self.kept = ("--residual", "bf16") if name == "residual" else ()
        self.rate, self.batch, self.sizes = rate, batch, sizes

    def options(self):
        """Of pdc; `run` has those of the small models again."""
        optimizer = f"adamw(lr = {self.rate}, betas = {BETAS}, weight_decay = {DECAY})"
        settings = dict(self.sizes, batch=self.batch, clip_norm=CLIP, optimizer=optimizer, lr_schedule="constant(warmup = 10)")
        return [x for name, value in settings.items() for x in ("-D", f"{name}={value}")]

    def build(self, pdc):
        for precision in ("f32", "bf16"):
            subprocess.run([pdc, "-n", "1", "--schedule", "flush", "--precision", precision, *(self.kept if precision == "bf16" else ()), "-o", f"{self.name}.{precision}",
                            *self.options(), self.file], check=True)

    def launch(self, precision, seed, *options):
        subprocess.run([f"./{self.name}.{precision}/train", "--seed", str(seed), "--quiet", "--peak", "1e12", *map(str, options)],
                       check=True)

    def ours(self, precision, seed, paths, updates):
        self.launch(precision, seed, "--data", *paths, "--steps", updates, "--log", f"{self.name}.jsonl")
        log = pathlib.Path(f"{self.name}.jsonl").read_text()
        return [float(x) for x in re.findall(r'^{"step":[0-9]+,"loss":([^,]*),', log, re.M)]

    def pytorch(self, rounded, seed, paths, updates):
        self.launch("f32", seed, "--steps", 0, "--save", f"{self.name}.safetensors")
        weights = {name: torch.from_numpy(x) for name, x in tensors.load(f"{self.name}.safetensors").items()}

        def loss_of(w, x, y):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rounded):
                return self.loss(self.sizes, w, x, y)

        rate_of = functools.partial(training.learning_rate, lr=self.rate, warmup=10, kind="constant")
        losses, _ = training.train(loss_of, weights, training.AdamW(weights, BETAS, DECAY), self.data_of(self.sizes, paths, self.batch, seed),
                                   updates, rate_of, 0, self.batch, CLIP)
        return losses

    def curves(self, seed, paths, updates):
        """PyTorch's in f32 and bf16, then pdc's."""
        sides = [lambda rounded=rounded: self.pytorch(rounded, seed, paths, updates) for rounded in (False, True)]
        sides += [lambda precision=precision: self.ours(precision, seed, paths, updates) for precision in ("f32", "bf16")]
        return [side() for side in sides]


def distance(a, b):
    over = lambda x: numpy.convolve(x, numpy.ones(LAST) / LAST, "valid")
    return float(numpy.abs(over(a) - over(b)).mean())


def table(models, updates, seeds):
    print("| | losses | PyTorch, autocast to f32 | pdc, bf16 to f32 | pdc to PyTorch, f32 |\n|---|---|---|---|---|")
    show = lambda x: f"{1e3 * statistics.mean(x):.2f} ({1e3 * min(x):.2f} .. {1e3 * max(x):.2f})"
    for model, paths in models:
        theirs, ours, between, ends = [], [], [], []
        for seed in range(1, seeds + 1):
            a, b, c, d = model.curves(seed, paths, updates)
            theirs.append(distance(a, b)), ours.append(distance(c, d)), between.append(distance(a, c))
            ends.append(statistics.mean(c[-LAST:]))
        print(f"| {model.name} | {c[0]:.2f} to {statistics.mean(ends):.2f} | {show(theirs)} | {show(ours)} | {show(between)} |", flush=True)


def golden(models, updates, seeds):
    with open(here / "small.losses", "w") as file:
        print("# model, seed, update; PyTorch's loss in f32 and under autocast to bf16; written by curves.py --golden", file=file)
        for model, paths in models:
            for seed in range(1, seeds + 1):
                a, b = (model.pytorch(rounded, seed, paths, updates) for rounded in (False, True))
                for t, (x, y) in enumerate(zip(a, b)):
                    print(f"{model.name} {seed} {t + 1} {x:.7f} {y:.7f}", file=file)


def main():
    pdc, digits, text, *rest = sys.argv[1:]
    pdc, digits, small = os.path.realpath(pdc), os.path.realpath(digits), text == "--golden"
    text = (top / "tests/reference/text.txt") if small else pathlib.Path(text).resolve()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        subprocess.run([digits, ".", "200" if small else "10000", "1"], check=True, stdout=subprocess.DEVNULL)
        drawn = [pathlib.Path(work, x) for x in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")]
        gpts = {"gpt": gpt, "residual": functools.partial(gpt, residual=torch.bfloat16)}
        if small:
            models = [(Model(name, loss, "models/gpt2.pdm", texts, 1e-3, 8, n_layer=2, n_head=2, n_embd=32, n_ctx=16, vocab_size=128,
                             p_drop=0), [text]) for name, loss in gpts.items()] + [
                      (Model("lenet", lenet, "models/lenet.pdm", images, 1e-3, 16), drawn),
                      (Model("characters", characters, "tests/curves/characters.pdm", texts, 3e-3, 8, n_ctx=16, vocab_size=128,
                             width=16, hidden=37), [text])]
        else:
            models = [(Model(name, loss, "models/gpt2.pdm", texts, 1e-3, 12, n_layer=4, n_head=4, n_embd=128, n_ctx=64,
                             vocab_size=256, p_drop=0), [text]) for name, loss in gpts.items()] + [
                      (Model("lenet", lenet, "models/lenet.pdm", images, 1e-3, 64), drawn),
                      (Model("characters", characters, "tests/curves/characters.pdm", texts, 3e-3, 12, n_ctx=64, vocab_size=256,
                             width=64, hidden=128), [text])]
        models = [(model, paths) for model, paths in models if not rest or rest[0] in ("all", model.name)]
        for model, _ in models:
            model.build(pdc)
        if small:
            golden(models, 40, 5)
        else:
            table(models, *map(int, (rest[1:] + ["500", "5"][len(rest[1:]):])))
        os.chdir("/")


if __name__ == "__main__":
    main()
