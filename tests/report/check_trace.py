"""Checks a trace against its run's plan:  check_trace.py RUN_DIR STEPS DELAY

Every pass and message is there once, events nest, passes are in the order that data allow, every arrow joins a
send to its receive, and no message arrives before it was sent. Clocks of ranks on one machine agree to within what
the trace says of them (clock_error_us), which must be below 10 ms. DELAY: updates by which the weights of a pass
lag, by stage."""
import collections
import json
import sys

directory, steps, delay = sys.argv[1], int(sys.argv[2]), [int(d) for d in sys.argv[3].split(",")]
with open(directory + "/trace.json") as f:
    trace = json.load(f)
with open(directory + "/plan.json") as f:
    plan = json.load(f)
events, other = trace["traceEvents"], trace["otherData"]
# Where stages spill the chunks of each are parts in a row, otherwise every so many.
chunks = plan.get("chunks", 1)
positions = len(chunks) if isinstance(chunks, list) else len(plan["stages"]) // chunks
held = chunks if isinstance(chunks, list) else [chunks] * positions
first_part = [sum(held[:i]) if isinstance(chunks, list) else i for i in range(positions)]
step = 1 if isinstance(chunks, list) else positions
replicas = [plan["stages"][first].get("replicas", 1) for first in first_part]
place = [(stage, replica) for stage in range(positions) for replica in range(replicas[stage])]  # by rank
microbatches = plan["microbatches"]
total = steps * microbatches
error = other["clock_error_us"]
assert other["ranks"] == len(place) and other["steps"] == steps and other["dropped"] == 0, other
assert other["model"] == plan["model"] and other["schedule"] == plan["schedule"]
assert 0 <= error < 10000, f"clocks are known to {error} us only"

names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
assert len(names) == len(place)
for rank, (stage, replica) in enumerate(place):
    assert names[rank].startswith(f"rank {rank}: stage {stage}"), names[rank]
    assert (f"replica {replica}" in names[rank]) == (replicas[stage] > 1), names[rank]

# ---- events of one thread nest; times are printed to 0.001 us
threads = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X":
        assert e["dur"] >= 0 and e["name"].split()[-1].isdigit()
        threads[e["pid"], e["tid"]].append(e)
for thread in threads.values():
    thread.sort(key=lambda e: (e["ts"], -e["dur"]))
    around = []
    for e in thread:
        while around and around[-1]["ts"] + around[-1]["dur"] <= e["ts"] + 0.002:
            around.pop()
        assert not around or e["ts"] + e["dur"] <= around[-1]["ts"] + around[-1]["dur"] + 0.002, (around[-1], e)
        around.append(e)

# ---- every pass once, where it belongs, with the weights it should use
passes = collections.defaultdict(dict)  # category -> (part of the model, microbatch) -> event
updates = collections.defaultdict(list)
for e in events:
    if e["ph"] != "X":
        continue
    stage, replica = place[e["pid"]]
    k = e["args"].get("microbatch")
    if e["cat"] in ("forward", "backward", "recompute", "weights"):
        assert (k - 1) % replicas[stage] == replica, e
        where = (first_part[stage] + e["args"].get("chunk", 0) * step, k)
        assert where not in passes[e["cat"]], e
        passes[e["cat"]][where] = e
        assert e["args"]["version"] == max((k - 1) // microbatches - delay[stage], 0), e
    elif e["cat"] == "update":
        updates[e["pid"]].append(e)
        by_host = plan.get("update") == "host" and held[stage] > 1
        assert e["args"].get("by") == ("host" if by_host else None), e
parts = len(plan["stages"])
every = {(part, k) for part in range(parts) for k in range(1, total + 1)}
assert set(passes["forward"]) == every and set(passes["backward"]) == every
assert set(passes["weights"]) in (every, set())
assert (set(passes["weights"]) == every) == (plan["schedule"] == "zb_h1")
recompute = [stage["recompute"] for stage in plan["stages"]]
again = {(part, k) for part, k in every if recompute[part] is True or (recompute[part] and recompute[part]["whole"])}
assert set(passes["recompute"]) <= again and (not again or passes["recompute"])
for rank in range(len(place)):
    assert [e["args"]["update"] for e in updates[rank]] == list(range(1, steps + 1))


def ends(e):
    return e["ts"] + e["dur"]


for part, k in every:
    forward, backward = passes["forward"][part, k], passes["backward"][part, k]
    assert ends(forward) <= backward["ts"] + 0.002
    if part + 1 < parts:
        assert ends(forward) <= passes["forward"][part + 1, k]["ts"] + error
        assert ends(passes["backward"][part + 1, k]) <= backward["ts"] + error
    if (part, k) in passes["weights"]:
        assert ends(backward) <= passes["weights"][part, k]["ts"] + 0.002

# ---- where parts come and go: each forward or backward pass is behind a wait for its blocks, the model's last part's two
# behind one
for rank, of_rank in enumerate(held if plan["schedule"] == "spilled" else []):
    waits = [e for e in events if e["ph"] == "X" and e["cat"] == "blocks" and e["pid"] == rank]
    waits.sort(key=lambda e: e["ts"])
    if of_rank == 1:
        assert not waits
        continue
    mine = [e for of in passes.values() for e in of.values() if e["pid"] == rank]
    first = list(passes["forward"].values()) + list(passes["recompute"].values())
    first += [e for (part, k), e in passes["backward"].items() if (part, k) not in again and part + 1 < parts]
    first = [e for e in first if e["pid"] == rank]
    for e in first:
        before = [w for w in waits if ends(w) <= e["ts"] + 0.002]
        assert before, e
        last = before[-1]
        assert not any(last["ts"] < ends(p) <= e["ts"] + 0.002 for p in mine), (last, e)
    assert len(waits) > len(first)  # and there are those for squares and updates

# ---- messages: an arrow for each, from a send to its receive
messages = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X" and e["cat"] in ("send", "receive"):
        messages[e["cat"], e["name"].split()[1], e["pid"]].append(e)
        assert e["args"]["bytes"] > 0 and 0 <= e["args"]["peer"] < len(place)
starts = {e["id"]: e for e in events if e["ph"] == "s"}
arrivals = {e["id"]: e for e in events if e["ph"] == "f"}
assert sum(e["ph"] == "s" for e in events) == sum(e["ph"] == "f" for e in events) == len(starts)
crossed = 0 if positions == 1 else positions - 1 if step == 1 else parts - 1  # parts in a row send each other nothing
assert set(starts) == set(arrivals) and len(starts) == 2 * crossed * total, len(starts)
assert sum(len(m) for m in messages.values()) == 2 * len(starts)
sends = {(what, rank, e["ts"]): e for (kind, what, rank), m in messages.items() if kind == "send" for e in m}
for number, s in starts.items():
    f = arrivals[number]
    sent = sends[s["name"], s["pid"], s["ts"]]
    received = min(messages["receive", f["name"], f["pid"]], key=lambda e: abs(ends(e) - f["ts"]))
    assert abs(ends(received) - f["ts"]) < 0.01
    assert sent["args"]["microbatch"] == received["args"]["microbatch"], (sent, received)
    assert sent["args"]["peer"] == f["pid"] and received["args"]["peer"] == s["pid"]
    assert sent["args"]["bytes"] == received["args"]["bytes"]
    assert ends(received) >= sent["ts"] - error, (sent, received)
print(f"{directory}: {len(events)} events, {len(starts)} messages, clocks within {error} us")
