#!/usr/bin/python3
"""Fits the planner's model of kernel times to measurements of shapes.py:  fit.py [FILE.tsv]    (default: measured/h100.tsv)

Prints the constants of compiler/device/gpus.c and the errors by size of product. Every fourth product is held out: it
does not enter the fit, and unit_product_time tests the C model with these rows. The model is that of
compiler/device/products.c; docs/internals/planner.md describes it."""
import math
import pathlib
import statistics
import sys

MULTIPROCESSORS = 132
TILES = ((128, 256, "large"), (256, 128, "large"), (128, 128, "medium"), (64, 128, "small"), (128, 64, "small"), (64, 64, "small"))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
DEEP, STEP = 128, 64      # least k of a part of a split product; k counts in steps of a tile's loop
BANDWIDTH = 0.85 * 3.35e12 # of DeviceKind.stream; fit_streams() compares it
NAMES = ("large", "medium", "small", "epilogue", "start")
START = {"bf16": (8.2e14, 0.9, 0.6, 4e12, 2.5e-6), "tf32": (3.9e14, 0.85, 0.6, 4.8e12, 3.8e-6), "f32": (5.4e13, 0.85, 0.7, 3e12, 3e-6)}
ITEM = {"bf16": 2, "tf32": 4, "f32": 4}


