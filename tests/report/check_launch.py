"""Checks the page about several models against what the launch left:  check_launch.py PAGE PART...

PART: plan, timeline, logs: parts that it must hold, and no others; cut: the first model's log ends within a line. Where
a Chromium is installed the page is opened in it."""
import json
import os
import sys

import page

path, parts = sys.argv[1], set(sys.argv[2:])
directory = os.path.dirname(path)
text, outline, data = page.read(path)
for section in ("figures", "timelines", "shares", "models", "curves", "missing", "legend"):
    assert section in outline.ids, section


def load(name):
    with open(os.path.join(directory, name), encoding="utf-8") as f:
        return json.load(f)


plan = load("plan.json")["sharp"] if "plan" in parts else None
timeline = load("timeline.json") if "timeline" in parts else None
assert data["sharp"] == plan and data["left"] == (timeline["otherData"] if timeline else None)
listed = (timeline["otherData"] if timeline else plan)["models"]
names = [m["name"] for m in listed]
assert len(names) == 3 and [m["name"] for m in data["models"]] == names, names

# ---- the timeline: every turn, and what became of the models
busy = {}
if timeline:
    turns = [e for e in timeline["traceEvents"] if e["ph"] == "X"]
    trace = data["trace"]
    width = len(trace["fields"])
    bars = [trace["bars"][i:i + width] for i in range(0, len(trace["bars"]), width)]
    assert bars == [[e["tid"], names.index(e["name"]), e["ts"], e["dur"]] for e in turns] and len(bars) >= 3, bars
    assert trace["ranks"] == ["rank 0", "rank 1"]
    for e in turns:
        busy[e["name"], e["tid"]] = busy.get((e["name"], e["tid"]), 0) + e["dur"]
    assert [m["ended"] for m in listed] == ["finished", "finished", "failed"], listed
    assert [m["step"] for m in listed] == [9, 6, 1], listed
    for rank in (0, 1):  # no rank has two models at once
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in turns if e["tid"] == rank)
        assert all(a[1] <= b[0] + 1 for a, b in zip(spans, spans[1:])), spans
else:
    assert data["trace"] is None

# ---- the logs: losses of each
best = {}
for name, model in zip(names, data["models"]):
    log = os.path.join(directory, name, "log.jsonl")
    if "logs" not in parts:
        assert model["log"] is None
        continue
    with open(log, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f if line.endswith("\n")]
    assert model["log"]["loss"] == [line["loss"] for line in lines if "loss" in line]
    held = [line["validation_loss"] for line in lines if "validation_loss" in line]
    assert model["log"]["validation"]["loss"] == held
    if held:
        best[name] = min(held)

# ---- in a browser
result = page.in_browser(text, """
const words = (what) => [...document.querySelectorAll(what)].map((e) => e.textContent);
const result = {errors: said, title: section("title").textContent, notes: words("#missing li"), legend: words("#legend li")};
result.shown = [...document.querySelectorAll("section")].filter((s) => !s.hidden).map((s) => s.id);
result.heads = words("#models th");
result.rows = [...document.querySelectorAll("#models tbody tr")].map((r) => [...r.children].map((c) => c.textContent));
result.best = words("#models tr.best td:first-child");
result.work = words("#shares td");
result.curves = words("#curves h3");
result.lines = document.querySelectorAll("#curves svg path").length;
result.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
if (pictures.length) {
  const p = pictures[0], bar = p.lanes[0][0][0], middle = p.data.bars[bar + 2] + p.data.bars[bar + 3] / 2;
  result.tip = p.describe(p.barAt(p.left + (middle - p.from) * p.scale, 30));
}
for (let i = 0; i < 3; i++) section("theme").click();
""")
if not result:
    sys.exit(0)
assert result["errors"] == [] and not result["wide"] and result["title"] == ", ".join(names), result
shown = set(result["shown"])
assert ("timelines" in shown) == ("shares" in shown) == bool(timeline) and ("curves" in shown) == ("logs" in parts), result
rows = [dict(zip(result["heads"], row)) for row in result["rows"]]
assert [row["model"] for row in rows] == names, rows
assert bool(result["notes"]) == (not {"timeline", "logs"} <= parts or "cut" in parts), result
if timeline:
    first = next(e for e in turns if e["tid"] == 0)
    assert result["tip"].startswith(first["name"] + "\nrank 0\n") and result["legend"] == names, result
    whole = 1e6 * timeline["otherData"]["seconds"]
    for rank in (0, 1):
        share = sum(us for (_, on), us in busy.items() if on == rank) / whole
        assert result["work"][5 * rank + 1] == f"{100 * share:.1f} %", (share, result["work"])
    assert [row["updates"] for row in rows] == ["9", "6", "1"], rows
if "logs" in parts:
    ended = ["finished" if "cut" not in parts else "has not ended" if not timeline else "finished", "stopped by --stop-when"]
    assert [row["ended"] for row in rows[:2]] == ended, rows
    assert result["best"] == [min(best, key=best.get)], (result["best"], best)
    assert [row["least validation loss"] for row in rows] == [f"{best[n]:.4g}" if n in best else "–" for n in names], rows
    assert result["curves"][:2] == ["Loss", "Validation loss"] and result["lines"] >= 5, result
if timeline and "logs" in parts:
    assert rows[2]["ended"] == "failed", rows
