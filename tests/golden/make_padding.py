"""Writes the golden files of padding.pdm, by plain loops in double and PyTorch's rules for padding_idx: the row is read as it
stands, lookups pass it no gradient, products and weight decay do.
  padding.ids.npy, padding.y.npy   the samples of one batch
  padding.init.safetensors         the table before; its padding row is not zero
  padding.want.safetensors         the table after UPDATES updates
  padding.loss                     the losses of the updates
Needs Python alone; the files are committed, so that the tests do not."""
import json
import math
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES, LENGTH, CLASSES, WIDTH, PADDING, UPDATES = 4, 3, 6, 8, 4, 3
RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.1
NAME = "table.weight"


def write_array(path, kind, shape, values):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        file.write(struct.pack(f"<{len(values)}{'f' if kind == '<f4' else 'i'}", *values))


def write_table(path, table):
    values = [x for row in table for x in row]
    header = {NAME: {"dtype": "F32", "shape": [CLASSES, WIDTH], "data_offsets": [0, 4 * len(values)]}}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(values)}f", *values))


def step(table, ids, y):
    """The mean loss and the table's gradient."""
    gradient = [[0.0] * WIDTH for _ in table]
    loss, n = 0.0, SAMPLES * LENGTH * CLASSES
    for position, token in enumerate(ids):
        for c in range(CLASSES):
            error = sum(a * b for a, b in zip(table[token], table[c])) - y[position * CLASSES + c]
            loss += error * error / n
            for j in range(WIDTH):
                gradient[c][j] += 2 * error / n * table[token][j]
                if token != PADDING:
                    gradient[token][j] += 2 * error / n * table[c][j]
    return loss, gradient


def main():
    ids = [(7 * i * i + i) % CLASSES for i in range(SAMPLES * LENGTH)]
    ids[::5] = [PADDING] * len(ids[::5])
    y = [math.sin(3.0 * i) for i in range(len(ids) * CLASSES)]
    table = [[math.cos(1.7 * (i * WIDTH + j)) for j in range(WIDTH)] for i in range(CLASSES)]
    to_float = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    table, y = [[to_float(x) for x in row] for row in table], [to_float(x) for x in y]
    path = os.path.join(HERE, "padding")
    write_array(path + ".ids.npy", "<i4", (SAMPLES, LENGTH), ids)
    write_array(path + ".y.npy", "<f4", (SAMPLES, LENGTH, CLASSES), y)
    write_table(path + ".init.safetensors", table)
    moment, losses = [[0.0] * WIDTH for _ in table], []
    for _ in range(UPDATES):
        loss, gradient = step(table, ids, y)
        losses.append(loss)
        for i in range(CLASSES):
            for j in range(WIDTH):
                moment[i][j] = MOMENTUM * moment[i][j] + gradient[i][j] + DECAY * table[i][j]
                table[i][j] -= RATE * moment[i][j]
    write_table(path + ".want.safetensors", table)
    with open(path + ".loss", "w") as file:
        file.writelines(f"{loss!r}\n" for loss in losses)


main()
