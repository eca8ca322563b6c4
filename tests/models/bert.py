"""BERT's pre-training: models/bert.pdm. Writes its sentences, too."""
import functools
import math

import numpy
import torch
import torch.nn.functional as F

import harness
import training

LAYERS, HEADS, LENGTH, VOCABULARY, BATCH, SAMPLES = 2, 4, 16, 64, 8, 24
PAD, CLS, SEP, MASK = 0, 1, 2, 3
TOKENS_INPUT = 2  # where bert.pdm declares its tokens


def sentences():
    """Pairs of sentences of random words, [CLS] a [SEP] b [SEP], padded; whether b is random."""
    random = numpy.random.default_rng(1)
    words = numpy.full((SAMPLES, LENGTH), PAD, numpy.int32)
    for row in words:
        a, b = (random.integers(4, VOCABULARY, n) for n in random.integers(2, 7, 2))
        pair = [CLS, *a, SEP, *b, SEP]
        row[:len(pair)] = pair
    return words, random.integers(0, 2, (SAMPLES, 1)).astype(numpy.int32)


def masked(words, number):
    """What runtime/data/derive.c makes of the words of sample `number` of the run, and the positions it chose."""
    tokens, chosen = words.copy(), numpy.zeros(len(words))
    for i, word in enumerate(words):
        r = [x >> 8 for x in harness.philox((i, TOKENS_INPUT, number, 0), harness.mix(harness.SEED, 0x6D61736B))]
        if word in (PAD, CLS, SEP) or r[0] >= 0.15 * 2 ** 24:
            continue
        chosen[i] = 1
        what = r[1] / 2 ** 24
        if what < 0.8:
            tokens[i] = MASK
        elif what < 0.9:
            tokens[i] = r[2] * VOCABULARY >> 24
    return tokens, chosen


def batch(words, is_random, t):
    numbers = range(t * BATCH, (t + 1) * BATCH)
    rows = [harness.sample(SAMPLES, s) for s in numbers]
    tokens, chosen = zip(*(masked(words[row], s) for row, s in zip(rows, numbers)))
    separators = numpy.cumsum(words[rows] == SEP, 1) - (words[rows] == SEP)
    segments = (separators > 0) & (words[rows] != PAD)
    return [torch.from_numpy(numpy.asarray(x)) for x in
            (numpy.stack(tokens).astype(numpy.int64), segments.astype(numpy.int64), words[rows].astype(numpy.int64),
             numpy.stack(chosen), is_random[rows, 0].astype(numpy.int64))]


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w[name + ".bias"])


def layer_norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-12)


def layer(w, name, x, mask):
    q, k, v = (linear(w, f"{name}.attention.self.{part}", x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
               for part in ("query", "key", "value"))
    p = (q @ k.mT / math.sqrt(q.shape[-1]) + mask).softmax(-1)
    y = linear(w, f"{name}.attention.output.dense", (p @ v).transpose(1, 2).flatten(2))
    x = layer_norm(w, f"{name}.attention.output.LayerNorm", x + y)
    h = F.gelu(linear(w, f"{name}.intermediate.dense", x))
    return layer_norm(w, f"{name}.output.LayerNorm", x + linear(w, f"{name}.output.dense", h))


def loss(w, batch):
    tokens, segments, words, chosen, is_random = batch
    table = w["bert.embeddings.word_embeddings.weight"]
    x = table[tokens] + w["bert.embeddings.position_embeddings.weight"][:LENGTH]
    x = layer_norm(w, "bert.embeddings.LayerNorm", x + w["bert.embeddings.token_type_embeddings.weight"][segments])
    for i in range(LAYERS):
        x = layer(w, f"bert.encoder.layer.{i}", x, torch.where(words == PAD, -math.inf, 0.0)[:, None, None])
    h = F.gelu(linear(w, "cls.predictions.transform.dense", x))
    logits = layer_norm(w, "cls.predictions.transform.LayerNorm", h) @ table.T + w["cls.predictions.bias"]
    of_words = F.cross_entropy(logits.flatten(0, 1), words.flatten(), reduction="none")
    pooled = linear(w, "bert.pooler.dense", x[:, 0]).tanh()
    relation = linear(w, "cls.seq_relationship", pooled)
    return (of_words * chosen.flatten()).sum() / chosen.sum() + F.cross_entropy(relation, is_random)


if __name__ == "__main__":
    words, is_random = sentences()
    numpy.save(harness.path("bert.words.npy"), words)
    numpy.save(harness.path("bert.is_random.npy"), is_random)
    adamw = functools.partial(training.AdamW, betas=(0.9, 0.999), weight_decay=0.01, eps=1e-4)
    harness.write("bert", loss, functools.partial(batch, words, is_random), adamw, rate=0.01, clip_norm=1.0)
