"""Turns of a launch on one rank against the longest remaining time first:  order.py PLAN TIMELINE [MODEL UPDATES]..."""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    planned = {m["name"]: m["update_seconds"] for m in json.load(f)["sharp"]["models"]}
with open(sys.argv[2], encoding="utf-8") as f:
    turns = [e["name"] for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
left = dict(zip(sys.argv[3::2], map(int, sys.argv[4::2])))
assert set(left) == set(planned), left


def seconds(model):
    return left[model] * planned[model]


expected = []
while any(left.values()):
    waiting = [m for m in planned if left[m] and m not in expected[-1:]]
    there = expected[-1] if expected and left[expected[-1]] else None
    longest = max(waiting, key=seconds, default=None)
    if there and longest:  # the digits of the plan decide nothing
        gap = abs(seconds(there) - seconds(longest)) / seconds(there)
        assert gap == 0 or gap > 1e-4, f"{there} and {longest} have nearly the same time left: take other updates"
    if there is None or (longest and seconds(longest) > seconds(there)):
        expected.append(longest)
    left[expected[-1]] -= 1
assert turns == expected, f"turns\n  {' '.join(turns)}\nand not\n  {' '.join(expected)}"
assert len(turns) > len(planned), "nobody took turns"