def up(a, b):
    return -(-a // b)


def tile_seconds(c, m, n, k, item, tile, split):
    rows, columns, kind = tile
    share = 1 if kind == "large" else c[kind]
    depth = up(up(k, split), STEP) * STEP
    waves = up(up(m, rows) * up(n, columns) * split, MULTIPROCESSORS)
    results = rows * columns * (item if split == 1 else 4)
    wave = MULTIPROCESSORS * (2 * rows * columns * depth / (c["large"] * share) + results / c["epilogue"])
    return waves * wave + (m * n * (4 * split + item) / c["epilogue"] + 1e-6 if split > 1 else 0)


def product_seconds(c, m, n, k, item):
    tiles = min(tile_seconds(c, m, n, k, item, tile, split) for tile in TILES for split in SPLITS if split == 1 or k // split >= DEEP)
    return c["start"] + max(tiles, (m * k + n * k + m * n) * item / BANDWIDTH)


def error(c, row, item):
    m, n, k, seconds = row
    return math.log(product_seconds(c, m, n, k, item) / seconds)


def loss(c, rows, item):
    """Errors above a factor of 1.6 count as that much: outliers are other algorithms."""
    return sum(min(abs(error(c, row, item)), 0.5) ** 1.5 for row in rows) / len(rows)


def fitted(rows, kind):
    """Changes one constant at a time, by smaller and smaller steps."""
    c, steps, item = dict(zip(NAMES, START[kind])), dict.fromkeys(NAMES, 0.1), ITEM[kind]
    best = loss(c, rows, item)
    while max(steps.values()) > 2e-3:
        for name in NAMES:
            trials = [{**c, name: c[name] * math.exp(sign * steps[name])} for sign in (1, -1)]
            least, trial = min(((loss(t, rows, item), t) for t in trials), key=lambda x: x[0])
            better = least < best - 1e-9
            best, c = (least, trial) if better else (best, c)
            steps[name] *= 1.3 if better else 0.5
    return c


def spread(errors):
    """Median, 90th percentile and worst, in percent, and the mean with its sign."""
    size = sorted(abs(math.expm1(e)) * 100 for e in errors)
    return (f"{statistics.median(size):6.1f} {size[int(0.9 * (len(size) - 1))]:6.1f} {size[-1]:6.1f} "
            f"{100 * math.expm1(statistics.mean(errors)):+6.1f}  ({len(size)})")


def aligned(row, item):
    """Rows of 16 bytes: n and k are the lengths of rows in memory."""
    return row[1] * item % 16 == 0 and row[2] * item % 16 == 0


def fit_products(rows, kind):
    item = ITEM[kind]
    even = [row for row in rows if aligned(row, item)]
    kept, held = [row for i, row in enumerate(even) if i % 4], even[::4]
    c = fitted(kept, kind)
    odd = statistics.median(math.exp(-error(c, row, item)) for row in rows if not aligned(row, item))
    print(f"{kind}: " + ", ".join(f".{name} = {value:.3g}" for name, value in c.items()) + f", .odd = {max(odd, 1):.2g}")
    large = [2e-12 * m * n * k / seconds for m, n, k, seconds in even if 2 * m * n * k >= 1e11]
    hot = [error(c, row, item) for row in even if row[3] > 1e-3 and kind != "f32"]
    if hot:
        print(f"  share of `large` in products of a millisecond and more: {math.exp(statistics.mean(hot)):.2f}")
    print(f"  products of 1e11 operations and more: median {statistics.median(large):.1f} TFLOP/s")
    print("  errors in percent           median    90 %  worst   mean")
    print(f"  fitted                      {spread([error(c, row, item) for row in kept])}")
    print(f"  held out                    {spread([error(c, row, item) for row in held])}")
    for low, high in ((0, 1e9), (1e9, 1e10), (1e10, 1e11), (1e11, math.inf)):
        part = [error(c, row, item) for row in even if low <= 2 * row[0] * row[1] * row[2] < high]
        if part:
            print(f"  {low:7.0e} to {high:7.0e} operations {spread(part)}")


def line(points):
    """Least squares of relative errors: y = a x + b."""
    w = [1 / y ** 2 for _, y in points]
    s, sx, sy = sum(w), sum(a * x for a, (x, _) in zip(w, points)), sum(a * y for a, (_, y) in zip(w, points))
    sxx, sxy = sum(a * x * x for a, (x, _) in zip(w, points)), sum(a * x * y for a, (x, y) in zip(w, points))
    slope = (s * sxy - sx * sy) / (s * sxx - sx * sx)
    return slope, (sy - slope * sx) / s


def fit_attention(rows):
    """Seconds for a number of tokens grow with length + short; operations count half under a causal mask."""
    times = {(int(r[4]), int(r[5]), r[6] == "1", r[7]): float(r[8]) * 1e-6 for r in rows}
    print("attention, bf16: operations/s of long sequences, and positions that each is as if longer by")
    for width in (64, 128):
        for causal in (False, True):
            for which in ("forward", "backward"):
                points = []
                for (length, size, masked, passes), seconds in times.items():
                    if (size, masked, passes) == (width, causal, "forward"):
                        both = times[length, size, masked, "both"]
                        points.append((length, seconds if which == "forward" else both - seconds))
                slope, start = line(points)
                each = (0.5 if causal else 1) * (4 if which == "forward" else 8) * 16384 * 12 * width
                errors = [math.log((slope * x + start) / y) for x, y in points]
                print(f"  {width:3} {'causal' if causal else 'full  '} {which:8}: {each / slope:.3g}, {start / slope:4.0f};   {spread(errors)}")


def fit_streams(rows):
    points = [(int(size), float(us) * 1e-6) for _, size, us in rows if int(size) >= 1 << 21]
    slope, start = line(points)
    print(f"streams: {1 / slope:.3g} bytes/s, start {1e6 * start:.2f} us; {spread([math.log((slope * x + start) / y) for x, y in points])}")


def fit_copies(rows):
    for direction in ("device", "host"):
        slope, start = line([(int(size), float(us) * 1e-6) for _, to, size, us in rows if to == direction])
        print(f"copies to the {direction}: {1 / slope:.3g} bytes/s, start {1e6 * start:.1f} us")


def main():
    file = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "measured/h100.tsv"
    rows = [line.split("\t") for line in file.read_text().splitlines() if line and not line.startswith("#")]
    for kind in START:
        fit_products([(*map(int, r[2:5]), float(r[5]) * 1e-6) for r in rows if r[:2] == ["product", kind]], kind)
    fit_attention([r for r in rows if r[0] == "attention"])
    fit_streams([r for r in rows if r[0] == "stream"])
    fit_copies([r for r in rows if r[0] == "copy"])
    for _, where, us in (r for r in rows if r[0] == "launch"):
        print(f"launch in a {where}: {us} us")


if __name__ == "__main__":
    main()
