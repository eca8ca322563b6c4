"""The other side of the comparison on a GPU: GPT-2's training step in PyTorch at its fastest.

  pytorch_gpt.py LAYERS HEADS WIDTH CONTEXT VOCABULARY BATCH PRECISION UPDATES eager|compiled

eager or by torch.compile, scaled_dot_product_attention (flash attention in bf16), fused AdamW, gradients clipped, no dropout;
PRECISION: bf16 (autocast), tf32 or f32. Prints one line of JSON: milliseconds an update after the first
five, the most memory taken, the versions, and the rate of a matrix product of 8192 cubed in the same precision."""
import json
import math
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WARM_UP = 5


class Block(nn.Module):
    def __init__(self, width, n_head):
        super().__init__()
        self.n_head = n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.n_head, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, n_layer, n_head, width, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, n_head) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe.weight
        for block in self.h:
            h = block(h)
        logits = F.linear(self.ln_f(h), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.flatten())


def matmul_rate(dtype):
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
    best = math.inf
    for _ in range(8):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        a @ b
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return 2 * 8192 ** 3 / best


def main():
    n_layer, n_head, width, context, vocabulary, batch = map(int, sys.argv[1:7])
    precision, updates = sys.argv[7], int(sys.argv[8])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    peak = matmul_rate(torch.bfloat16 if precision == "bf16" else torch.float32)
    padded = (vocabulary + 127) // 128 * 128 # as pdc's programs pad it
    model = GPT(n_layer, n_head, width, context, padded).cuda()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    compiled = torch.compile(model) if sys.argv[9] == "compiled" else model
    data = torch.randint(0, vocabulary, (16, batch, context + 1), device="cuda")
    for step in range(WARM_UP + updates):
        if step == WARM_UP:
            torch.cuda.synchronize()
            start = time.perf_counter()
        x = data[step % 16]
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = compiled(x[:, :-1], x[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    torch.cuda.synchronize()
    ms = 1e3 * (time.perf_counter() - start) / updates
    print(json.dumps({"ms": ms, "peak_bytes": torch.cuda.max_memory_allocated(), "matmul_rate": peak,
                      "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}))


if __name__ == "__main__":
    main()
