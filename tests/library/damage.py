"""Damaged copies of a safetensors file, for errors.c:  damage.py WEIGHTS FOLDER"""
import json
import os
import struct
import sys

source, folder = sys.argv[1:]
data = open(source, "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, tensors = json.loads(data[8:8 + length]), data[8 + length:]


def write(name, content):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(content)


def joined(entries, content):
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + content


os.makedirs(os.path.join(folder, "no_model"))
os.makedirs(os.path.join(folder, "no_part"))
os.makedirs(os.path.join(folder, "no_file", "model.safetensors"))
os.makedirs(os.path.join(folder, "no_index", "model.safetensors.index.json"))
write("short.safetensors", data[:-5])
write("empty.safetensors", b"")
write("noise.safetensors", os.urandom(1000))
reshaped = json.loads(json.dumps(header))
name = "head.weight"
reshaped[name]["shape"].reverse()
write("reshaped.safetensors", joined(reshaped, tensors))
fewer = {k: v for k, v in header.items() if k != "__metadata__"}
last = max(fewer, key=lambda k: fewer[k]["data_offsets"][1])
end = fewer.pop(last)["data_offsets"][0]
write("fewer.safetensors", joined(fewer, tensors[:end]))
write("no_part/model.safetensors.index.json", json.dumps({"weight_map": {name: "part.safetensors"}}).encode())
