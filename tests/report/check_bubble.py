"""The bubble that the report predicts for d equal stages:  check_bubble.py PDC SCHEDULE D M CHUNKS WANT/OF"""
import json
import os
import subprocess
import sys
import tempfile

pdc, schedule, d, m, chunks, want = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), sys.argv[6]
want = int(want.split("/")[0]) / int(want.split("/")[1])
stage = {"forward_seconds": 0.001, "backward_seconds": 0.002, "weights_seconds": 0.001, "update_seconds": 0}
plan = {"model": "equal", "schedule": schedule, "batch": m, "microbatch": 1, "microbatches": m, "chunks": chunks,
        "stages": [stage] * (d * chunks)}
with tempfile.TemporaryDirectory() as directory:
    with open(os.path.join(directory, "plan.json"), "w") as f:
        json.dump(plan, f)
    subprocess.run([pdc, "report", directory], check=True)
    with open(os.path.join(directory, "report.html")) as f:
        data = json.loads(f.read().split('id="data">')[1].split("</script>")[0])
bubbles = [share["bubble"] for share in data["predicted"]["shares"]]
assert len(bubbles) == d and all(abs(bubble - want) < 2e-6 for bubble in bubbles), (bubbles, want)
