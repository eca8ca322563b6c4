"""A training step in PyTorch at its fastest, to compare with on a GPU.

  pytorch_step.py MODEL BATCH PRECISION UPDATES eager|compiled

MODEL is JSON with the member "kind". gpt: GPT-2 with scaled_dot_product_attention (flash attention in bf16), fused
AdamW, gradients clipped, no dropout, the vocabulary padded to a multiple of 128. resnet50: torchvision's, channels last,
SGD with momentum, images of bytes that come from the host for each update. PRECISION: bf16 (autocast), tf32 or f32.
Prints one line of JSON: median milliseconds of an update after the first five, the most memory taken, the versions,
and the rate of a matrix product of 8192 cubed in the same precision."""
import json
import math
import statistics
import sys

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


def gpt_step(sizes, batch, wrap):
    """A function of the update's number: the loss, to be computed under autocast; the model; its optimizer."""
    vocabulary, context = sizes["vocabulary"], sizes["context"]
    padded = (vocabulary + 127) // 128 * 128 # as pdc's programs pad it
    model = GPT(sizes["layers"], sizes["heads"], sizes["width"], context, padded).cuda()
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    data = torch.randint(0, vocabulary, (16, batch, context + 1), device="cuda")
    wrapped = wrap(model)
    return (lambda step: wrapped(data[step % 16, :, :-1], data[step % 16, :, 1:])), model, \
        torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)


def resnet_step(sizes, batch, wrap):
    import torchvision
    torch.backends.cudnn.benchmark = True
    size, classes = sizes["size"], sizes["classes"]
    model = torchvision.models.resnet50(num_classes=classes).cuda().to(memory_format=torch.channels_last)
    images = torch.randint(0, 256, (2, batch, 3, size, size), dtype=torch.uint8).pin_memory()
    labels = torch.randint(0, classes, (batch,), device="cuda")
    mean, std = (torch.tensor(x, device="cuda").view(1, 3, 1, 1) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    wrapped = wrap(model)

    def loss(step):
        x = images[step % 2].cuda(non_blocking=True).float().div_(255).sub_(mean).div_(std)
        return F.cross_entropy(wrapped(x.contiguous(memory_format=torch.channels_last)), labels)
    return loss, model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def main():
    sizes, batch, precision, updates = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    peak = matmul_rate(torch.bfloat16 if precision == "bf16" else torch.float32)
    make = {"gpt": gpt_step, "resnet50": resnet_step}[sizes["kind"]]
    loss_of, model, optimizer = make(sizes, batch, torch.compile if sys.argv[5] == "compiled" else lambda x: x)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(WARM_UP + updates + 1)]
    for step in range(WARM_UP + updates): # no wait between updates: Python goes ahead of the GPU
        events[step].record()
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if sizes["kind"] == "gpt":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    events[-1].record()
    torch.cuda.synchronize()
    times = [begin.elapsed_time(end) for begin, end in zip(events, events[1:])]
    print(json.dumps({"ms": statistics.median(times[WARM_UP:]), "all_ms": times,
                      "peak_bytes": torch.cuda.max_memory_allocated(), "matmul_rate": peak,
                      "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}))


if __name__ == "__main__":
    main()
