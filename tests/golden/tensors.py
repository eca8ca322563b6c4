"""safetensors files: an 8-byte little-endian header length, a JSON header, the tensors' bytes."""
import json
import struct

import numpy

DTYPES = {"F32": numpy.float32, "I32": numpy.int32}


def save(path, tensors):
    """Writes {name: array} as f32, in the order given."""
    header, data, at = {}, [], 0
    for name, array in tensors.items():
        raw = numpy.ascontiguousarray(array, dtype="<f4")
        header[name] = {"dtype": "F32", "shape": list(raw.shape), "data_offsets": [at, at + raw.nbytes]}
        data.append(raw.tobytes())
        at += raw.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def load(path):
    """Reads {name: array}; checks that the tensors fill the file exactly."""
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    data, tensors, end = raw[8 + length:], {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        if first != end:
            raise ValueError(f"{path}: {name} starts at {first}, the tensor before it ends at {end}")
        flat = numpy.frombuffer(data[first:last], dtype=DTYPES[entry["dtype"]])
        tensors[name], end = flat.reshape(entry["shape"]).copy(), last
    if end != len(data):
        raise ValueError(f"{path}: {len(data) - end} bytes after the last tensor")
    return tensors
