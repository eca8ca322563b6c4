"""The models of models/*.pdm as plain PyTorch functions of a dictionary of weights, named as pdc names them.

Each returns the mean loss of the batch `x`, `y` ([samples, context] of token ids), and is made of pieces: a
piece takes what the piece before it returned (the first: None), the last returns the loss."""
import functools
import math

import torch
import torch.nn.functional as F


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"])


def conv1d(w, name, x):
    """GPT-2's linear: its files hold weight[in, out]."""
    return x @ w[name + ".weight"] + w[name + ".bias"]


def heads(x, n_head):
    return x.unflatten(-1, (n_head, -1)).transpose(-3, -2)


def causal_attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~keep, -math.inf).softmax(-1) @ v


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def through(pieces, w, x, y):
    h = None
    for piece in pieces:
        h = piece(w, h, x, y)
    return h


def gpt2_pieces(n_layer, n_head):
    """GPT-2 without dropout: Hugging Face's names, tied embeddings, the tanh GELU. Embedding, blocks, head."""
    def embedding(w, h, x, y):
        return w["wte.weight"][x] + w["wpe.weight"][:x.shape[-1]]

    def block(i, w, h, x, y):
        block = f"h.{i}."
        a = conv1d(w, block + "attn.c_attn", layer_norm(w, block + "ln_1", h))
        q, k, v = (heads(part, n_head) for part in a.chunk(3, -1))
        a = causal_attention(q, k, v).transpose(-3, -2).flatten(-2)
        h = h + conv1d(w, block + "attn.c_proj", a)
        m = gelu_tanh(conv1d(w, block + "mlp.c_fc", layer_norm(w, block + "ln_2", h)))
        return h + conv1d(w, block + "mlp.c_proj", m)

    def head(w, h, x, y):
        logits = layer_norm(w, "ln_f", h) @ w["wte.weight"].T
        return F.cross_entropy(logits.flatten(0, -2), y.flatten())

    return [embedding] + [functools.partial(block, i) for i in range(n_layer)] + [head]


def gpt2(w, x, y, n_layer, n_head):
    return through(gpt2_pieces(n_layer, n_head), w, x, y)


def rms_norm(w, name, x, eps=1e-5):
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w[name + ".weight"]


def rotary(x, base=10000.0):
    """Turns the pairs (i, i + size / 2) of x[.., length, size] by angles that grow with the position."""
    length, half = x.shape[-2], x.shape[-1] // 2
    frequency = base ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.outer(torch.arange(length, dtype=x.dtype), frequency)
    a, b = x.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def llama_pieces(n_layer, n_head, n_kv_head):
    def embedding(w, h, x, y):
        return w["embed_tokens.weight"][x]

    def block(i, w, h, x, y):
        block = f"layers.{i}."
        a = rms_norm(w, block + "input_layernorm", h)
        q, k, v = (a @ w[f"{block}self_attn.{part}_proj.weight"].T for part in "qkv")
        q, k, v = rotary(heads(q, n_head)), rotary(heads(k, n_kv_head)), heads(v, n_kv_head)
        k, v = (part.repeat_interleave(n_head // n_kv_head, -3) for part in (k, v))
        a = causal_attention(q, k, v).transpose(-3, -2).flatten(-2)
        h = h + a @ w[block + "self_attn.o_proj.weight"].T
        m = rms_norm(w, block + "post_attention_layernorm", h)
        gate, up = (m @ w[f"{block}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        return h + (F.silu(gate) * up) @ w[block + "mlp.down_proj.weight"].T

    def head(w, h, x, y):
        logits = rms_norm(w, "norm", h) @ w["lm_head.weight"].T
        return F.cross_entropy(logits.flatten(0, -2), y.flatten())

    return [embedding] + [functools.partial(block, i) for i in range(n_layer)] + [head]


def llama(w, x, y, n_layer, n_head, n_kv_head):
    return through(llama_pieces(n_layer, n_head, n_kv_head), w, x, y)


def llama_shapes(n_layer, n_head, n_kv_head, n_embd, hidden, vocab_size):
    shapes = {"embed_tokens.weight": (vocab_size, n_embd)}
    n_kv = n_kv_head * n_embd // n_head
    for i in range(n_layer):
        block = f"layers.{i}."
        shapes[block + "input_layernorm.weight"] = (n_embd,)
        for part, rows in (("q", n_embd), ("k", n_kv), ("v", n_kv), ("o", n_embd)):
            shapes[f"{block}self_attn.{part}_proj.weight"] = (rows, n_embd)
        shapes[block + "post_attention_layernorm.weight"] = (n_embd,)
        for part, shape in (("gate", (hidden, n_embd)), ("up", (hidden, n_embd)), ("down", (n_embd, hidden))):
            shapes[f"{block}mlp.{part}_proj.weight"] = shape
    shapes["norm.weight"] = (n_embd,)
    shapes["lm_head.weight"] = (vocab_size, n_embd)
    return shapes


def mlp_pieces():
    """The byte after a window of bytes; y is the windows' next bytes, of which the last counts."""
    def embedding(w, h, x, y):
        return w["wte.weight"][x].flatten(-2)

    def hidden(w, h, x, y):
        return F.linear(h, w["fc.weight"], w["fc.bias"])

    def squash(w, h, x, y):
        return torch.tanh(h)

    def head(w, h, x, y):
        return F.cross_entropy(F.linear(h, w["out.weight"], w["out.bias"]), y[:, -1])

    return [embedding, hidden, squash, head]


def mlp(w, x, y):
    return through(mlp_pieces(), w, x, y)


def mlp_shapes(n_ctx, n_embd, hidden, vocab_size):
    return {"wte.weight": (vocab_size, n_embd), "fc.weight": (hidden, n_ctx * n_embd), "fc.bias": (hidden,),
            "out.weight": (vocab_size, hidden), "out.bias": (vocab_size,)}


def gpt2_shapes(n_layer, n_embd, n_ctx, vocab_size):
    shapes = {"wte.weight": (vocab_size, n_embd), "wpe.weight": (n_ctx, n_embd)}

    def norm(name):
        shapes.update({name + ".weight": (n_embd,), name + ".bias": (n_embd,)})

    def linear(name, inputs, outputs):
        shapes.update({name + ".weight": (inputs, outputs), name + ".bias": (outputs,)})

    for i in range(n_layer):
        norm(f"h.{i}.ln_1")
        linear(f"h.{i}.attn.c_attn", n_embd, 3 * n_embd)
        linear(f"h.{i}.attn.c_proj", n_embd, n_embd)
        norm(f"h.{i}.ln_2")
        linear(f"h.{i}.mlp.c_fc", n_embd, 4 * n_embd)
        linear(f"h.{i}.mlp.c_proj", 4 * n_embd, n_embd)
    norm("ln_f")
    return shapes


def gpt2_initial(shapes, n_layer, generator):
    """GPT-2's own initialisation: N(0, 0.02), output projections scaled by 1 / sqrt(2 n_layer)."""
    weights = {}
    for name, shape in shapes.items():
        if name.endswith(".bias"):
            weights[name] = torch.zeros(shape)
        elif "ln_" in name:
            weights[name] = torch.ones(shape)
        else:
            deviation = 0.02 / math.sqrt(2 * n_layer) if "c_proj" in name else 0.02
            weights[name] = torch.randn(shape, generator=generator) * deviation
    return weights
