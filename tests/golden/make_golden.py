"""Writes the golden files beside it: for every case NAME.pdm
  NAME.init.safetensors   the parameters, which carry the case's operands
  NAME.want.safetensors   the parameters after one update of SGD without momentum at a rate of 2^20, that is
                          W - 2^20 gradient: in effect the gradients, by PyTorch's autograd in double
  NAME.loss               the loss of that update
and the samples: NAME.npy, where row r of a table is the operand of token r, so that a table's gradient shows
each operand's own, and NAME.next.npy where the case has targets. Needs PyTorch; the files are committed, so
that the tests do not."""
import math
import os

import numpy
import torch
import torch.nn.functional as F

import tensors

HERE = os.path.dirname(os.path.abspath(__file__))
RATE = 2.0 ** 20


class Case:
    """One .pdm file. Parameters are drawn in the order of `shapes` by a generator of the case's own."""

    def __init__(self, name, samples, length, shapes):
        self.name, self.samples, self.length = name, samples, length
        generator = numpy.random.default_rng(sum(name.encode()))
        self.w = {key: generator.standard_normal(shape).astype(numpy.float32)
                  for key, shape in shapes.items()}

    def tokens(self):
        return torch.arange(self.samples * self.length).reshape(self.samples, self.length)

    def path(self, end):
        return os.path.join(HERE, self.name + end)

    def write(self, loss_of, next_tokens=None):
        """loss_of(weights, tokens): the loss, from weights in double precision."""
        numpy.save(self.path(".npy"), self.tokens().numpy().astype(numpy.int32))
        if next_tokens is not None:
            numpy.save(self.path(".next.npy"), next_tokens.numpy().astype(numpy.int32))
        tensors.save(self.path(".init.safetensors"), self.w)
        leaves = {key: torch.from_numpy(array).double().requires_grad_() for key, array in self.w.items()}
        loss = loss_of(leaves, self.tokens())
        loss.backward()
        want = {}
        for key, leaf in leaves.items():
            gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            want[key] = (leaf.detach() - RATE * gradient).float().numpy()
        tensors.save(self.path(".want.safetensors"), want)
        with open(self.path(".loss"), "w") as file:
            file.write(f"{loss.item():.9g}\n")


def pointwise():
    case = Case("pointwise", 4, 2, {"given.weight": (8, 594), "probe.weight": (8, 432), "row": (18,),
                                    "column_of": (2, 1)})
    given = case.w["given.weight"]
    for i in (7, 11, 14, 15, 30):  # divisors and what needs a positive operand
        block = given[:, 18 * i:18 * (i + 1)]
        block[...] = numpy.abs(block) + 0.25
    for a, b in ((18, 19), (20, 21), (22, 23)):  # ties
        given[::2, 18 * a:18 * a + 5] = given[::2, 18 * b:18 * b + 5]
    case.w["row"][...] = numpy.abs(case.w["row"])

    def loss(w, tokens):
        g = w["given.weight"][tokens].split(18, -1)
        p = w["probe.weight"][tokens].split(18, -1)
        results = [
            g[0] + g[1], g[2] - g[3], g[4] * g[5], g[6] / g[7], -g[8], g[9].square(), g[10].exp(),
            g[11].log(), g[12].tanh(), g[13].erf(), g[14].sqrt(), g[15].rsqrt(), g[16].sin(), g[17].cos(),
            torch.maximum(g[18], g[19]), torch.minimum(g[20], g[21]),
            (g[22] > 0).double() + 2 * (g[22] == g[23]).double(), torch.where(g[24] > 0, g[25], g[26]),
            g[27].detach() * w["row"], g[28] * w["column_of"] + 1 / (3 + w["row"]),
            g[29].expm1(), g[30].log1p(), g[31].sigmoid(), g[32].erfc()]
        return sum(a * b for a, b in zip(p, results)).mean()

    case.write(loss)


POWERS = (0, 1, 2, 3, 6, 11, -1, -4, 0.5, -0.5, 1.7, -2.3)


def powers():
    case = Case("powers", 3, 2, {"given.weight": (6, 13 * 6), "probe.weight": (6, 13 * 6)})
    given = case.w["given.weight"]
    given[:, 8 * 6:12 * 6] = numpy.abs(given[:, 8 * 6:12 * 6])  # powers that are no whole numbers
    given[:, 6 * 6:12 * 6] += numpy.copysign(0.25, given[:, 6 * 6:12 * 6])  # nor may others be of 0
    given[::2, 12 * 6:12 * 6 + 2] = 0  # where |x| has no slope

    def loss(w, tokens):
        g, p = w["given.weight"][tokens].split(6, -1), w["probe.weight"][tokens].split(6, -1)
        results = [x.pow(n) for x, n in zip(g, POWERS)] + [g[12].abs()]
        return sum(a * b for a, b in zip(p, results)).mean()

    case.write(loss)


def shapes():
    case = Case("shapes", 4, 6, {"given.weight": (24, 40), "probe.weight": (24, 40)})

    def loss(w, tokens):
        given, probe = w["given.weight"][tokens], w["probe.weight"][tokens]
        g, p = given.reshape(4, 6, 2, 20), probe.reshape(4, 6, 2, 20)
        swapped = g.transpose(1, 3)
        total = (p.transpose(1, 3) * swapped * swapped).reshape(4, 20, 12).sum(-1, keepdim=True).mean()
        a, b = given.chunk(2, -1)
        joined = torch.cat((a[:, 1:3], b[:, 0:4]), 1)
        wide = F.pad(joined[..., 3:17], (2, 4))
        total = total + (wide * wide * probe[..., 0:20]).mean()
        widths = torch.cat((a[..., :7], b[..., 7:], a[..., 5:10]), -1)
        largest = b.amax(-1, keepdim=True)
        total = total + ((widths * widths).sum(-1, keepdim=True) * largest * probe[..., 20:21]).mean()
        up = given.transpose(1, 2)
        factor = probe.transpose(1, 2).mean(-1, keepdim=True)
        total = total + (up.amax(-1, keepdim=True) * up.sum(-1, keepdim=True) * factor).mean()
        spread = given[..., 9:10].expand(4, 6, 23) * torch.arange(23)
        total = total + ((spread * spread).sum(-1, keepdim=True) * 0.001 * probe[..., 30:31]).mean()
        values = torch.cat((a, probe[..., 5:9]), -1)
        picked = (F.one_hot(tokens, 24) * values).sum(-1, keepdim=True)
        return total + (picked * probe[..., 39:40]).mean()

    case.write(loss)


def products():
    case = Case("products", 4, 6, {"given.weight": (24, 36), "probe.weight": (24, 20), "out_in": (20, 36),
                                   "in_out": (36, 20), "small": (6, 4)})

    def loss(w, tokens):
        given, probe = w["given.weight"][tokens], w["probe.weight"][tokens]
        out_in, in_out, small = w["out_in"], w["in_out"], w["small"]
        total = ((given @ out_in.T) * probe).mean() + ((given @ in_out + 0.5) * probe).mean()
        a, b, c = given.chunk(3, -1)
        total = total + (((a @ b.mT) @ c)[..., 0:10] * probe[..., 0:10]).mean()
        h = given.reshape(4, 6, 3, 12).transpose(1, 2)
        total = total + ((h @ h.mT) * probe[..., 2:20].reshape(4, 3, 6, 6)).mean()
        total = total + ((a.mT @ b) * (b.mT @ probe[..., 0:12])).mean()
        rows = given.reshape(4, 3, 2, 36) @ out_in.T
        total = total + (rows * (given @ in_out)[:, None, 0:1]).mean()
        return total + (a.mT @ small * 0.1 + (b.mT @ small) * (c.mT @ small)).mean()

    case.write(loss)


