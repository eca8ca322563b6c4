"""The models of models/*.pdm as plain PyTorch functions of a dictionary of weights, named as pdc names them.

Each returns the mean loss of the batch `x`, `y` ([samples, context] of token ids)."""
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


def gpt2(w, x, y, n_layer, n_head):
    """GPT-2 without dropout: Hugging Face's names, tied embeddings, the tanh GELU."""
    h = w["wte.weight"][x] + w["wpe.weight"][:x.shape[-1]]
    for i in range(n_layer):
        block = f"h.{i}."
        a = conv1d(w, block + "attn.c_attn", layer_norm(w, block + "ln_1", h))
        q, k, v = (heads(part, n_head) for part in a.chunk(3, -1))
        a = causal_attention(q, k, v).transpose(-3, -2).flatten(-2)
        h = h + conv1d(w, block + "attn.c_proj", a)
        m = gelu_tanh(conv1d(w, block + "mlp.c_fc", layer_norm(w, block + "ln_2", h)))
        h = h + conv1d(w, block + "mlp.c_proj", m)
    logits = layer_norm(w, "ln_f", h) @ w["wte.weight"].T
    return F.cross_entropy(logits.flatten(0, -2), y.flatten())


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
