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


BLOCK = 10000


class Mixture:
    """The samples of sources with shares, as (source, sample), as runtime/data/dataset.c defines their order."""

    def __init__(self, shares, samples, seed):
        self.samples, self.seed = samples, seed
        total = sum(shares)
        exact = [share / total * BLOCK for share in shares]
        self.quota = [max(1, int(x)) for x in exact]
        while sum(self.quota) != BLOCK:
            up = sum(self.quota) < BLOCK
            may = [i for i in range(len(exact)) if up or self.quota[i] > 1]
            best = max(may, key=lambda i: (exact[i] - self.quota[i]) * (1 if up else -1))
            self.quota[best] += 1 if up else -1

    def seed_of(self, sequence):
        return mix(mix(self.seed) + sequence & MASK)

    def __call__(self, number):
        block, place = number // BLOCK, sample(self.seed_of(0), BLOCK, number)
        source = 0
        while place >= self.quota[source]:
            place -= self.quota[source]
            source += 1
        return source, sample(self.seed_of(source + 1), self.samples[source], block * self.quota[source] + place)


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
