"""What updates that correct their delay are worth: a campaign in PyTorch, on one GPU or on processors.

  delay.py TEXT [--digits DIR] [--out FILE.jsonl] [--seconds N] [--updates N] [--only PATTERN]
           [--rates LIST] [--seeds LIST] [--few] [--list]

A group is one model under one optimizer. Its runs, which differ in seed, rate and correction, are trained side by side:
parameters, gradients and moments have a first axis for the run. The delay is that of the 2bw schedule: the gradient of update t
is that of the weights before update t - 1. An update with the direction u of its optimizer is

  W(t + 1) = W(t) (1 - rate decay) - (1 - p) rate u + p (W(t) - W(t - 1))

where u is the optimizer's direction with the momentum m replaced by (1 - c) m + c g, and c = min(1, A (1 - beta) / beta):
the momentum extrapolated by A updates. A = 0 and p = 0 are the published schedule. With a prediction s, gradients are those of
W(t - 1) + s (W(t - 1) - W(t - 2)), the next weights as the last change foretells them. Groups named stagesN have the delays of
pipedream on N stages, N - 1 updates for the first and none for the last; A is then per update of delay. Models of TEXT's
bytes: nanoGPT's small Shakespeare GPT (4 blocks of 128, context 64, batch 12), a Llama of the same sizes, an LSTM of 256. LeNet
(models/lenet.pdm) reads the files that `build/tests/data/digits DIR 10000 2000` writes. Rates fall by a cosine to a tenth after
100 updates, gradients are clipped at norm 1. Each line of FILE is a run: losses of training averaged over 50 updates at three
times, and the loss over held-out windows or images."""
import argparse
import fnmatch
import itertools
import json
import math
import time

import torch

CONTEXT, BATCH, VOCABULARY, WIDTH, BLOCKS, HEADS = 64, 12, 256, 128, 4, 4
WARM_UP, FLOOR = 100, 0.1


# ---- models: parameters have a first axis for the run ----------------------------------------------

def layer_norm(x, w, b):
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) * w[:, None, None] + b[:, None, None]


