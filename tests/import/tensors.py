"""Compares the weights of two Hugging Face folders:  tensors.py WANTED GOT [DTYPE]
Names, shapes, types and bytes are the same; with DTYPE only names and shapes, and GOT's type is DTYPE. Without an index
the weights are model.safetensors, else all files of the index, which has to name every tensor and the sum of bytes."""
import json
import os
import struct
import sys


def load(path):
    with open(path, "rb") as file:
        raw = file.read()
    (n,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    assert head.pop("__metadata__") == {"format": "pt"}, path
    at = {name: t["data_offsets"] for name, t in head.items()}
    return {name: (t["dtype"], t["shape"], raw[8 + n + at[name][0]:8 + n + at[name][1]]) for name, t in head.items()}


def weights(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return load(os.path.join(folder, "model.safetensors"))
    with open(index) as file:
        index = json.load(file)
    tensors, files = {}, sorted(set(index["weight_map"].values()))
    assert sorted(f for f in os.listdir(folder) if f.endswith(".safetensors")) == files, folder
    for name in files:
        part = load(os.path.join(folder, name))
        assert not set(part) & set(tensors), name
        assert all(index["weight_map"][tensor] == name for tensor in part), name
        tensors.update(part)
    assert set(tensors) == set(index["weight_map"]), folder
    assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in tensors.values()), folder
    return tensors


wanted, got = weights(sys.argv[1]), weights(sys.argv[2])
if set(wanted) != set(got):
    sys.exit(f"other names: {sorted(set(wanted) ^ set(got))}")
for name, (dtype, shape, data) in wanted.items():
    if got[name][1] != shape:
        sys.exit(f"{name}: shape {got[name][1]}, not {shape}")
    if len(sys.argv) > 3:
        if got[name][0] != sys.argv[3]:
            sys.exit(f"{name}: type {got[name][0]}, not {sys.argv[3]}")
    elif got[name] != (dtype, shape, data):
        sys.exit(f"{name}: other bytes")