def expanded():
    case = Case("expanded", 4, 6, {"given.weight": (24, 8), "probe.weight": (24, 8), "weight": (8, 4),
                                   "scale": (6, 8)})

    def loss(w, tokens):
        given, probe = w["given.weight"][tokens], w["probe.weight"][tokens]
        a = (given * w["scale"])[:, None].expand(4, 2, 6, 8)
        b = probe[:, None].expand(4, 2, 6, 8)
        total = (a @ b.mT).mean() + ((a @ w["weight"]) * (b @ w["weight"])).mean()
        total = total + ((a @ a.mT) * torch.arange(72).reshape(2, 6, 6) * 0.01).mean()
        c = given.reshape(4, 3, 1, 2, 8).expand(4, 3, 4, 2, 8)
        d = probe.reshape(4, 3, 1, 2, 8).expand(4, 3, 4, 2, 8)
        total = total + ((c @ d.mT) * torch.arange(48).reshape(3, 4, 2, 2) * 0.01).mean()
        e = probe[:, :2].reshape(4, 1, 4, 2, 2).expand(4, 3, 4, 2, 2)
        total = total + ((c.mT @ e) * 0.1).mean()
        row, column = given[:, 0:1].expand(4, 6, 8), given[..., 0:1].expand(4, 6, 8)
        total = total + (row @ probe.mT).mean() + (column @ (probe * w["scale"]).mT).mean()
        corner = given[:, 0:1, 0:1].expand(4, 6, 8)
        total = total + (corner @ probe[..., 2:3].expand(4, 6, 8).mT).mean()
        return total + (row @ w["weight"]).mean()

    case.write(loss)


def attend(q, k, v, causal, scale, mask=None, window=0, softcap=0, documents=None):
    """A mask of -10000 or less hides a key; a row that sees none gives zeros."""
    scores = q @ k.mT * scale
    if softcap:
        scores = softcap * (scores / softcap).tanh()
    hidden = torch.zeros(scores.shape, dtype=torch.bool)
    if window:
        distance = torch.arange(scores.shape[-2])[:, None] - torch.arange(scores.shape[-1])
        hidden |= distance.abs() >= window
    if documents is not None:
        hidden |= (documents[:, None, :, None] != documents[:, None, None, :])
    if causal:
        hidden |= torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    if mask is not None:
        scores = scores + mask
        hidden |= mask <= -10000
    blind = hidden.all(-1, keepdim=True)
    return scores.masked_fill(hidden & ~blind, -math.inf).softmax(-1).masked_fill(blind, 0) @ v


def attention():
    case = Case("attention", 2, 68, {"given.weight": (136, 40), "probe.weight": (136, 16),
                                    "masks.weight": (136, 2)})
    row, key = case.w["masks.weight"].T
    row[5::29], key[3::5], key[55:68] = -1e9, -1e9, -1e4

    def heads(x, n):
        return x.unflatten(-1, (n, 8)).transpose(1, 2)

    def loss(w, tokens):
        given, p = w["given.weight"][tokens], heads(w["probe.weight"][tokens], 2)
        q, k, v = heads(given[..., 0:16], 2), heads(given[..., 16:24], 1), heads(given[..., 24:32], 1)
        k2, v2 = heads(given[..., 16:32], 2), heads(given[..., 24:40], 2)
        usual = 1 / math.sqrt(8)
        total = (attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), True, usual) * p).mean()
        total = total + (attend(q, k2, v2, False, usual) * p).mean()
        total = total + (attend(k2, q, v2, True, 0.7) * p).mean()
        row, key = (x[:, None] for x in w["masks.weight"][tokens].detach().split(1, -1))
        key = key.mT
        k1, v1 = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        total = total + (attend(q, k1, v1, False, usual, key) * p).mean()
        total = total + (attend(q, k2, v2, True, usual, row + key) * p).mean()
        distance = torch.arange(68)[:, None] - torch.arange(68)
        total = total + (attend(q, k2, v2, False, 0.5, -0.125 * distance * distance) * p).mean()
        padding = torch.where(tokens == 5, -1e9, 0.0)[:, None, None]
        total = total + (attend(q, k2, v2, False, usual, padding) * p).mean()
        total = total + (attend(q, k2, v2, True, usual) * p).mean()
        total = total + (attend(q, k2, v2, False, usual, torch.where(tokens == 67, -1e9, 0.0)[:, None, None]) * p).mean()
        total = total + (attend(q, k2, v2, False, usual, key) * p).mean()
        return total + (attend(k2, q, v2, True, usual) * p).mean()

    case.write(loss)


def windows():
    case = Case("windows", 2, 150, {"given.weight": (300, 40), "probe.weight": (300, 16), "masks.weight": (300, 2)})
    row, key = case.w["masks.weight"].T
    row[5::29], key[3::5], key[255:268] = -1e9, -1e9, -1e4
    ends = torch.tensor([[1, 2, 40, 41, 139, 150], [3, 70, 71, 72, 100, 150]])
    documents = (torch.arange(150)[None, :, None] >= ends[:, None]).sum(-1)

    def heads(x, n):
        return x.unflatten(-1, (n, 8)).transpose(1, 2)

    def loss(w, tokens):
        given, p = w["given.weight"][tokens], heads(w["probe.weight"][tokens], 2)
        q, k, v = heads(given[..., 0:16], 2), heads(given[..., 16:24], 1), heads(given[..., 24:32], 1)
        k1, v1 = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        k2, v2 = heads(given[..., 16:32], 2), heads(given[..., 24:40], 2)
        usual = 1 / math.sqrt(8)
        row, key = (x[:, None] for x in w["masks.weight"][tokens].detach().split(1, -1))
        mask = row + key.mT
        results = [attend(q, k1, v1, True, usual, window=1), attend(q, k1, v1, True, usual, window=20),
                   attend(q, k2, v2, False, usual, window=7), attend(q, k2, v2, True, usual, softcap=1.5),
                   attend(q, k1, v1, False, 0.7, softcap=0.5), attend(q, k2, v2, True, 0.7, window=33, softcap=2),
                   attend(q, k2, v2, True, usual, mask, window=50, softcap=2),
                   attend(q, k1, v1, True, usual, documents=documents),
                   attend(q, k2, v2, False, usual, documents=documents),
                   attend(q, k2, v2, True, 0.7, mask, window=30, softcap=1, documents=documents)]
        return sum((y * p).mean() for y in results)

    case.write(loss, documents)


def transformers_blocks():
    """T5's encoder and decoder blocks, a table of buckets, and BLOOM's block, by transformers."""
    from transformers import BloomConfig, T5Config
    from transformers.models.bloom.modeling_bloom import BloomBlock
    from transformers.models.t5.modeling_t5 import T5Attention, T5Block

    def t5(decoder, **more):
        config = T5Config(d_model=24, d_kv=5, d_ff=40, num_heads=3, is_decoder=decoder, dropout_rate=0,
                          attn_implementation="eager", **more)
        return T5Block(config, has_relative_attention_bias=False, layer_idx=0)

    def buckets(decoder, **more):
        config = T5Config(d_model=24, d_kv=5, d_ff=40, num_heads=3, is_decoder=decoder, **more)
        return T5Attention(config, has_relative_attention_bias=True, layer_idx=0)

    bloom = BloomConfig(hidden_size=24, n_head=6, hidden_dropout=0, attention_dropout=0, attn_implementation="eager")
    return {"layer": t5(False), "decoder": t5(True), "bloom": BloomBlock(bloom, layer_idx=0),
            "position": buckets(False, relative_attention_max_distance=30),
            "before": buckets(True, relative_attention_num_buckets=10, relative_attention_max_distance=20),
            "again": buckets(False)}


