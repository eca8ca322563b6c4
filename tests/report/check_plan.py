"""Checks the page about a plan against what pdc prints:  check_plan.py PDC PAGE FOLDER OPTIONS... MODEL

`pdc plan OPTIONS MODEL` is run again for the plan's JSON, its table, other numbers of ranks, other batches and, unless
OPTIONS make programs that do not train, for the comparison of schedules. Where a Chromium is installed the page is
opened in it. All numbers are as pdc prints them."""
import json
import re
import subprocess
import sys

import page

pdc, path, options = sys.argv[1], sys.argv[2], sys.argv[3:]
text, outline, data = page.read(path)
for section in ("figures", "plan", "others", "model", "cluster", "timelines", "shares", "memory", "ranks", "batches", "schedules",
                "missing", "legend"):
    assert section in outline.ids, section


def said(*more, without=()):
    """What pdc plan prints with some more options, and without some (each has a value)."""
    kept = [o for i, o in enumerate(options) if o not in without and (i == 0 or options[i - 1] not in without)]
    return subprocess.run([pdc, "plan", *kept[:-1], *more, kept[-1]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def predicted_ms(printed):
    return re.search(rb"^predicted: ([0-9.]+) ms", printed.stdout, re.M)[1].decode()


trains = not {"--infer", "--generate"} & set(options)
generates = "--generate" in options
plan, table = data["plan"], said()
assert plan == json.loads(said("--emit", "plan").stdout), "the plan"
seconds = sum(s["forward_seconds"] for s in plan["stages"]) if generates else plan["batch_seconds"]
assert predicted_ms(table) == f"{seconds * 1e3:.2f}", "the predicted time"
if not generates:
    waiting = re.search(rb"([0-9.]+) % of the ranks' time", table.stdout)[1].decode()
    assert waiting == f"{100 * data['waiting']:.1f}", "the share of waiting"
runners_up = re.findall(rb"^ +([0-9.]+) ms +[-+0-9.]+ %  microbatch (\d+)", table.stdout, re.M)
assert [(f"{r['seconds'] * 1e3:.2f}", str(r["microbatch"])) for r in data["runners_up"]] == \
    [(a.decode(), b.decode()) for a, b in runners_up], "the runners-up"

# ---- the model's picture: a line a cut, and only colours of stages that there are
picture = data["picture"]
assert picture.count("<line class=\"cut\"") == len(plan["stages"]) - 1, "cuts"
colours = {int(c) for c in re.findall(r'<rect class="s(\d)" x="150"[^>]*rx="5"', picture)}
assert colours == {s % 6 for s in range(len(plan["stages"]) // plan.get("chunks", 1))}, colours

# ---- placement: ranks in order on devices in order, one machine of them
chunks = plan.get("chunks", 1)
n_stages = len(plan["stages"]) // chunks
replicas = [s["replicas"] for s in plan["stages"][:n_stages]]
ranks = sum(replicas)
assert data["device_of"] == list(range(ranks)) and len(data["limits"]) == ranks, data["device_of"]
assert data["cluster"]["given"] is False and data["cluster"]["levels"][0]["count"] >= ranks
assert all(limit >= s["peak_bytes"] for limit in data["limits"] for s in plan["stages"]), data["limits"]
if "--memory" in options:
    process = 8 << 20  # bytes beside the arena
    assert set(data["limits"]) == {int(options[options.index("--memory") + 1]) - process}, data["limits"]

# ---- the timeline: two updates of the first rank in the steady state, each about a batch long
if generates:
    assert "predicted" not in data and "before the next one is known" in data["unpredicted"]
else:
    t = data["predicted"]
    width = len(t["fields"])
    bars = [t["bars"][i:i + width] for i in range(0, len(t["bars"]), width)]
    assert len(t["ranks"]) == (n_stages if data["first_replicas"] else ranks)
    assert data["first_replicas"] == (ranks > 64)
    assert {b[0] for b in bars} == set(range(len(t["ranks"]))), "a rank does nothing"
    if trains:
        updates = sorted(b[2] + b[3] for b in bars if b[0] == 0 and t["works"][b[1]] == "update")
        assert len(updates) == 2, updates
        # transfers take none in it: it is no longer than the planned batch, nor much shorter here
        assert 0.5 < (updates[1] - updates[0]) / 1e6 / plan["batch_seconds"] < 1.05, (updates, plan["batch_seconds"])
        forwards = [b for b in bars if t["works"][b[1]] == "forward" and b[0] == 0]
        assert len(forwards) >= 2 * plan["microbatches"] * chunks / replicas[0] - 1, len(forwards)
        assert len(data["in_flight"]) == n_stages and min(data["in_flight"]) >= 1, data["in_flight"]

# ---- plans for other numbers of ranks and for other batches are those that pdc makes for them
asked = data["asked"]
shards = plan.get("tensor", 1)  # ranks that share the layers of one rank of the pipeline
groups = asked // shards
most = max(groups, 16)
assert [p["ranks"] for p in data["by_ranks"]] == \
    [shards * n for n in sorted({groups, most, *(2 ** k for k in range(13) if 2 ** k <= most)})]
schedule = () if not trains else ("--schedule", plan["schedule"])
chosen = [p for p in data["by_ranks"] + data.get("by_batch", []) if p.get("chosen")]
assert len(chosen) == (1 if generates else 2) and all(p["used"] == ranks * shards for p in chosen), chosen


def check(point, *more):
    printed = said(*schedule, *more, without=("-n", "--schedule"))
    if "why" in point:
        assert printed.returncode == 1 and point["why"] in printed.stderr.decode(), (point, printed.stderr)
    else:
        assert f"{point['seconds'] * 1e3:.2f}" == predicted_ms(printed), (point, printed.stdout)
        assert shards * sum(point["replicas"]) == point["used"] <= point["ranks"], point


if "--plan" not in options:
    for p in data["by_ranks"]:
        check(p, "-n", str(p["ranks"]))
    for p in data.get("by_batch", []):
        check(p, "-n", str(asked), "-D", f"batch={p['batch']}")
assert generates == ("by_batch" not in data)
if not generates:
    batch = plan["batch"]
    assert [p["batch"] for p in data["by_batch"]] == [b // 2 for b in (batch, 2 * batch, 4 * batch, 8 * batch, 16 * batch)
                                                      if b % 2 == 0]

# ---- schedules beside each other, as --compare prints them
assert trains == ("schedules" in data)
if trains:
    more = ("-n", str(ranks)) if "--plan" in options else ()
    lines = said("--compare", *more, without=("--schedule", "--plan")).stdout.decode().splitlines()[1:9]
    assert len(lines) == len(data["schedules"]) == 8
    for line, row in zip(lines, data["schedules"]):
        assert line.startswith(row["label"]), (line, row)
        if "why" in row:
            assert line.endswith(row["why"]), (line, row)
            continue
        cells = re.split(r"  +", line)
        assert cells[1:4] == [f"{row['seconds'] * 1e3:.2f}", f"{row['times']:.2f}", str(row["microbatch"])], (line, row)
        assert cells[4] == ("yes" if row["recompute"] else "no") and cells[-1] == ",".join(map(str, row["replicas"]))
        assert f"{100 * row['waiting']:.1f} %" in line, (line, row)
        assert f"{row['critical']}, {100 * row['share']:.0f} %" in line, (line, row)

# ---- in a browser
result = page.in_browser(text, """
const count = (what) => document.querySelectorAll(what).length;
const result = {errors: said, title: section("title").textContent, images: document.images.length};
result.shown = [...document.querySelectorAll("section")].filter((s) => !s.hidden).map((s) => s.id);
result.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
result.rows = Object.fromEntries(result.shown.map((id) => [id, count(`#${id} tbody tr`)]));
result.placed = [...document.querySelectorAll(".device b")].map((b) => b.textContent);
result.stages = [...document.querySelectorAll(".device:has(b)")].map((d) => d.lastChild.textContent);
result.tracks = count(".track.stacked");
result.figures = document.getElementById("figures").textContent;
result.drawn = count("#ranks .curve, #batches .curve");
result.colours = [...document.querySelectorAll(".device:has(b)")].map((d) => [getComputedStyle(d).color,
  getComputedStyle(d).backgroundColor]);
for (const svg of document.querySelectorAll(".curve svg")) {
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: box.top + 50}));
  result.tip = document.getElementById("tip").textContent;
}
for (let i = 0; i < 3; i++) section("theme").click();
""")
if not result:
    sys.exit(0)
assert result["errors"] == [] and result["images"] == 0 and not result["wide"], result
assert result["title"] == plan["model"], result
rows = result["rows"]
assert rows["plan"] == len(plan["stages"]) and rows["cluster"] == n_stages, rows
assert rows.get("others", 0) == len(data["runners_up"]) and rows["ranks"] == len(data["by_ranks"]), rows
assert rows.get("batches", 0) == len(data.get("by_batch", [])) and rows.get("schedules", 0) == (8 if trains else 0), rows
assert result["placed"] == [str(r) for r in range(ranks)], result["placed"]
assert result["stages"] == [f"S{s}" for s, n in enumerate(replicas) for _ in range(n)], result["stages"]
assert result["tracks"] == (ranks if ranks <= 64 else n_stages), result["tracks"]
assert f"{seconds * 1e3:.2f} ms" in result["figures"], result["figures"]
assert re.match(r"(batch|ranks) [\d,]+\n", result["tip"]), result["tip"]


def luminance(colour):
    parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


for one, other in result["colours"]:  # contrast, as WCAG 2 defines it
    low, high = sorted((luminance(one), luminance(other)))
    assert (high + 0.05) / (low + 0.05) >= 4.5, (one, other)
