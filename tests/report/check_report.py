"""Checks a page against the run beside it:  check_report.py PAGE PART...

PART: log, trace, plan, predicted: parts that it must hold, and no others; cut: the log ends within a line;
hostile: texts that try to be markup. Where a Chromium is installed the page is opened in it, moved and zoomed."""
import json
import os
import re
import sys

import page

path, parts = sys.argv[1], set(sys.argv[2:])
directory = os.path.dirname(path)
text, outline, data = page.read(path)
for section in ("figures", "timelines", "shares", "curves", "plan", "model", "memory", "missing", "legend"):
    assert section in outline.ids, section
for name in ("log", "trace", "plan", "predicted", "picture"):
    assert (data.get(name) is not None) == (name in parts), name
if "log" in parts:
    with open(directory + "/log.jsonl") as f:
        lines = [json.loads(line) for line in f if line.endswith("\n")]
    updates = [line for line in lines if "loss" in line]
    assert data["log"]["step"] == [line["step"] for line in updates] and len(updates) == 10
    for name in ("loss", "grad_norm", "lr", "ms"):
        assert data["log"][name] == [line[name] for line in updates], name
    validations = [line["validation_loss"] for line in lines if "validation_loss" in line]
    assert data["log"]["validation"]["loss"] == validations
    if "hostile" not in parts:
        accuracy = {"name": "accuracy", "training": [line["accuracy"] for line in updates],
                    "validation": [line["validation_accuracy"] for line in lines if "validation_loss" in line]}
        assert data["log"]["metrics"] == [accuracy], data["log"]["metrics"]
    assert data["log"]["cut"] == ("cut" in parts) and (data["log"]["end"] is None) == ("cut" in parts)
if "trace" in parts:
    with open(directory + "/trace.json") as f:
        events = json.load(f)["traceEvents"]
    timeline = data["trace"]
    bars = [e for e in events if e["ph"] == "X"]
    width = len(timeline["fields"])
    assert timeline["total"] == len(bars) == len(timeline["bars"]) // width
    assert len(timeline["arrows"]) == 4 * sum(e["ph"] == "s" for e in events)
    shown = sorted((timeline["bars"][i], round(timeline["bars"][i + 2], 2))
                   for i in range(0, len(bars) * width, width))
    assert all(a[0] == b[0] and abs(a[1] - b[1]) < 0.011
               for a, b in zip(shown, sorted((e["pid"], round(e["ts"], 2)) for e in bars)))
    # the share of forward on rank 0, by hand: ten updates, of which a quarter at both ends is left out
    computed = [e for e in bars if e["pid"] == 0 and e["tid"] == 0]
    ends = sorted(e["ts"] + e["dur"] for e in computed if e["cat"] == "update")
    start, end = ends[2], ends[-3]

    def within(*kinds):
        return sum(max(0, min(e["ts"] + e["dur"], end) - max(e["ts"], start))
                   for e in computed if e["cat"] in kinds)

    whole = end - start - within("validation", "checkpoint")
    share = timeline["shares"][0]
    assert abs(share["forward"] - within("forward") / whole) < 2e-6, share
    busy = within("forward", "backward", "update") / whole
    assert abs(share["bubble"] - (1 - busy)) < 2e-6 and 0 < share["bubble"] < 1, share
if "plan" in parts:
    with open(directory + "/plan.json") as f:
        assert data["plan"] == json.load(f)
if "picture" in parts:
    with open(directory + "/model.svg") as f:
        assert data["picture"] == f.read()
if "predicted" in parts:
    assert len(data["predicted"]["ranks"]) == 2 and all(s["bubble"] < 0.5 for s in data["predicted"]["shares"])

# ---- in a browser
result = page.in_browser(text, """
const result = {errors: said, images: document.images.length, title: section("title").textContent};
result.shown = [...document.querySelectorAll("section")].filter((s) => !s.hidden).map((s) => s.id);
result.rows = document.querySelectorAll("#plan tbody tr").length;
result.curves = document.querySelectorAll("#curves svg path").length;
result.notes = document.querySelectorAll("#missing li").length;
result.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
if (pictures.length) {
  const p = pictures[0], span = () => p.to - p.from, box = p.canvas.getBoundingClientRect();
  const views = [span()];
  const place = (x) => ({clientX: box.left + x, clientY: box.top + 30, cancelable: true});
  p.canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -200, ...place(box.width / 2)}));
  views.push(span());
  p.canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "-"}));
  views.push(span());
  const from = p.from;
  p.canvas.setPointerCapture = () => {};
  const point = (type, id, x) => p.canvas.dispatchEvent(new PointerEvent(type, {pointerId: id, ...place(x)}));
  point("pointerdown", 1, 400);
  point("pointermove", 1, 300);
  result.dragged = p.from - from;
  point("pointerdown", 2, 400);
  const before = span();
  point("pointermove", 2, 500);
  result.pinched = span() / before;
  point("pointerup", 1, 0);
  point("pointerup", 2, 0);
  p.canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "0"}));
  result.whole = p.from <= p.start && p.to >= p.end;
  result.views = views;
  const first = p.lanes[0][0][0], middle = p.data.bars[first + 2] + p.data.bars[first + 3] / 2;
  const x = p.left + (middle - p.from) * p.scale;
  result.tip = p.describe(p.barAt(x, 30));
}
""")
if not result:
    sys.exit(0)
assert result["errors"] == [] and result["images"] == ("picture" in parts) and not result["wide"], result
assert result["undrawn"] == 0, result
shown = set(result["shown"])
timelines = parts & {"trace", "predicted"}
assert ("timelines" in shown) == ("shares" in shown) == bool(timelines), result
assert ("curves" in shown) == ("log" in parts) and ("plan" in shown) == ("plan" in parts), result
assert ("model" in shown) == ("picture" in parts), result
assert result["rows"] == (2 if "plan" in parts else 0) and result["curves"] == (7 if "log" in parts else 0), result
assert (result["notes"] > 0) == (not {"log", "trace", "plan", "predicted"} <= parts or "cut" in parts), result
if timelines:
    before, near, far = result["views"]
    assert near < before and far > near and result["whole"], result
    assert result["dragged"] > 0 and 0.3 < result["pinched"] < 0.8, result
    assert re.match(r"forward, microbatch 1\n", result["tip"]), result
if "hostile" in parts:
    assert result["title"] == '<b>"&amp;</title>', result
