"""The order of samples, as runtime/data/sampler.c defines it: a keyed Feistel permutation for each epoch."""
import numpy

MASK = (1 << 64) - 1
ROUNDS = 8


def mix(x):
    """The finaliser of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def permute(x, half, key):
    """A bijection of [0, 4^half)."""
    mask = (1 << half) - 1
    left, right = x >> half, x & mask
    for turn in range(ROUNDS):
        left, right = right, left ^ (mix(key ^ mix(right << 8 | turn)) & mask)
    return left << half | right


def sample(seed, n, s):
    """The sample that comes s-th in the run, among n; each epoch is a permutation of its own."""
    epoch, x = divmod(s, n)
    key, half = mix(mix(seed) ^ epoch), 1
    while half < 31 and 4 ** half < n:
        half += 1
    x = permute(x, half, key)
    while x >= n:
        x = permute(x, half, key)
    return x


class Windows:
    """A text as windows of context + 1 bytes at a stride of context, in batches as pdc's programs do."""

    def __init__(self, text, context, batch, seed):
        self.tokens = numpy.frombuffer(text, dtype=numpy.uint8).astype(numpy.int64)
        self.context, self.batch, self.seed = context, batch, seed
        self.n = (len(self.tokens) - 1) // context

    def window(self, i):
        first = i * self.context
        return self.tokens[first:first + self.context + 1]

    def __call__(self, t):
        """Batch t as (x, y), each [batch, context]."""
        import torch
        rows = [self.window(sample(self.seed, self.n, t * self.batch + i)) for i in range(self.batch)]
        both = torch.from_numpy(numpy.stack(rows))
        return both[:, :-1], both[:, 1:]

    def in_order(self):
        """All windows from first to last, in batches; the last may be smaller."""
        import torch
        for first in range(0, self.n, self.batch):
            rows = [self.window(i) for i in range(first, min(self.n, first + self.batch))]
            both = torch.from_numpy(numpy.stack(rows))
            yield both[:, :-1], both[:, 1:]
