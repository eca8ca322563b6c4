"""Prints the figures of a log in the form of read_events.py; of a step that was logged twice, the later."""
import json
import struct
import sys

figures = {}
for line in open(sys.argv[1]):
    entry = json.loads(line)
    step = entry.pop("step", None)
    if step is None:
        continue
    if "validation_loss" in entry:  # what else a validation's line holds is about the validation
        entry = {name: value for name, value in entry.items() if name.startswith("validation_")}
    for name, value in entry.items():
        figures[step, name] = struct.unpack("f", struct.pack("f", value))[0]
for (step, name), value in sorted(figures.items()):
    print(step, name, f"{value:.6g}")