def biases():
    modules = transformers_blocks()
    tables = ("position", "before", "again")
    names = {(part, key): f"{part}.weight" if part in tables else f"{part}.{key}"
             for part, module in modules.items() for key, _ in module.named_parameters()
             if part not in tables or key == "relative_attention_bias.weight"}
    shapes = {"given.weight": (80, 64), "probe.weight": (80, 24), "bias": (2, 40, 40), "distance": (2, 1, 79),
              "sinks": (2,), "slopes": (2, 1, 1)}
    for part in ("dropped.q", "dropped.k", "dropped.v"):
        shapes[part + ".weight"] = (15, 24)
    shapes["dropped.o.weight"] = (24, 15)
    for (part, key), name in names.items():
        shapes[name] = tuple(modules[part].get_parameter(key).shape)
    case = Case("biases", 2, 40, shapes)
    for name, array in case.w.items():
        if array.ndim == 2 and name.split(".")[0] not in ("given", "probe") + tables:
            array *= 1 / math.sqrt(array.shape[-1])

    def call(w, part, *given, method="forward", **named):
        own = {key: w[name] for (of, key), name in names.items() if of == part}
        module = modules[part].double()
        if method == "forward":
            return torch.func.functional_call(module, own, given, named)
        table = own["relative_attention_bias.weight"]
        at = torch.arange(40)
        bucket = module._relative_position_bucket(
            at[None, :] - at[:, None], bidirectional=not module.is_decoder,
            num_buckets=module.relative_attention_num_buckets,
            max_distance=module.relative_attention_max_distance)
        return table[bucket].permute(2, 0, 1)[None]

    def heads(x, n):
        return x.unflatten(-1, (n, x.shape[-1] // n)).transpose(1, 2)

    def skewed(numbers, rows, keys):
        index = torch.arange(keys)[None, :] - torch.arange(rows)[:, None] + rows - 1
        return numbers[:, 0, index]

    def attention(q, k, v, bias=0, sinks=None, causal=False, window=0, softcap=0, scale=None):
        score = q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1]))
        score = (softcap * torch.tanh(score / softcap) if softcap else score) + bias
        distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
        hidden = (distance < 0) & causal | (distance >= window) & (window > 0)
        score = score.masked_fill(hidden, -math.inf)
        if sinks is not None:
            score = torch.cat((score, sinks.reshape(1, -1, 1, 1).expand(*score.shape[:3], 1)), -1)
        return score.softmax(-1)[..., :k.shape[2]] @ v

    def loss(w, tokens):
        g, probe = w["given.weight"][tokens], w["probe.weight"][tokens]
        q, k, v = heads(g[..., 0:16], 2), heads(g[..., 16:24], 1), heads(g[..., 24:36], 1)
        k2, v2, p, p2 = (heads(x, 2) for x in (g[..., 16:32], g[..., 32:48], probe, probe[..., 0:16]))
        numbers, rows = w["distance"], heads(g[..., 48:50], 2)
        whole = skewed(numbers, 40, 40)
        alibi = -w["slopes"] * (torch.arange(40)[:, None] - torch.arange(40)).abs()
        results = [
            (attention(q, k, v, w["bias"]), p),
            (attention(q, k, v, whole, w["sinks"], causal=True), p),
            (attention(q, k2, v2, sinks=w["sinks"], causal=True, window=9), p2),
            (attention(q, k2, v2, rows + rows.mT, softcap=2, scale=0.7), p2),
            (attention(q, k2, v2, alibi, causal=True), p2),
            (attention(q[:, :, :17], k2, v2, skewed(numbers[..., 23:], 17, 40)), p2[:, :, :17]),
            (attention(q, k2[:, :, :17], v2[:, :, :17], whole[..., :17]), p2)]
        x, empty = g[..., 0:24], torch.zeros(1, 1, 40, 40).double()
        hidden = torch.ones(40, 40).triu(1).double() * -1e9
        encoded = call(w, "layer", x, position_bias=call(w, "position", method="bias"))[0]
        before = call(w, "before", method="bias") + hidden
        decoded = call(w, "decoder", x, position_bias=before, encoder_hidden_states=encoded,
                       encoder_decoder_position_bias=empty)[0]
        from transformers.models.bloom.modeling_bloom import build_alibi_tensor
        slopes = build_alibi_tensor(torch.ones(2, 40), 6, torch.float64)
        bloom = call(w, "bloom", x, slopes, hidden[None, None])[0]
        own = {part: heads(x @ w[f"dropped.{part}.weight"].T, 3) for part in "qkv"}
        again = attention(own["q"], own["k"], own["v"], call(w, "again", method="bias"), scale=1)
        again = again.transpose(1, 2).flatten(2) @ w["dropped.o.weight"].T
        results += [(encoded, probe), (decoded, probe), (bloom, probe), (again, probe)]
        return sum((y * p).mean() for y, p in results)

    case.write(loss)


def words():
    shapes = {"given.weight": (24, 96), "probe.weight": (24, 480), "up.weight": (8, 3, 3, 3), "up.bias": (3,),
              "wide.weight": (8, 4, 2, 4), "row": (1, 96), "matrix": (12, 5), "scale": (6, 12, 3)}
    for name in ("self", "cross"):
        shapes.update({f"{name}.in_proj_weight": (72, 24), f"{name}.out_proj.weight": (24, 24)})
    shapes.update({"self.in_proj_bias": (72,), "self.out_proj.bias": (24,)})
    case = Case("words", 4, 6, shapes)
    modules = {"self": torch.nn.MultiheadAttention(24, 4, batch_first=True).double(),
               "cross": torch.nn.MultiheadAttention(24, 3, bias=False, batch_first=True).double()}

    def attend_by(w, name, *given):
        own = {key: w[f"{name}.{key}"] for key, _ in modules[name].named_parameters()}
        return torch.func.functional_call(modules[name], own, given, {"need_weights": False})[0]

    def loss(w, tokens):
        g, probe = w["given.weight"][tokens], w["probe.weight"][tokens].flatten(1)
        n, cube, image, rows = len(g), g.reshape(-1, 6, 8, 12), g.reshape(-1, 8, 8, 9), g.reshape(-1, 24, 24)
        x = g[..., :24]
        added = torch.stack([torch.zeros(24, 96).double().index_add(0, tokens[i], g[i]) for i in range(n)])
        row = w["row"].expand(n, 1, 96)
        results = [
            g * g.sign() + g * (3 * g).floor() + g * (3 * g).round(), g.cumsum(-1), g.cumsum(1), g[..., 3::5],
            g[:, ::2], torch.stack([rows[i].index_select(0, tokens[i]) for i in range(n)]), added,
            cube.sum((1, 3), keepdim=True), cube.sum((-1, 2)), cube.amax(2), cube.mean((1, 2), keepdim=True),
            F.interpolate(image[:, :4], scale_factor=2), F.interpolate(image, size=(5, 7)),
            F.interpolate(image[:, :4], scale_factor=2, mode="bilinear"),
            F.interpolate(image, size=(3, 13), mode="bilinear"),
            F.conv_transpose2d(image, w["up.weight"], w["up.bias"]),
            F.conv_transpose2d(image[..., :4, :5], w["wide.weight"], stride=2, padding=(0, 1), output_padding=1,
                               dilation=(2, 1)),
            attend_by(w, "self", x, x, x), attend_by(w, "cross", x, rows, rows), torch.cat((row, g, row), 1),
            torch.einsum("zijk->zki", cube), torch.einsum("zijk,zijl->zikl", cube, cube),
            torch.einsum("zijk,km->zmji", cube, w["matrix"]), torch.einsum("km,zijk->zim", w["matrix"], cube),
            torch.einsum("zijk,ikm->zijm", cube, w["scale"]), torch.einsum("ziw,zvw,zvu->zui", x, rows, rows),
            torch.einsum("zi,zj->zji", g[:, 0, :6], g[:, 1, :7]), g[:, 0, 0] * probe[:, 0]]
        total = sum((y.flatten(1) * probe[:, :y[0].numel()]).mean() for y in results[:-1])
        return total + results[-1].mean()

    case.write(loss)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"])


