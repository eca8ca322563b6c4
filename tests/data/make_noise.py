"""Writes noise.cases, the random inputs of samples, from Philox as Salmon et al. (2011) define it:  make_noise.py
A case is a line "kind name seed sample elements classes" and a line of numbers."""
import math
import os

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1
NOISE = 0x6E6F6973


def philox(counter, key):
    c, k = list(counter), [key & MASK32, key >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK32, a >> 32 ^ c[3] ^ k[1], a & MASK32]
        k = [(k[0] + 0x9E3779B9) & MASK32, (k[1] + 0xBB67AE85) & MASK32]
    return c


def hash_name(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK64
    return h


def mix(seed, scope):
    """pd_mix of runtime/kernels/pd_math.h."""
    z = (seed + 0x9E3779B97F4A7C15) & MASK64
    for more in (0, scope):
        z = (z + more) & MASK64
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK64
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK64
        z ^= z >> 31
    return z


def make(kind, name, seed, sample, n, classes):
    key, out = mix(seed, hash_name(name)), []
    for block in range((n + 3) // 4):
        w = philox((block, NOISE, sample & MASK32, sample >> 32), key)
        if kind == "uniform":
            out += [(x >> 8) * 2.0**-24 for x in w]
        elif kind == "int":
            out += [x * classes >> 32 for x in w]
        else:
            for a, b in ((w[0], w[1]), (w[2], w[3])):
                radius = math.sqrt(-2 * math.log(((a >> 8) + 0.5) * 2.0**-24))
                turn = 2 * math.pi * (b >> 8) * 2.0**-24
                out += [radius * math.cos(turn), radius * math.sin(turn)]
    return out[:n]


CASES = [("normal", "noise", 1, 0, 12, 0), ("normal", "eps", 7, 2**33 + 5, 5, 0), ("uniform", "u", 3, 11, 7, 0),
         ("int", "t", 3, 11, 9, 1000), ("int", "big", 2**63, 1, 4, 2**31 - 1)]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "noise.cases"), "w") as out:
    for case in CASES:
        print(*case, file=out)
        print(*("%.9g" % x if case[0] != "int" else x for x in make(*case)), file=out)
