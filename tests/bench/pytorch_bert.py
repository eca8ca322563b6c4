"""The other side of `bert`: one update of BERT's pre-training in PyTorch eager, one thread.

Arguments: layers, heads, width, length, vocabulary, batch, the probability of dropout. Reads lines from its input,
each a number of updates to make; answers with the milliseconds of every update by CLOCK, a
function of Python's module time; COMPILED=yes compiles the model. Hugging Face's BertForPreTraining
in plain modules: logits of all positions, those that were not chosen ignored by the loss."""
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, width, n_head, p):
        super().__init__()
        self.n_head, self.p = n_head, p
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.projection, self.ln_1 = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.ln_2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, self.n_head, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.n_head) + mask
        y = F.dropout(F.softmax(scores, -1), self.p) @ v
        x = self.ln_1(x + F.dropout(self.projection(y.transpose(1, 2).reshape(b, t, c)), self.p))
        return self.ln_2(x + F.dropout(self.output(F.gelu(self.intermediate(x))), self.p))


class Bert(nn.Module):
    def __init__(self, n_layer, n_head, width, length, vocabulary, p):
        super().__init__()
        self.p = p
        self.words, self.segments = nn.Embedding(vocabulary, width), nn.Embedding(2, width)
        self.positions, self.ln = nn.Embedding(length, width), nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, n_head, p) for _ in range(n_layer))
        self.pooler, self.relation = nn.Linear(width, width), nn.Linear(width, 2)
        self.transform, self.ln_f = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for w in self.parameters():
            nn.init.normal_(w, std=0.02) if w.dim() > 1 else None

    def forward(self, tokens, segments, mask, labels, is_random):
        x = self.words(tokens) + self.positions.weight + self.segments(segments)
        x = F.dropout(self.ln(x), self.p)
        for layer in self.layers:
            x = layer(x, mask)
        h = self.ln_f(F.gelu(self.transform(x)))
        logits = F.linear(h, self.words.weight, self.bias)
        relation = self.relation(self.pooler(x[:, 0]).tanh())
        of_words = F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.flatten())
        return of_words + F.cross_entropy(relation, is_random)


def main():
    n_layer, n_head, width, length, vocabulary, batch = map(int, sys.argv[1:7])
    torch.set_num_threads(1)
    clock = getattr(time, os.environ.get("CLOCK", "perf_counter"))
    torch.manual_seed(1)
    model = Bert(n_layer, n_head, width, length, vocabulary, float(sys.argv[7]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, foreach=True)
    words = torch.randint(4, vocabulary, (batch, length))
    chosen = torch.rand(batch, length) < 0.15
    labels = torch.where(chosen, words, torch.full_like(words, -100))
    tokens = torch.where(chosen, torch.full_like(words, 3), words)
    segments = (torch.arange(length) > length // 2).long().expand(batch, length)
    mask, is_random = torch.zeros(batch, 1, 1, length), torch.randint(0, 2, (batch,))
    run = torch.compile(model) if os.environ.get("COMPILED") else model
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = clock()
            loss = run(tokens, segments, mask, labels, is_random)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()
            times.append(1000 * (clock() - start))
        print(" ".join(f"{ms:.3f}" for ms in times), flush=True)


if __name__ == "__main__":
    main()