def rms_norm(w, name, x, eps=1e-5):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * w[name + ".weight"]


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def layers():
    case = Case("layers", 4, 4, {
        "given.weight": (16, 260), "probe.weight": (16, 240), "fc.weight": (20, 20), "fc.bias": (20,),
        "plain.weight": (20, 20), "ln.weight": (20,), "ln.bias": (20,), "rms.weight": (20,),
        "wpe.weight": (4, 20), "head.weight": (16, 20), "head.bias": (16,)})
    following = torch.arange(16).flip(0).reshape(4, 4)

    def loss(w, tokens):
        g, p = w["given.weight"][tokens].split(20, -1), w["probe.weight"][tokens].split(20, -1)
        results = [
            g[0].softmax(-1), g[1].relu(), g[2].sigmoid(), F.silu(g[3]), F.gelu(g[4]), gelu_tanh(g[5]),
            linear(w, "fc", g[6]), g[7] @ w["plain.weight"], layer_norm(w, "ln", g[8]),
            rms_norm(w, "rms", g[9], 1e-6), g[10] + w["wpe.weight"], g[11].mean(-1, keepdim=True)]
        total = sum(a * b for a, b in zip(p, results)).mean()
        logits = linear(w, "head", g[12])
        total = total + F.cross_entropy(logits.flatten(0, 1), following.flatten())
        return total + F.mse_loss(g[12], p[0].detach())

    case.write(loss, following)


def activations():
    case = Case("activations", 4, 4, {"given.weight": (16, 120), "probe.weight": (16, 120)})
    given = case.w["given.weight"]
    given[...] *= numpy.array([1, 1, 4, 30], numpy.float32)[numpy.arange(16) % 4, None]
    given[3, ::3] = 0

    def loss(w, tokens):
        g, p = w["given.weight"][tokens].split(20, -1), w["probe.weight"][tokens].split(20, -1)
        results = [
            F.leaky_relu(g[0]), F.leaky_relu(g[1], 0.25), F.elu(g[2]), F.elu(g[3], 0.5),
            F.softplus(g[4]), F.softplus(g[5], 3)]
        return sum(a * b for a, b in zip(p, results)).mean()

    case.write(loss)


def extras():
    case = Case("extras", 4, 4, {
        "given.weight": (16, 560), "probe.weight": (16, 560), "slope.weight": (1,), "slopes.weight": (4,),
        "groups.weight": (4,), "groups.bias": (4,), "image.weight": (8,), "image.bias": (8,), "learned.weight": (4,),
        "learned.bias": (4,), "signal.weight": (4, 4, 3), "signal.bias": (4,), "wide.weight": (4, 2, 5), "wide.bias": (4,),
        "narrow.weight": (4, 4, 4)})

    def loss(w, tokens):
        g, p = w["given.weight"][tokens].split(20, -1), w["probe.weight"][tokens].split(20, -1)
        conv = lambda name, x, **options: F.conv1d(x, w[name + ".weight"], w.get(name + ".bias"), **options)
        image = F.group_norm(g[15].reshape(4, 8, 2, 5), 4, w["image.weight"], w["image.bias"], 1e-3)
        results = [
            g[0].logsumexp(-1, keepdim=True), g[1].log_softmax(-1), g[2].clamp(-0.5, 0.75), g[3].clamp(min=0.25),
            F.hardtanh(g[4]), F.relu6(4 * g[5]), F.hardsigmoid(2 * g[6]), F.hardswish(2 * g[7]), F.mish(g[8]),
            F.softsign(g[9]), F.logsigmoid(20 * g[10]), F.selu(g[11]), F.prelu(g[12], w["slope.weight"]),
            F.prelu(g[13], w["slopes.weight"]), F.group_norm(g[14], 2, w["groups.weight"], w["groups.bias"]),
            image.reshape(4, 4, 20), F.instance_norm(g[16]),
            F.instance_norm(g[17], weight=w["learned.weight"], bias=w["learned.bias"]), F.normalize(g[18], dim=-1),
            F.cosine_similarity(g[19], g[20], dim=-1)[..., None], conv("signal", g[21], padding=1),
            F.pad(conv("wide", g[22], stride=2, padding=2, dilation=2, groups=2), (0, 12)),
            F.pad(conv("narrow", g[23]), (0, 3)), g[24]]
        total = sum(a * b for a, b in zip(p, results)).mean()
        target, chance = p[24].detach(), p[25].sigmoid()
        total = total + F.l1_loss(g[25], target) + F.huber_loss(g[25], target, delta=0.6)
        total = total + F.smooth_l1_loss(g[26], target) + F.smooth_l1_loss(g[26], target, beta=0.3)
        with_logits = F.binary_cross_entropy_with_logits
        total = total + with_logits(30 * g[27], chance)
        total = total + with_logits(g[27], chance, pos_weight=torch.tensor(2.5, dtype=torch.double))
        logs = g[27].log_softmax(-1)
        total = total + F.kl_div(logs, p[26].relu(), reduction="mean")
        return total + F.kl_div(logs, p[27].log_softmax(-1), reduction="mean", log_target=True)

    case.write(loss)


def sequence():
    case = Case("sequence", 4, 6, {
        "given.weight": (24, 28), "probe.weight": (24, 40), "table.weight": (24, 12),
        "attend.query_proj.weight": (10, 12), "attend.query_proj.bias": (10,),
        "attend.key_proj.weight": (10, 16), "attend.score_proj.weight": (1, 10), "head.weight": (24, 28),
        "head.bias": (24,)})
    case.w["table.weight"][5] = 0
    following = (torch.arange(24) * 7 // 2 % 24).reshape(4, 6)

    def additive_attention(w, query, memory):
        summed = linear(w, "attend.query_proj", query)[:, :, None] + linear(w, "attend.key_proj", memory)[:, None]
        return linear(w, "attend.score_proj", summed.tanh()).squeeze(-1).softmax(-1) @ memory

    def loss(w, tokens):
        given, probe = w["given.weight"][tokens], w["probe.weight"][tokens]
        padded = F.embedding(following, w["table.weight"], padding_idx=5)
        total = (padded * probe[..., 0:12]).mean()
        attended = additive_attention(w, given[:, 2:5, 0:12], given[..., 12:28])
        total = total + (attended * probe[:, 0:3, 12:28]).mean()
        labels = following.flatten()
        logits = linear(w, "head", given).flatten(0, 1)
        total = total + F.cross_entropy(logits, labels, label_smoothing=0.1)
        return total + 0.5 * F.cross_entropy(probe[..., 0:24].flatten(0, 1), labels, label_smoothing=1.0)

    case.write(loss, following)


def split_heads(x, n):
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).flatten(2)


