"""Times of a GPU's libraries by shape, through PyTorch: products, attention, copies, launches.

  shapes.py [--out FILE.jsonl] [--seconds N] [--quick]

Each line of FILE is one case: its kind, its sizes, its type, and the median and the least seconds of a call. Calls are replayed
from a CUDA graph, so that the host's time is not part of them. Operands rotate through copies larger than the L2 cache."""
import argparse
import itertools
import json
import statistics
import time

import torch

CACHE = 128 << 20 # bytes that the operands of consecutive calls cover


def seconds(call, calls, repeats=7):
    """Of one of `calls` calls, call(i), in a graph: median and least."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(calls):
            call(i)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    graph.replay()
    times = []
    for _ in range(repeats):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) / 1e3 / calls)
    return statistics.median(times), min(times)


def copies_for(size):
    return max(2, min(64, CACHE // size + 1))


def product(m, n, k, kind):
    item = 2 if kind == torch.bfloat16 else 4
    copies = copies_for(item * (m * k + n * k))
    a = [torch.randn(m, k, device="cuda", dtype=kind) for _ in range(copies)]
    b = [torch.randn(n, k, device="cuda", dtype=kind) for _ in range(copies)]
    out = torch.empty(m, n, device="cuda", dtype=kind)
    calls = max(4, min(64, int(3e-3 * 4e14 / (2 * m * n * k)))) // 2 * 2
    return seconds(lambda i: torch.mm(a[i % copies], b[i % copies].T, out=out), calls)


def products(quick):
    rows = (256, 1024, 4096, 16384) if quick else (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
    widths = (768, 4096) if quick else (128, 256, 512, 768, 1024, 1600, 2048, 4096, 8192, 12288)
    shapes = [(m, n, k) for m, n, k in itertools.product(rows, widths, widths) if m * n * k <= 2 ** 40 and n in (k, 4 * k, k // 4, 3 * k)]
    shapes += [(1024, 1024, k) for k in (1000, 1001, 1023, 1028)] + [(m, 50257, 768) for m in (1024, 8192, 32768)]
    for kind, tf32 in ((torch.bfloat16, False), (torch.float32, True), (torch.float32, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for m, n, k in shapes:
            if kind == torch.float32 and not tf32 and (m * n * k > 2 ** 36 or m not in (256, 1024, 8192)):
                continue # slow, and less used
            name = "bf16" if kind == torch.bfloat16 else "tf32" if tf32 else "f32"
            yield {"kind": "product", "m": m, "n": n, "k": k, "type": name}, lambda: product(m, n, k, kind)


def attention(batch, heads, length, width, causal, backward):
    shape = (batch, heads, length, width)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=backward) for _ in range(3))
    flash = torch.nn.functional.scaled_dot_product_attention
    if not backward:
        return seconds(lambda i: flash(q, k, v, is_causal=causal), 8)
    y = torch.ones(shape, device="cuda", dtype=torch.bfloat16)

    def both(_):
        torch.autograd.grad(flash(q, k, v, is_causal=causal), (q, k, v), y)
    return seconds(both, 8)


def attentions():
    for length, width, causal, backward in itertools.product((256, 512, 1024, 2048, 4096, 8192), (64, 128), (True, False), (False, True)):
        batch = max(1, 16384 // length)
        case = {"kind": "attention", "batch": batch, "heads": 12, "length": length, "width": width, "causal": causal,
                "type": "bf16", "passes": "both" if backward else "forward"}
        yield case, lambda: attention(batch, 12, length, width, causal, backward)


def streamed(size):
    copies = copies_for(2 * size)
    a = [torch.empty(size // 4, device="cuda") for _ in range(copies)]
    b = [torch.empty(size // 4, device="cuda") for _ in range(copies)]
    return seconds(lambda i: b[i % copies].copy_(a[i % copies]), max(4, min(64, (1 << 30) // size)))


def crossing(size, to_device):
    """Between pinned memory of the host and the device: by the clock, as a graph would not show the start of a copy."""
    host, device = torch.empty(size, dtype=torch.uint8, pin_memory=True), torch.empty(size, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(9):
        torch.cuda.synchronize()
        start = time.perf_counter()
        (device.copy_(host, non_blocking=True) if to_device else host.copy_(device, non_blocking=True))
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times), min(times)


def launches(graph):
    """A kernel with nothing to do, alone in a row of 200."""
    x = torch.zeros(1, device="cuda")
    if graph:
        return seconds(lambda i: x.add_(1), 200)
    times = []
    for _ in range(9):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            x.add_(1)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 200)
    return statistics.median(times), min(times)


def cases(quick):
    yield {"kind": "launch", "graph": True}, lambda: launches(True)
    yield {"kind": "launch", "graph": False}, lambda: launches(False)
    for power in range(12, 31, 2):
        yield {"kind": "stream", "bytes": 2 << power}, lambda: streamed(1 << power)
        for to_device in (True, False):
            yield {"kind": "copy", "bytes": 1 << power, "to_device": to_device}, lambda: crossing(1 << power, to_device)
    yield from attentions()
    yield from products(quick)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="shapes.jsonl")
    parser.add_argument("--quick", action="store_true", help="few products")
    parser.add_argument("--seconds", type=float, default=600, help="stop after this long (default: 600)")
    options = parser.parse_args()
    start = time.monotonic()
    with open(options.out, "w") as file:
        head = {"kind": "machine", "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
        file.write(json.dumps(head) + "\n")
        for case, measure in cases(options.quick):
            if time.monotonic() - start > options.seconds:
                break
            try:
                median, least = measure()
            except torch.cuda.OutOfMemoryError:
                continue
            file.write(json.dumps({**case, "median": median, "least": least}) + "\n")
            file.flush()
    print(f"{options.out}: {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