def rms_norm(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w[:, None, None]


def linear(x, w, b=None):
    y = torch.einsum("rbti,roi->rbto", x, w)
    return y if b is None else y + b[:, None, None]


def attention(q, k, v):
    runs, batch, length, width = q.shape
    q, k, v = (t.reshape(runs * batch, length, HEADS, width // HEADS).transpose(1, 2) for t in (q, k, v))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(runs, batch, length, width)


def embed(table, tokens):
    """Rows of a table for each run: [runs, batch, length, width]."""
    runs = table.shape[0]
    flat = tokens + VOCABULARY * torch.arange(runs, device=table.device)[:, None, None]
    return table.reshape(-1, table.shape[-1])[flat]


def gpt_shapes():
    shapes = {"wte": (VOCABULARY, WIDTH), "wpe": (CONTEXT, WIDTH), "ln_f.w": (WIDTH,), "ln_f.b": (WIDTH,)}
    for i in range(BLOCKS):
        shapes.update({f"{i}.ln_1.w": (WIDTH,), f"{i}.ln_1.b": (WIDTH,), f"{i}.ln_2.w": (WIDTH,), f"{i}.ln_2.b": (WIDTH,),
                       f"{i}.qkv.w": (3 * WIDTH, WIDTH), f"{i}.qkv.b": (3 * WIDTH,),
                       f"{i}.proj.w": (WIDTH, WIDTH), f"{i}.proj.b": (WIDTH,),
                       f"{i}.up.w": (4 * WIDTH, WIDTH), f"{i}.up.b": (4 * WIDTH,),
                       f"{i}.down.w": (WIDTH, 4 * WIDTH), f"{i}.down.b": (WIDTH,)})
    return shapes


def gpt(p, tokens):
    x = embed(p["wte"], tokens) + p["wpe"][:, None]
    for i in range(BLOCKS):
        h = layer_norm(x, p[f"{i}.ln_1.w"], p[f"{i}.ln_1.b"])
        q, k, v = linear(h, p[f"{i}.qkv.w"], p[f"{i}.qkv.b"]).chunk(3, -1)
        x = x + linear(attention(q, k, v), p[f"{i}.proj.w"], p[f"{i}.proj.b"])
        h = layer_norm(x, p[f"{i}.ln_2.w"], p[f"{i}.ln_2.b"])
        h = torch.nn.functional.gelu(linear(h, p[f"{i}.up.w"], p[f"{i}.up.b"]), approximate="tanh")
        x = x + linear(h, p[f"{i}.down.w"], p[f"{i}.down.b"])
    return linear(layer_norm(x, p["ln_f.w"], p["ln_f.b"]), p["wte"])


HIDDEN = 352 # of the Llama's gated layer


def llama_shapes():
    shapes = {"wte": (VOCABULARY, WIDTH), "ln_f.w": (WIDTH,), "head": (VOCABULARY, WIDTH)}
    for i in range(BLOCKS):
        shapes.update({f"{i}.ln_1.w": (WIDTH,), f"{i}.ln_2.w": (WIDTH,), f"{i}.qkv.w": (3 * WIDTH, WIDTH),
                       f"{i}.proj.w": (WIDTH, WIDTH), f"{i}.gate.w": (HIDDEN, WIDTH), f"{i}.up.w": (HIDDEN, WIDTH),
                       f"{i}.down.w": (WIDTH, HIDDEN)})
    return shapes


def rotate(x):
    half = WIDTH // HEADS // 2
    angle = torch.arange(CONTEXT, device=x.device)[:, None] * 10000.0 ** (-torch.arange(half, device=x.device) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x.unflatten(-1, (HEADS, 2, half)).unbind(-2)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -2).flatten(-3)


def llama(p, tokens):
    x = embed(p["wte"], tokens)
    for i in range(BLOCKS):
        q, k, v = linear(rms_norm(x, p[f"{i}.ln_1.w"]), p[f"{i}.qkv.w"]).chunk(3, -1)
        x = x + linear(attention(rotate(q), rotate(k), v), p[f"{i}.proj.w"])
        h = rms_norm(x, p[f"{i}.ln_2.w"])
        h = torch.nn.functional.silu(linear(h, p[f"{i}.gate.w"])) * linear(h, p[f"{i}.up.w"])
        x = x + linear(h, p[f"{i}.down.w"])
    return linear(rms_norm(x, p["ln_f.w"]), p["head"])


CELL = 256


def lstm_shapes():
    return {"wte": (VOCABULARY, WIDTH), "in.w": (4 * CELL, WIDTH), "in.b": (4 * CELL,), "state.w": (4 * CELL, CELL),
            "head": (VOCABULARY, CELL), "head.b": (VOCABULARY,)}


def lstm(p, tokens):
    gates = linear(embed(p["wte"], tokens), p["in.w"], p["in.b"])
    runs, batch = tokens.shape[:2]
    h = c = torch.zeros(runs, batch, CELL, device=tokens.device)
    states = []
    for t in range(CONTEXT):
        i, f, g, o = (gates[:, :, t] + torch.bmm(h, p["state.w"].transpose(1, 2))).chunk(4, -1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return linear(torch.stack(states, 2), p["head"], p["head.b"])


IMAGES = 64 # of a batch


def lenet_shapes():
    return {"conv1.w": (6, 1, 5, 5), "conv1.b": (6,), "conv2.w": (16, 6, 5, 5), "conv2.b": (16,), "fc1.w": (120, 400),
            "fc1.b": (120,), "fc2.w": (84, 120), "fc2.b": (84,), "fc3.w": (10, 84), "fc3.b": (10,)}


def convolution(x, w, b, padding):
    """A group of channels for each run: [batch, runs * channels, height, width]."""
    y = torch.nn.functional.conv2d(x, w.flatten(0, 1), b.flatten(), padding=padding, groups=w.shape[0])
    return torch.nn.functional.max_pool2d(torch.relu(y), 2)


def lenet(p, images):
    """Images [runs, batch, height, width] to logits [runs, batch, 1, classes]."""
    x = convolution(images.transpose(0, 1), p["conv1.w"], p["conv1.b"], 2)
    x = convolution(x, p["conv2.w"], p["conv2.b"], 0).view(images.shape[1], images.shape[0], 1, 400).transpose(0, 1)
    x = torch.relu(linear(x, p["fc1.w"], p["fc1.b"]))
    x = torch.relu(linear(x, p["fc2.w"], p["fc2.b"]))
    return linear(x, p["fc3.w"], p["fc3.b"])


MODELS = {"gpt": (gpt_shapes, gpt), "llama": (llama_shapes, llama), "lstm": (lstm_shapes, lstm), "lenet": (lenet_shapes, lenet)}


# ---- data: samples of a batch, one batch for each run ------------------------------------------------------

class Text:
    """Windows of a text's bytes, drawn anew for each batch; the last tenth is held out."""
    def __init__(self, path, device):
        with open(path, "rb") as file:
            text = file.read()
        self.tokens, self.cut, self.device = torch.tensor(list(text), device=device), len(text) - len(text) // 10, device

    def draw(self, generator):
        first = torch.randint(self.cut - CONTEXT - 1, (BATCH,), generator=generator).to(self.device)
        return self.windows(first)

    def windows(self, first):
        both = self.tokens[first[:, None] + torch.arange(CONTEXT + 1, device=self.device)]
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()

    def held_out(self):
        """120 x 12 windows in a row, the same for every run."""
        ends = range(self.cut, len(self.tokens) - BATCH * CONTEXT - 1, BATCH * CONTEXT)
        for first in itertools.islice(ends, 120):
            yield self.windows(first + CONTEXT * torch.arange(BATCH, device=self.device))


class Digits:
    """MNIST's files: images scaled as models/lenet.pdm says, and their labels."""
    def __init__(self, folder, device):
        def read(name, head):
            with open(f"{folder}/{name}-ubyte", "rb") as file:
                return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[head:]
        self.device = device
        self.sets = {}
        for part in ("train", "t10k"):
            labels = read(f"{part}-labels-idx1", 8).long()
            images = (read(f"{part}-images-idx3", 16).view(len(labels), 28, 28) / 255.0 - 0.1307) / 0.3081
            self.sets[part] = images.to(device), labels[:, None].to(device)

    def draw(self, generator):
        images, labels = self.sets["train"]
        chosen = torch.randint(len(labels), (IMAGES,), generator=generator).to(self.device)
        return images[chosen], labels[chosen]

    def held_out(self):
        images, labels = self.sets["t10k"]
        for first in range(0, len(labels) - IMAGES + 1, IMAGES):
            yield images[first:first + IMAGES], labels[first:first + IMAGES]


def initial(name, shape, generator):
    if name.endswith(".b"):
        return torch.zeros(shape)
    if len(shape) == 1:
        return torch.ones(shape)
    if name.startswith(("conv", "fc")):
        bound = math.prod(shape[1:]) ** -0.5
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)
    if name in ("in.w", "state.w"):
        return torch.empty(shape).uniform_(-CELL ** -0.5, CELL ** -0.5, generator=generator)
    scale = 0.02 / math.sqrt(2 * BLOCKS) if name.endswith(("proj.w", "down.w")) else 0.01 if name == "wpe" else 0.02
    return torch.empty(shape).normal_(0, scale, generator=generator)


# ---- optimizers: the direction of an update, and what is kept ---------------------------------------

def extrapolated(m, g, a, beta):
    c = torch.clamp(a * (1 - beta) / beta, max=1)
    return (1 - c) * m + c * g


def adamw(state, g, a, t, beta, beta2=0.99):
    m, v = state
    m.lerp_(g, 1 - beta)
    v.lerp_(g.square(), 1 - beta2)
    return extrapolated(m / (1 - beta ** t), g, a, beta) / ((v / (1 - beta2 ** t)).sqrt() + 1e-8)


def sgd(state, g, a, t, beta):
    """Momentum without dampening, divided by its sum, so that rates are those of plain descent."""
    state[0].mul_(beta).add_(g)
    return extrapolated(state[0] * (1 - beta), g, a, beta)


def lion(state, g, a, t, beta, beta2=0.99):
    direction = extrapolated(beta * state[0] + (1 - beta) * g, g, a, beta2).sign() # by what m moves in an update
    state[0].lerp_(g, 1 - beta2)
    return direction


def newton_schulz(x):
    wide = x.shape[-2] > x.shape[-1]
    x = x.transpose(-1, -2) if wide else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.transpose(-1, -2) if wide else x


def muon(state, g, a, t, beta):
    """For matrices of the blocks; the others by AdamW at a tenth of the rate, as their moments say."""
    if len(state) == 2:
        return 0.1 * adamw(state, g, a, t, 0.9)
    state[0].mul_(beta).add_(g)
    shape = g.shape[-2:]
    return newton_schulz(extrapolated(state[0] * (1 - beta), g, a, beta)) * math.sqrt(max(1, shape[0] / shape[1]))


DECAY = {"adamw": 0.1, "sgd": 0.0, "lion": 0.1, "muon": 0.1} # of matrices, times the rate; rates of sgd are near 1
OPTIMIZERS = {"adamw": (adamw, 0.9, 2), "sgd": (sgd, 0.9, 1), "lion": (lion, 0.9, 1), "muon": (muon, 0.95, 1)}


def moments(optimizer, name, runs, shape, device):
    n = OPTIMIZERS[optimizer][2]
    if optimizer == "muon" and (len(shape) < 2 or not name[0].isdigit()):
        n = 2
    return [torch.zeros(runs, *shape, device=device) for _ in range(n)]


# ---- groups of runs ------------------------------------------------------------------------------------

PLAIN, AUTO = (0, 0.0, 0.0, 0.0), (1, 2, -0.5, 0.0) # no delay; what `delay_correction = auto` is for AdamW and SGD


def corrections(a_values, p_values, predictions=(0.0,)):
    return [(1, a, p, s) for a in a_values for p in p_values for s in predictions]


def runs_of(seeds, rates, ways):
    return [{"seed": seed, "rate": rate, "delay": delay, "A": a, "p": p, "predict": s}
            for seed, rate, (delay, a, p, s) in itertools.product(seeds, rates, ways)]


FEW = [PLAIN, *corrections((0,), (0,)), *corrections((1, 2, 3), (0, -0.25, -0.5))]
PREDICTED = corrections((0, 1, 2), (0, -0.5), (0.5, 1.0))
BY_STAGE = [PLAIN, *corrections((0, 0.5, 1, 2), (0, -0.25, -0.5))]
GROUPS = { # in order of worth
    "gpt.adamw": runs_of((1, 2, 3), (1e-3, 1.4e-3, 2e-3, 2.8e-3, 4e-3), FEW),
    "gpt.adamw.beta95": runs_of((1, 2, 3), (1e-3, 2e-3, 4e-3), FEW),
    "llama.adamw": runs_of((1, 2), (1e-3, 2e-3, 4e-3, 6e-3), FEW),
    "gpt.sgd": runs_of((1, 2), (0.3, 1.0, 3.0), FEW),
    "gpt.lion": runs_of((1, 2), (1e-4, 3e-4, 6e-4), [*FEW, *corrections((0,), (-0.25, -0.5))]),
    "gpt.muon": runs_of((1, 2), (5e-3, 1e-2, 2e-2), FEW),
    "lstm.adamw": runs_of((1, 2, 3), (2e-3, 4e-3, 8e-3), FEW),
    "lenet.adamw": runs_of((1, 2, 3), (1e-3, 2e-3, 4e-3, 8e-3), FEW),
    "lenet.sgd": runs_of((1, 2, 3), (0.1, 0.3, 1.0), FEW),
    "gpt.adamw.stages4": runs_of((1, 2), (1e-3, 2e-3), BY_STAGE),
    "gpt.adamw.stages8": runs_of((1, 2), (1e-3, 2e-3), BY_STAGE),
    "gpt.adamw.predicted": runs_of((1, 2), (1e-3, 2e-3), PREDICTED),
}


def delay_of(key, stages):
    """Updates between the version of a parameter that a pass reads and the newest, of the blocks dealt out to stages."""
    if not stages:
        return 1
    block = int(key.split(".")[0]) if key[0].isdigit() else 0 if key in ("wte", "wpe") else BLOCKS - 1
    return stages - 1 - (block * (stages - 1) + (BLOCKS - 1) // 2) // (BLOCKS - 1)


class Group:
    def __init__(self, name, runs, data, device, updates):
        model, optimizer, *more = name.split(".")
        self.runs, self.updates, self.device = runs, updates, device
        shapes, self.model = MODELS[model]
        self.direction, self.beta, _ = OPTIMIZERS[optimizer]
        options = "".join(more)
        if options.startswith("beta"):
            self.beta = float("0." + options.removeprefix("beta"))
        self.stages = int(options.removeprefix("stages")) if options.startswith("stages") else 0
        self.per_run = {key: torch.tensor([float(run[key]) for run in self.runs], device=device)
                        for key in ("rate", "delay", "A", "p", "predict")}
        self.decay = DECAY[optimizer]
        self.seeds = sorted({run["seed"] for run in self.runs})
        self.of_seed = torch.tensor([self.seeds.index(run["seed"]) for run in self.runs], device=device)
        self.weights = self.initial_weights(shapes())
        self.older = {key: [w.clone() for _ in range(delay_of(key, self.stages) + 1)] for key, w in self.weights.items()}
        self.read = {key: w.clone().requires_grad_() for key, w in self.weights.items()}
        self.state = {key: moments(optimizer, key, len(self.runs), w.shape[1:], device) for key, w in self.weights.items()}
        self.rate_share = torch.zeros((), device=device)
        self.t = torch.zeros((), device=device)
        self.data, self.batch = data, None
        self.order = [torch.Generator().manual_seed(1000 + seed) for seed in self.seeds]

    def initial_weights(self, shapes):
        drawn = []
        for seed in self.seeds:
            generator = torch.Generator().manual_seed(seed)
            drawn.append({key: initial(key, shape, generator) for key, shape in shapes.items()})
        return {key: torch.stack([drawn[i][key] for i in self.of_seed.tolist()]).to(self.device) for key in shapes}

    def losses(self, p, inputs, targets):
        logits = self.model(p, inputs)
        each = torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction="none")
        return each.view(len(self.runs), -1).mean(1)

    def column(self, values, like):
        return values.view(-1, *([1] * (like.dim() - 1)))

    def update(self):
        """Reads self.batch, self.rate_share and self.t, changes weights and moments in place."""
        losses = self.losses(self.read, *self.batch)
        keys = list(self.read)
        gradients = torch.autograd.grad(losses.sum(), [self.read[key] for key in keys])
        with torch.no_grad():
            norm = sum(g.flatten(1).square().sum(1) for g in gradients).sqrt()
            scale = torch.clamp(1 / (norm + 1e-6), max=1)
            for key, g in zip(keys, gradients):
                w, older, read, delay = self.weights[key], self.older[key], self.read[key], delay_of(key, self.stages)
                col = lambda values: self.column(values, w)
                rate, p = col(self.per_run["rate"] * self.rate_share), col(self.per_run["p"])
                u = self.direction(self.state[key], g * col(scale), col(self.per_run["A"]) * delay, self.t, self.beta)
                decay = self.decay if w.dim() > 2 else 0.0
                new = w * (1 - rate * decay) - (1 - p) * rate * u + p * (w - older[0])
                for i in reversed(range(1, len(older))):
                    older[i].copy_(older[i - 1])
                older[0].copy_(w)
                w.copy_(new)
                if delay:
                    late = older[delay - 1] + col(self.per_run["predict"]) * (older[delay - 1] - older[delay])
                read.copy_(torch.where(col(self.per_run["delay"]) > 0, late, w) if delay else w)
        return losses.detach()

    def draw(self):
        drawn = [self.data.draw(generator) for generator in self.order]
        batch = [torch.stack([part[i] for part in drawn])[self.of_seed] for i in range(2)]
        self.batch = self.batch or batch # a graph reads the same memory each time
        for held, new in zip(self.batch, batch):
            held.copy_(new)

    def set_time(self, t):
        progress = max(0.0, (t + 1 - WARM_UP) / max(1, self.updates - WARM_UP))
        share = (t + 1) / WARM_UP if t < WARM_UP else FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress))
        self.rate_share.fill_(share)
        self.t.fill_(float(t + 1))

    def step_function(self):
        """The update; on a GPU a graph of it, after three runs that restore what they changed."""
        if self.device.type != "cuda":
            return self.update
        changed = [*self.weights.values(), *itertools.chain(*self.older.values(), *self.state.values())]
        saved, reads = [x.clone() for x in changed], [x.detach().clone() for x in self.read.values()]
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.update()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = self.update()
        with torch.no_grad():
            for x, old in zip([*changed, *self.read.values()], [*saved, *reads]):
                x.copy_(old)

        def step():
            graph.replay()
            return losses
        return step

    def held_out(self):
        total, n = torch.zeros(len(self.runs), device=self.device), 0
        with torch.no_grad():
            for n, batch in enumerate(self.data.held_out(), 1):
                total += self.losses(self.weights, *(part.expand(len(self.runs), *part.shape) for part in batch))
        return total / n

    def train(self):
        self.draw()
        self.set_time(0)
        step = self.step_function()
        kept = []
        for t in range(self.updates):
            if t:
                self.draw()
                self.set_time(t)
            kept.append(step().clone())
        return torch.stack(kept)


def report(name, group, losses, seconds):
    held = group.held_out().tolist()
    for i, run in enumerate(group.runs):
        means = [round(losses[max(0, end - 50):end, i].mean().item(), 4)
                 for end in (group.updates // 4, group.updates // 2, group.updates)]
        yield {"group": name, **run, "updates": group.updates, "beta": group.beta, "training": means,
               "held_out": round(held[i], 4), "seconds": round(seconds, 1)}


def is_few(name, run):
    """No correction, with and without delay, or that of `auto`, whose A is per update in groups with delays by stage."""
    return (run["A"], run["p"]) in ((0, 0), (1 if ".stages" in name else AUTO[1], AUTO[2]))


def is_chosen(name, run, options):
    return (not options.rates or run["rate"] in map(float, options.rates.split(","))) and \
        (not options.seeds or run["seed"] in map(int, options.seeds.split(","))) and \
        (not options.few or is_few(name, run))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text")
    parser.add_argument("--digits", metavar="DIR", help="for groups of lenet")
    parser.add_argument("--out", default="delay.jsonl")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begins no group after this long")
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--only", default="*")
    parser.add_argument("--rates", metavar="LIST", help="only these, such as 1e-3,2e-3")
    parser.add_argument("--seeds", metavar="LIST", help="only these")
    parser.add_argument("--few", action="store_true", help="no delay, no correction, and `auto` alone")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    names = [name for name in GROUPS if fnmatch.fnmatch(name, options.only)]
    chosen = {name: [run for run in GROUPS[name] if is_chosen(name, run, options)] for name in names}
    if options.list:
        for name in names:
            print(f"{name}: {len(chosen[name])} runs")
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    texts, digits = Text(options.text, device), Digits(options.digits, device) if options.digits else None
    start = time.monotonic()
    for name in names:
        began = time.monotonic()
        if began - start > options.seconds:
            print(f"{name}: not begun, no time is left")
            continue
        data = digits if name.startswith("lenet") else texts
        if not data:
            print(f"{name}: not begun, no --digits")
            continue
        group = Group(name, chosen[name], data, device, options.updates)
        losses = group.train()
        lines = list(report(name, group, losses, time.monotonic() - began))
        with open(options.out, "a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        print(f"{name}: {len(lines)} runs in {lines[0]['seconds']} s", flush=True)
        del group, losses


if __name__ == "__main__":
    main()