def self_attention(q, k, v, n_head, n_kv_head, causal, turn=lambda x: x):
    q, k, v = turn(split_heads(q, n_head)), turn(split_heads(k, n_kv_head)), split_heads(v, n_kv_head)
    k, v = (x.repeat_interleave(n_head // n_kv_head, 1) for x in (k, v))
    return merge_heads(attend(q, k, v, causal, 1 / math.sqrt(q.shape[-1])))


def rotary(x, base=10000.0):
    """Llama's rotation of the pairs (i, i + size / 2); x is [samples, heads, length, size]."""
    length, half = x.shape[-2], x.shape[-1] // 2
    frequency = base ** (-torch.arange(half).double() / half)
    angle = torch.outer(torch.arange(length).double(), frequency)
    a, b = x.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def blocks():
    shapes = {"given.weight": (40, 80), "probe.weight": (40, 16)}
    for name, rows, columns in (
            ("h.attn.c_attn", 48, 16), ("h.attn.c_proj", 16, 16), ("h.mlp.c_fc", 64, 16),
            ("h.mlp.c_proj", 16, 64), ("attn.c_query", 16, 16), ("attn.c_attn", 16, 16),
            ("attn.c_proj", 16, 16), ("ff.c_fc", 20, 16),
            ("ff.c_proj", 16, 20)):
        shapes.update({name + ".weight": (rows, columns), name + ".bias": (rows,)})
    for name in ("h.ln_1", "h.ln_2"):
        shapes.update({name + ".weight": (16,), name + ".bias": (16,)})
    for name in ("layer.input_layernorm", "layer.post_attention_layernorm"):
        shapes[name + ".weight"] = (16,)
    for name, rows, columns in (
            ("layer.self_attn.q_proj", 16, 16), ("layer.self_attn.k_proj", 8, 16),
            ("layer.self_attn.v_proj", 8, 16), ("layer.self_attn.o_proj", 16, 16),
            ("layer.mlp.gate_proj", 24, 16), ("layer.mlp.up_proj", 24, 16),
            ("layer.mlp.down_proj", 16, 24)):
        shapes[name + ".weight"] = (rows, columns)
    case = Case("blocks", 4, 10, shapes)
    for name, array in case.w.items():  # operands of size 1, weights that keep it
        if name.split(".")[0] not in ("given", "probe"):
            array *= 1 / math.sqrt(array.shape[-1])

    def feed_forward(w, name, x):
        return linear(w, name + ".c_proj", gelu_tanh(linear(w, name + ".c_fc", x)))

    def transformer_block(w, x):
        qkv = linear(w, "h.attn.c_attn", layer_norm(w, "h.ln_1", x)).chunk(3, -1)
        x = x + linear(w, "h.attn.c_proj", self_attention(*qkv, 2, 2, True))
        return x + feed_forward(w, "h.mlp", layer_norm(w, "h.ln_2", x))

    def grouped_attention(w, x):
        k, v = linear(w, "attn.c_attn", x).chunk(2, -1)
        return linear(w, "attn.c_proj", self_attention(linear(w, "attn.c_query", x), k, v, 4, 2, False))

    def llama_block(w, x):
        h = rms_norm(w, "layer.input_layernorm", x)
        q, k, v = (linear(w, f"layer.self_attn.{part}_proj", h) for part in "qkv")
        x = x + linear(w, "layer.self_attn.o_proj", self_attention(q, k, v, 4, 2, True, rotary))
        h = rms_norm(w, "layer.post_attention_layernorm", x)
        gated = F.silu(linear(w, "layer.mlp.gate_proj", h)) * linear(w, "layer.mlp.up_proj", h)
        return x + linear(w, "layer.mlp.down_proj", gated)

    def loss(w, tokens):
        g, p = w["given.weight"][tokens].split(16, -1), w["probe.weight"][tokens]
        results = [transformer_block(w, g[0]), grouped_attention(w, g[1]), feed_forward(w, "ff", g[2]),
                   llama_block(w, g[3]), merge_heads(rotary(split_heads(g[4], 2), 100.0))]
        return sum((y * p).mean() for y in results)

    case.write(loss)


def lstms():
    modules = {"one": torch.nn.LSTM(12, 5), "packed": torch.nn.LSTM(12, 5, bias=False),
               "both": torch.nn.LSTM(12, 4, 2, bidirectional=True),
               "from": torch.nn.LSTM(12, 4, 2, bidirectional=True), "after": torch.nn.LSTM(8, 17, 2)}
    shapes = {"given.weight": (24, 12), "probe.weight": (24, 76)}
    for name, module in modules.items():
        shapes.update({f"{name}.{key}": tuple(p.shape) for key, p in module.named_parameters()})
    case = Case("lstms", 4, 6, shapes)
    for name, array in case.w.items():
        if name.split(".")[0] not in ("given", "probe"):
            array *= 0.5
    lengths = torch.tensor([6, 3, 1, 5])

    def run(w, name, x, state=None, packed=False):
        """torch.nn.LSTM's own function on our weights, samples first."""
        module, own = modules[name], [w[f"{name}.{key}"] for key, _ in modules[name].named_parameters()]
        directions = 2 if module.bidirectional else 1
        if state is None:
            zeros = torch.zeros(directions * module.num_layers, 4, module.hidden_size).double()
            state = (zeros, zeros)
        form = (own, module.bias, module.num_layers, 0.0, True, module.bidirectional)
        if not packed:
            y, h, c = torch.lstm(x, state, *form, True)
            return y, h, c
        x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, h, c = torch.lstm(x.data, x.batch_sizes, [a[:, x.sorted_indices] for a in state], *form)
        y = torch.nn.utils.rnn.PackedSequence(y, x.batch_sizes, x.sorted_indices, x.unsorted_indices)
        y = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=6)[0]
        return y, h[:, x.unsorted_indices], c[:, x.unsorted_indices]

    def loss(w, tokens):
        given, p = w["given.weight"][tokens], w["probe.weight"][tokens]

        def weigh(x, first):  # x[layers, samples, width] of states; y is [samples, length, width]
            x = x.transpose(0, 1)
            return x * p[:, :x.shape[1], first:first + x.shape[2]]

        y, h, c = run(w, "one", given)
        total = (y * p[..., 0:5]).mean() + (weigh(h, 5) + weigh(c, 10)).mean()
        y, h, c = run(w, "packed", given, packed=True)
        total = total + (y * p[..., 15:20]).mean() + (weigh(h, 20) + weigh(c, 25)).mean()
        y, h, c = run(w, "both", given, packed=True)
        total = total + (y * p[..., 30:38]).mean() + (weigh(h, 38) + weigh(c, 42)).mean()
        y, h, c = run(w, "from", given, (h, c), packed=True)
        total = total + (y * p[..., 46:54]).mean() + weigh(h, 54).mean()
        y, h, c = run(w, "after", y)
        return total + (y * p[..., 54:71]).mean()

    case.write(loss, lengths.reshape(4, 1))


def recurrences():
    modules = {"one": torch.nn.GRU(12, 5), "packed": torch.nn.GRU(12, 5, bias=False),
               "both": torch.nn.GRU(12, 4, 2, bidirectional=True),
               "from": torch.nn.GRU(12, 4, 2, bidirectional=True), "after": torch.nn.GRU(8, 17, 2),
               "simple": torch.nn.RNN(12, 4, bidirectional=True), "relus": torch.nn.RNN(12, 7, 2, nonlinearity="relu"),
               "learned": torch.nn.GRU(12, 5)}
    shapes = {"given.weight": (24, 12), "probe.weight": (24, 95), "start": (1, 5)}
    for name, module in modules.items():
        shapes.update({f"{name}.{key}": tuple(p.shape) for key, p in module.named_parameters()})
    case = Case("recurrences", 4, 6, shapes)
    for name, array in case.w.items():
        if name.split(".")[0] not in ("given", "probe"):
            array *= 0.5
    lengths = torch.tensor([6, 3, 1, 5])

    def run(w, name, x, state=None, packed=False):
        """The module's own function on our weights, samples first."""
        module, own = modules[name], [w[f"{name}.{key}"] for key, _ in modules[name].named_parameters()]
        function = torch.gru if module.mode == "GRU" else torch.rnn_tanh if module.mode == "RNN_TANH" else torch.rnn_relu
        if state is None:
            state = torch.zeros((1 + module.bidirectional) * module.num_layers, 4, module.hidden_size).double()
        form = (own, module.bias, module.num_layers, 0.0, True, module.bidirectional)
        if not packed:
            return function(x, state, *form, True)
        x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, h = function(x.data, x.batch_sizes, state[:, x.sorted_indices], *form)
        y = torch.nn.utils.rnn.PackedSequence(y, x.batch_sizes, x.sorted_indices, x.unsorted_indices)
        y = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=6)[0]
        return y, h[:, x.unsorted_indices]

    def loss(w, tokens):
        given, p = w["given.weight"][tokens], w["probe.weight"][tokens]

        def weigh(x, first):  # x[layers, samples, width] of states; y is [samples, length, width]
            x = x.transpose(0, 1)
            return (x * p[:, :x.shape[1], first:first + x.shape[2]]).mean()

        y, h = run(w, "one", given)
        total = (y * p[..., 0:5]).mean() + weigh(h, 5)
        y, h = run(w, "packed", given, packed=True)
        total = total + (y * p[..., 15:20]).mean() + weigh(h, 20)
        y, h = run(w, "both", given, packed=True)
        total = total + (y * p[..., 30:38]).mean() + weigh(h, 38)
        y, h = run(w, "from", given, h, packed=True)
        total = total + (y * p[..., 46:54]).mean() + weigh(h, 54)
        y, h = run(w, "after", y)
        total = total + (y * p[..., 54:71]).mean()
        y, h = run(w, "simple", given, packed=True)
        total = total + (y * p[..., 71:79]).mean() + weigh(h, 79)
        y, h = run(w, "relus", given)
        total = total + (y * p[..., 83:90]).mean()
        y, h = run(w, "learned", given, w["start"][:, None].expand(1, 4, 5).contiguous())
        return total + (y * p[..., 90:95]).mean()

    case.write(loss, lengths.reshape(4, 1))


