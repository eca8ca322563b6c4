"""Writes order.cases, the samples of mixtures by tests/reference/sampler.py:  make_order.py
A case is a line "seed share:samples ..." and a line of "source.sample", for numbers around the ends of blocks too."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "reference"))
from sampler import Mixture  # noqa: E402

CASES = [(5, [0.7, 0.3], [7, 3]), (1, [1, 1, 1], [1, 20000, 5]), (9, [1e-7, 3, 2.5], [4, 11, 6])]
NUMBERS = list(range(60)) + list(range(9990, 10010)) + list(range(123450, 123460))

with open(os.path.join(here, "order.cases"), "w") as out:
    for seed, shares, samples in CASES:
        mixture = Mixture(shares, samples, seed)
        print(seed, *("%s:%d" % (share, n) for share, n in zip(shares, samples)), file=out)
        print(*("%d.%d" % mixture(number) for number in NUMBERS), file=out)
