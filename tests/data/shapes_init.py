"""Writes the first weights of shapes.pdm, without PyTorch:  shapes_init.py OUT.safetensors"""
import json
import struct
import sys

SHAPES = {"conv1.weight": (4, 3, 5, 5), "conv1.bias": (4,), "conv2.weight": (8, 4, 3, 3), "conv2.bias": (8,),
          "head.weight": (2, 200), "head.bias": (2,)}


def values():
    """Numbers within 1 / sqrt(inputs of an element) of 0, by a linear congruential generator."""
    state, weights = 1, {}
    for name, shape in SHAPES.items():
        n, inputs = 1, 1
        for i, side in enumerate(shape):
            n, inputs = n * side, inputs * (side if i else 1)
        numbers = []
        for _ in range(n):
            state = (state * 1103515245 + 12345) % 2**31
            numbers.append((state / 2**30 - 1) / inputs**0.5)
        weights[name] = struct.pack(f"<{n}f", *numbers)
    return weights


def main():
    header, at, weights = {}, 0, values()
    for name, raw in weights.items():
        header[name] = {"dtype": "F32", "shape": SHAPES[name], "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    with open(sys.argv[1], "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(weights.values()))


if __name__ == "__main__":
    main()