def mamba():
    def shapes_of(name, width, n, d_conv, inner, rank):
        return {f"{name}.in_proj.weight": (2 * inner, width), f"{name}.conv1d.weight": (inner, 1, d_conv),
                f"{name}.conv1d.bias": (inner,), f"{name}.x_proj.weight": (rank + 2 * n, inner),
                f"{name}.dt_proj.weight": (inner, rank), f"{name}.dt_proj.bias": (inner,), f"{name}.A_log": (inner, n),
                f"{name}.D": (inner,), f"{name}.out_proj.weight": (width, inner)}

    case = Case("mamba", 4, 6, {"given.weight": (24, 12), "probe.weight": (24, 40), "two.norm.weight": (12,),
                                **shapes_of("one", 12, 4, 4, 24, 1), **shapes_of("two.mixer", 12, 3, 4, 24, 1)})

    def selective_scan(x, delta, a, b, c):
        h, y = 0, []
        for t in range(x.shape[1]):
            step = delta[:, t, :, None]
            h = torch.exp(step * a) * h + step * x[:, t, :, None] * b[:, t, None]
            y.append((h * c[:, t, None]).sum(-1))
        return torch.stack(y, 1), h

    def mixer(w, name, x, n, d_conv):
        p = {key[len(name) + 1:]: value for key, value in w.items() if key.startswith(name + ".")}
        inner, rank = p["D"].shape[0], p["dt_proj.weight"].shape[1]
        h, gate = (x @ p["in_proj.weight"].T).chunk(2, -1)
        h = F.conv1d(h.mT, p["conv1d.weight"], p["conv1d.bias"], padding=d_conv - 1, groups=inner)[..., :x.shape[1]].mT
        h = F.silu(h)
        delta, b, c = (h @ p["x_proj.weight"].T).split([rank, n, n], -1)
        delta = F.softplus(delta @ p["dt_proj.weight"].T + p["dt_proj.bias"])
        y = selective_scan(h, delta, -torch.exp(p["A_log"]), b, c)[0] + h * p["D"]
        return (y * F.silu(gate)) @ p["out_proj.weight"].T

    def loss(w, tokens):
        x, p = w["given.weight"][tokens], w["probe.weight"][tokens]
        total = (mixer(w, "one", x, 4, 4) * p[..., 0:12]).mean()
        normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w["two.norm.weight"]
        total = total + ((x + mixer(w, "two.mixer", normed, 3, 4)) * p[..., 12:24]).mean()
        a = -torch.exp(x[:, 0:1, 0:3].expand(-1, 12, -1))
        y, last = selective_scan(x, x * x, a, p[..., 24:27], p[..., 27:30])
        return total + (y * p[..., 28:40]).mean() + (last * p[:, 0:3, 28:40].mT).mean()

    case.write(loss)


