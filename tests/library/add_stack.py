"""Writes a copy of a Mixtral's safetensors that also holds one stack of experts:  add_stack.py FROM TO"""
import json
import struct
import sys

data = open(sys.argv[1], "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + length]), data[8 + length:]
experts = "model.layers.0.block_sparse_moe.experts."
parts = [header[f"{experts}{i}.w2.weight"] for i in range(sum(name.startswith(experts) and name.endswith("w2.weight") for name in header))]
stack = b"".join(body[part["data_offsets"][0]:part["data_offsets"][1]] for part in parts)
header[experts + "down_proj"] = {"dtype": parts[0]["dtype"], "shape": [len(parts), *parts[0]["shape"]],
                                 "data_offsets": [len(body), len(body) + len(stack)]}
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + body + stack)