def rwkv():
    def block_of(name, first):
        shapes = {f"{name}.ln1.weight": (12,), f"{name}.ln1.bias": (12,), f"{name}.ln2.weight": (12,),
                  f"{name}.ln2.bias": (12,), f"{name}.ffn.x_k": (1, 1, 12), f"{name}.ffn.key.weight": (20, 12),
                  f"{name}.ffn.value.weight": (12, 20), f"{name}.att.r_k": (3, 4),
                  f"{name}.att.ln_x.weight": (12,), f"{name}.att.ln_x.bias": (12,)}
        vectors = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g", "w0", "a0", "k_k", "k_a"] + ([] if first else ["v0"])
        shapes.update({f"{name}.att.{key}": (1, 1, 12) for key in vectors})
        for key in "wag" if first else "wagv":
            shapes.update({f"{name}.att.{key}1": (12, 32), f"{name}.att.{key}2": (32, 12)})
        shapes.update({f"{name}.att.{key}.weight": (12, 12) for key in ("receptance", "key", "value", "output")})
        return shapes

    def mamba2_of(name, inner, n, groups, heads):
        channels = inner + 2 * groups * n
        return {f"{name}.in_proj.weight": (inner + channels + heads, 12), f"{name}.conv1d.weight": (channels, 1, 4),
                f"{name}.conv1d.bias": (channels,), f"{name}.dt_bias": (heads,), f"{name}.A_log": (heads,),
                f"{name}.D": (heads,), f"{name}.norm.weight": (inner,), f"{name}.out_proj.weight": (12, inner)}

    case = Case("rwkv", 4, 8, {
        "given.weight": (32, 12), "probe.weight": (32, 90), **block_of("one", True), **block_of("two", False),
        **mamba2_of("rows", 16, 3, 2, 4), **mamba2_of("chunks", 16, 3, 2, 4), "wide.norm.weight": (12,),
        **mamba2_of("wide.mixer", 24, 5, 1, 4), "small.linear_z.weight": (7, 12), "small.linear_z.bias": (7,),
        "small.linear_h.weight": (7, 12), "small.linear_h.bias": (7,), "real.recurrent_param": (12,),
        "real.input_gate_weight": (3, 4, 4), "real.input_gate_bias": (3, 4), "real.recurrent_gate_weight": (3, 4, 4),
        "real.recurrent_gate_bias": (3, 4)})
    for key, array in case.w.items():
        if key.split(".")[0] not in ("given", "probe"):
            array *= 0.4

    def part(w, name):
        return {key[len(name) + 1:]: value for key, value in w.items() if key.startswith(name + ".")}

    def shifted(x):
        return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)

    def time_mix(p, x, v_first, heads=3):
        """Section 4 of the paper, with a loop over positions."""
        samples, length, width = x.shape
        mixed = {key: x + (shifted(x) - x) * p[f"x_{key}"] for key in "rwkvag"}
        r, k, v = mixed["r"] @ p["receptance.weight"].T, mixed["k"] @ p["key.weight"].T, mixed["v"] @ p["value.weight"].T
        w = -F.softplus(-(p["w0"] + torch.tanh(mixed["w"] @ p["w1"]) @ p["w2"])) - 0.5
        if v_first is None:
            v_first = v
        else:
            v = v + (v_first - v) * torch.sigmoid(p["v0"] + (mixed["v"] @ p["v1"]) @ p["v2"])
        a = torch.sigmoid(p["a0"] + (mixed["a"] @ p["a1"]) @ p["a2"])
        g = torch.sigmoid(mixed["g"] @ p["g1"]) @ p["g2"]
        kk = F.normalize((k * p["k_k"]).view(samples, length, heads, -1), dim=-1).view(samples, length, width)
        k = k * (1 + (a - 1) * p["k_a"])
        rows = [t.view(samples, length, heads, -1) for t in (r, torch.exp(-torch.exp(w)), k, v, -kk, kk * a)]
        state, y = torch.zeros(samples, heads, width // heads, width // heads).double(), []
        for t in range(length):
            r_t, w_t, k_t, v_t, a_t, b_t = (z[:, t] for z in rows)
            state = (state * w_t[:, :, None] + (state @ a_t[..., None]) @ b_t[:, :, None]
                     + v_t[..., None] @ k_t[:, :, None])
            y.append((state @ r_t[..., None])[..., 0])
        y = torch.stack(y, 1)
        flat = y.reshape(samples * length, width)
        flat = F.group_norm(flat, heads, p["ln_x.weight"], p["ln_x.bias"], 1e-5 * (width // heads))
        bonus = (rows[0] * rows[2] * p["r_k"]).sum(-1, keepdim=True) * rows[3]
        y = flat.view(samples, length, width) + bonus.reshape(samples, length, width)
        return (y * g) @ p["output.weight"].T, v_first

    def block(w, name, x, v_first):
        p = part(w, name)
        y, v_first = time_mix(part(p, "att"), F.layer_norm(x, (12,), p["ln1.weight"], p["ln1.bias"]), v_first)
        x = x + y
        h = F.layer_norm(x, (12,), p["ln2.weight"], p["ln2.bias"])
        h = torch.relu((h + (shifted(h) - h) * p["ffn.x_k"]) @ p["ffn.key.weight"].T) ** 2
        return x + h @ p["ffn.value.weight"].T, v_first

    def mamba2(w, name, x, n, size, groups):
        p = part(w, name)
        inner, heads = p["norm.weight"].shape[0], p["D"].shape[0]
        gate, h, step = (x @ p["in_proj.weight"].T).split([inner, inner + 2 * groups * n, heads], -1)
        h = F.conv1d(h.mT, p["conv1d.weight"], p["conv1d.bias"], padding=3, groups=h.shape[-1])[..., :x.shape[1]].mT
        h, b, c = F.silu(h).split([inner, groups * n, groups * n], -1)
        h = h.view(4, -1, heads, size)
        b, c = (t.view(4, -1, groups, n).repeat_interleave(heads // groups, 2) for t in (b, c))
        step, state, y = F.softplus(step + p["dt_bias"]), 0, []
        for t in range(x.shape[1]):
            decay = torch.exp(step[:, t] * -torch.exp(p["A_log"]))[..., None, None]
            state = decay * state + (step[:, t, :, None] * h[:, t])[..., None] * b[:, t, :, None]
            y.append((state * c[:, t, :, None]).sum(-1))
        y = (torch.stack(y, 1) + h * p["D"][:, None]).reshape(4, -1, inner) * F.silu(gate)
        parts = y.view(4, -1, groups, inner // groups)
        y = (parts * torch.rsqrt((parts * parts).mean(-1, keepdim=True) + 1e-5)).view(y.shape)
        return (y * p["norm.weight"]) @ p["out_proj.weight"].T

    def rg_lru(p, x):
        heads = x.view(4, -1, 3, 4)
        i = torch.sigmoid(torch.einsum("nlhi,hij->nlhj", heads, p["input_gate_weight"]) + p["input_gate_bias"])
        r = torch.sigmoid(torch.einsum("nlhi,hij->nlhj", heads, p["recurrent_gate_weight"]) + p["recurrent_gate_bias"])
        log_a = -8 * r.reshape(x.shape) * F.softplus(p["recurrent_param"])
        h, y = 0, []
        for t in range(x.shape[1]):
            scale = torch.sqrt(1 - torch.exp(2 * log_a[:, t])) if t else 1
            h = torch.exp(log_a[:, t]) * h + scale * (i.reshape(x.shape) * x)[:, t]
            y.append(h)
        return torch.stack(y, 1)

    def loss(w, tokens):
        x, p = w["given.weight"][tokens], w["probe.weight"][tokens]
        y, v_first = block(w, "one", x, None)
        total = (y * p[..., 0:12]).mean() + (block(w, "two", x, v_first)[0] * p[..., 12:24]).mean()
        total = total + (mamba2(w, "rows", x, 3, 4, 2) * p[..., 24:36]).mean()
        total = total + (mamba2(w, "chunks", x, 3, 4, 2) * p[..., 36:48]).mean()
        normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w["wide.norm.weight"]
        total = total + ((x + mamba2(w, "wide.mixer", normed, 5, 6, 1)) * p[..., 48:60]).mean()
        z = torch.sigmoid(F.linear(x, w["small.linear_z.weight"], w["small.linear_z.bias"]))
        new, h, y = F.linear(x, w["small.linear_h.weight"], w["small.linear_h.bias"]), 0, []
        for t in range(8):
            h = (1 - z[:, t]) * h + z[:, t] * new[:, t]
            y.append(h)
        total = total + (torch.stack(y, 1) * p[..., 60:67]).mean() + (h * p[:, 0, 67:74]).mean()
        return total + (rg_lru(part(w, "real"), x) * p[..., 74:86]).mean()

    case.write(loss)


def sequences():
    names = ("start_transitions", "end_transitions", "transitions")
    shapes = {"given.weight": (37, 24), "probe.weight": (37, 9)}
    for crf in ("one", "two"):
        shapes.update(zip((f"{crf}.{name}" for name in names), ((7,), (7,), (7, 7))))
    case = Case("sequences", 4, 9, shapes)
    all_tokens = case.tokens()
    rows = torch.tensor([9, 6, 4, 7])  # the third sample's targets need five rows
    for tokens, n in zip(all_tokens, rows):
        tokens[n:] = 36
    case.tokens = lambda: all_tokens
    labels = torch.tensor([[3, 3, 1, 0], [2, 0, 0, 0], [5, 4, 4, 1], [1, 2, 5, 0]])
    n_labels = torch.tensor([3, 1, 4, 3])

    def ctc(x, **options):
        return F.ctc_loss(F.log_softmax(x, -1).transpose(0, 1), labels, reduction="none", **options)

    def crf(w, name, emissions, lengths):
        """-log of the labels' probability, and the best score through each row and tag, over all sequences."""
        start, end, pairs = (w[f"{name}.{key}"] for key in names)
        negative, best = [], torch.full((4, 4, 7), -math.inf).double()
        for s, n in enumerate(lengths.tolist()):
            paths = torch.cartesian_prod(*[torch.arange(7)] * n).reshape(-1, n)
            score = start[paths[:, 0]] + end[paths[:, -1]] + emissions[s, range(n), paths].sum(-1)
            score = score + pairs[paths[:, :-1], paths[:, 1:]].sum(-1)
            is_given = (paths == labels[s, :n]).all(-1)
            negative.append(score.logsumexp(0) - score[is_given][0])
            for row in range(n):
                for tag in range(7):
                    best[s, row, tag] = score[paths[:, row] == tag].max().detach()
        return torch.stack(negative), best

    def loss(w, tokens):
        given, p = w["given.weight"][tokens], w["probe.weight"][tokens]
        value = ctc(given[..., :8], input_lengths=rows, target_lengths=n_labels, zero_infinity=True)
        total = (value / n_labels * p[:, 0, 0]).mean()
        nine, four = torch.full((4,), 9), torch.full((4,), 4)
        total = total + (ctc(given[..., 8:16], input_lengths=nine, target_lengths=four, blank=6) * p[:, 0, 1]).mean()
        z, _ = crf(w, "one", given[:, :4, 16:23], n_labels)
        total = total + (z * p[:, 1, 0]).mean()
        z, best = crf(w, "two", given[:, :4, 17:], four)
        return total + (z / 4 * p[:, 1, 1]).mean() + (best * p[:, :4, 2:9]).mean()

    case.write(loss, labels)


def experts():
    shapes = {"given.weight": (40, 28), "probe.weight": (40, 69), "mixture.gate.weight": (6, 10),
              "mixture.experts.gate_up_proj": (6, 14, 10), "mixture.experts.down_proj": (6, 10, 7),
              "bounded.gate.weight": (6, 10), "bounded.experts.gate_up_proj": (6, 14, 10),
              "bounded.experts.down_proj": (6, 10, 7),
              "mlp.up_proj": (4, 9, 8), "mlp.down_proj": (4, 8, 9)}
    case = Case("experts", 4, 10, shapes)
    scores = case.w["given.weight"][:, 16:]
    scores[...] = numpy.round(scores * 2) / 2  # many are equal

    def largest(x, k):
        """Of equal elements the lower index first, which torch.topk does not promise."""
        values, order = x.sort(dim=-1, descending=True, stable=True)
        return values[..., :k], order[..., :k]

    def mixed(x, weights, chosen, n, expert):
        """Every expert of every row, and zeros as the weights of those that are not chosen."""
        dense = torch.zeros(*weights.shape[:-1], n).double().scatter(-1, chosen, weights)
        return sum(dense[..., i:i + 1] * expert(i, x) for i in range(n))

    def loss(w, tokens):
        given, p = w["given.weight"][tokens], w["probe.weight"][tokens]
        scores = given[..., 16:]
        values, at = largest(scores, 5)
        total = (values * p[..., 0:5]).mean() + (F.one_hot(at[..., 2], 12) * scores * p[..., 5:17]).mean()
        total = total + (largest(scores, 12)[0] * p[..., 17:29]).mean()
        total = total + (F.one_hot(largest(scores, 1)[1][..., 0], 12) * scores * p[..., 47:59]).mean()

        def gated(i, x, of="mixture"):
            gate, up = F.linear(x, w[of + ".experts.gate_up_proj"][i]).chunk(2, -1)
            return F.linear(F.silu(gate) * up, w[of + ".experts.down_proj"][i])

        x = given[..., :10]
        logits = F.linear(x, w["mixture.gate.weight"])
        every = logits.softmax(-1)
        weights, chosen = largest(every, 2)
        y = mixed(x, weights / weights.sum(-1, keepdim=True), chosen, 6, gated)
        total = total + (y * p[..., 29:39]).mean() + 0.01 * logits.logsumexp(-1).square().mean()
        shares = F.one_hot(chosen, 6).double().mean(1).sum(1)
        total = total + 0.1 * 6 * (shares * every.mean(1)).sum(-1).mean()

        # Each expert has room for ceil(0.8 * 10 * 2 / 6) = 3 rows of a sample, in the order of positions and choices.
        weights, chosen = largest(F.linear(x, w["bounded.gate.weight"]).softmax(-1), 2)
        rank = F.one_hot(chosen.flatten(1), 6).cumsum(1).gather(2, chosen.flatten(1)[..., None]).reshape(chosen.shape)
        weights = weights / weights.sum(-1, keepdim=True) * (rank <= 3)
        y = mixed(x, weights, chosen, 6, lambda i, x: gated(i, x, "bounded"))
        total = total + (y * p[..., 59:69]).mean() + (rank > 3).double().mean()
        assert 0.1 < (rank > 3).double().mean() < 0.5

        def plain(i, x):
            return F.linear(F.gelu(F.linear(x, w["mlp.up_proj"][i])), w["mlp.down_proj"][i])

        weights, chosen = largest(given[..., 10:14].softmax(-1), 3)
        return total + (mixed(x[..., :8], weights, chosen, 4, plain) * p[..., 39:47]).mean()

    case.write(loss)


def probed(y, probe):
    """The mean of a loss statement: each sample's elements times the first of its probe."""
    y = y.flatten(1)
    return (y * probe[:, 0, :y.shape[1]]).mean()


def convolution():
    layers = {  # of 6 channels: weight's shape, bias, and the call's arguments
        "plain": ((8, 6, 3, 3), True, {"padding": 1}),
        "strided": ((5, 6, 3, 2), False, {"stride": (2, 1), "padding": (1, 0)}),
        "wide": ((4, 6, 1, 7), True, {"padding": (0, 3)}),
        "tall": ((4, 6, 7, 1), True, {"padding": (3, 0)}),
        "dilated": ((4, 6, 3, 3), True, {"padding": 2, "dilation": (2, 1)}),
        "grouped": ((8, 3, 3, 3), True, {"groups": 2}),
        "depthwise": ((6, 1, 3, 3), False, {"padding": 1, "groups": 6}),
        "depthwise_large": ((6, 1, 5, 5), True, {"stride": 2, "padding": 2, "groups": 6}),
        "depthwise_twice": ((12, 1, 3, 3), True, {"groups": 6}),
        "pointwise": ((7, 6, 1, 1), True, {}),
        "pointwise_strided": ((4, 6, 1, 1), True, {"stride": 2}),
        "all": ((4, 6, 9, 7), True, {}),
        "first": ((16, 6, 3, 3), True, {"stride": 2, "padding": 1}),
        "chain": ((16, 16, 3, 3), True, {"padding": 1})}
    shapes = {"given.weight": (4, 378), "probe.weight": (4, 504)}
    for name, (shape, bias, _) in layers.items():
        shapes[name + ".weight"] = shape
        if bias:
            shapes[name + ".bias"] = shape[:1]
    case = Case("convolution", 4, 1, shapes)

    def conv2d(w, name, x):
        return F.conv2d(x, w[name + ".weight"], w.get(name + ".bias"), **layers[name][2])

    def loss(w, tokens):
        x, probe = w["given.weight"][tokens].reshape(4, 6, 9, 7), w["probe.weight"][tokens]
        total = sum(probed(conv2d(w, name, x), probe) for name in list(layers)[:-2])
        return total + probed(conv2d(w, "chain", conv2d(w, "first", x).relu()), probe)

    case.write(loss)


def pooling():
    case = Case("pooling", 4, 1, {"given.weight": (4, 420), "probe.weight": (4, 462)})
    given = case.w["given.weight"]
    given[...] = numpy.round(given * 4) / 4  # maxima repeat; PyTorch, too, gives the gradient to the first

    def loss(w, tokens):
        x, probe = w["given.weight"][tokens].reshape(4, 6, 10, 7), w["probe.weight"][tokens]
        return sum(probed(y, probe) for y in (
            F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (3, 2), (3, 1), ceil_mode=True),
            F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, (2, 3), 1, (1, 1), count_include_pad=False),
            F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (4, 3)),
            F.adaptive_avg_pool2d(x[..., 0:3, 0:2], (5, 2)),
            F.local_response_norm(x, 5, k=2, alpha=0.1), F.local_response_norm(x, 2, beta=0.5, alpha=2)))

    case.write(loss)


if __name__ == "__main__":
    for make in (pointwise, powers, shapes, products, expanded, attention, windows, biases, words, layers, activations,
                 extras, sequence, blocks, lstms, recurrences, mamba, rwkv, sequences, experts, convolution, pooling):
        make()
