// What the pages about runs and about plans share: the data that pdc wrote, title, figures for people, tables, the
// timeline's legend, the ranks' shares, a plan's table, the theme.
const run = JSON.parse(document.getElementById("data").textContent);
const section = (id) => document.getElementById(id);
const hide = (id) => { section(id).hidden = true; };
const list = (x) => (Array.isArray(x) ? x : []);
const object = (x) => (x && typeof x === "object" && !Array.isArray(x) ? x : {});

const log = run.log || null, plan = object(run.plan), stages = list(plan.stages).map(object);
const start = object(log && log.start), end = object(log && log.end);
// A rank has parts of the model, its chunks: every so many, or, where stages spill, so many in a row.
const inRow = Array.isArray(plan.chunks) && plan.chunks.length > 0 && plan.chunks.every(isNumber);
const chunks = inRow ? Math.max(...plan.chunks) : isNumber(plan.chunks) ? plan.chunks : 1;
const positions = inRow ? plan.chunks.length : stages.length / chunks;
const firstPart = (stage) => (inRow ? plan.chunks.slice(0, stage).reduce((a, b) => a + b, 0) : stage);
function placeOf(part) {
  if (!inRow) return {stage: part % positions, chunk: Math.floor(part / positions)};
  let stage = 0;
  while (stage + 1 < positions && firstPart(stage + 1) <= part) stage++;
  return {stage, chunk: part - firstPart(stage)};
}
const ofPlan = (name) => (run.plan ? plan[name] : start[name]);
// Programs of `pdc --infer` and `pdc --generate` have no backward passes and no updates.
const forwardOnly = ofPlan("schedule") === "forward", generates = isNumber(plan.cache_bytes_a_token);
const plural = (n, what) => `${figure(n)} ${what}${n === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;
const percent = (x) => (isNumber(x) ? `${(100 * x).toFixed(1)} %` : "–");

function bytes(n) {
  if (!isNumber(n)) return "–";
  const unit = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(n))) / 10)));
  return `${unit ? (n / 1024 ** unit).toFixed(1) : n} ${["bytes", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

function title() {
  const model = ofPlan("model"), schedule = ofPlan("schedule"), words = [];
  section("title").textContent = typeof model === "string" ? model : run.directory;
  const n = run.plan ? stages.length : start.stages, held = inRow ? plan.chunks.join(", ") : chunks;
  const ranks = `${plural(positions, "rank")} of ${held} ${chunks === 1 ? "chunk" : "chunks"}`;
  if (isNumber(n)) words.push(chunks > 1 ? ranks : plural(n, "stage"));
  const replicas = run.plan ? stages.map((s) => s.replicas) : list(start.replicas);
  if (replicas.some((r) => r > 1)) words.push(`replicas ${replicas.join(", ")}`);
  if (typeof schedule === "string") words.push(`schedule ${schedule}`);
  const parts = `${plural(ofPlan("microbatches"), "microbatch")} of ${ofPlan("microbatch")}`;
  if (isNumber(ofPlan("batch"))) words.push(`batches of ${ofPlan("batch")} = ${parts}`);
  if (isNumber(start.parameters)) words.push(`${start.parameters.toLocaleString("en")} parameters`);
  if (ofPlan("target") === "cuda") words.push(`a GPU a rank, ${ofPlan("precision")}`);
  else if (isNumber(ofPlan("threads"))) words.push(`${plural(ofPlan("threads"), "thread")} a rank`);
  if (typeof run.directory === "string") words.push(run.directory);
  section("subtitle").textContent = words.join(" · ");
}

function addFigure(value, name) {
  const box = element("div", {class: "figure"}, element("b", {}, value), element("span", {}, name));
  section("figures").append(box);
}

function bubbleOf(timeline) {
  const shares = timeline ? timeline.shares.filter(Boolean).map((s) => s.bubble) : [];
  return shares.length ? shares.reduce((a, b) => a + b, 0) / shares.length : NaN;
}

// ---- timelines, shares

function legend() {
  const used = new Set();
  for (const t of [run.trace, run.predicted])
    for (let i = 0; t && i < t.bars.length; i += t.fields.length) used.add(t.works[t.bars[i + 1]]);
  const names = (run.trace || run.predicted).works.filter((w) => used.has(w));
  for (const work of names) {
    const swatch = element("span", {class: SHORT[work] ? "swatch" : "swatch thin"});
    const stripe = work === "recompute" ? "var(--forward)" : "var(--page)";
    const hatching = `repeating-linear-gradient(135deg, var(--${work}) 0 4px, ${stripe} 4px 5.5px)`;
    swatch.style.background = HATCHED.has(work) ? hatching : `var(--${work})`;
    section("legend").append(element("li", {}, swatch, work));
  }
  if (chunks > 1) {
    const swatch = element("span", {class: "swatch"});
    swatch.style.background = "linear-gradient(var(--forward) 70%, var(--text) 70%)";
    section("legend").append(element("li", {}, swatch, "chunks after a rank's first"));
  }
}

const pictures = [];

// Heads of columns that hold words; the first column always does.
const WORDS = new Set(["pieces", "ended", "ranks", "devices", "kinds", "ranks by stage", "cut at", "why there is none"]);
function table(place, heads, rows) {
  const cell = (tag, value, i) => element(tag, i === 0 || WORDS.has(heads[i]) ? {class: "text"} : {}, value);
  const line = (tag, values) => element("tr", {}, ...values.map((v, i) => cell(tag, v, i)));
  place.append(element("table", {}, element("thead", {}, line("th", heads)),
    element("tbody", {}, ...rows.map((row) => line("td", row)))));
}

function shares() {
  if (![run.trace, run.predicted].some((t) => t && t.shares.some(Boolean))) {
    hide("shares");
    return;
  }
  const updates = [run.trace, run.predicted].some((t) => t && t.shares.some((s) => s && s.updates > 0));
  if (!updates)
    section("shares").querySelector(".hint").textContent =
      "Shares of the time from a rank's first pass to its last. The bubble is the remaining time: waiting for other " +
      "ranks, and messages.";
  const works = ["forward", "recompute", "backward", "weights", "update"];
  const all = [run.trace, run.predicted].filter(Boolean);
  const used = works.filter((w) => all.some((t) => t.shares.some((s) => s && s[w] > 0)));
  const ranks = all[0].ranks, both = run.trace && run.predicted;
  const heads = ["", ...(run.trace ? ["bubble"] : []), ...(run.predicted ? ["bubble, predicted"] : [])];
  for (const w of used) heads.push(w, ...(both ? [`${w}, predicted`] : []));
  const rows = ranks.map((name, rank) => {
    const of = (t) => (t && t.shares[rank]) || {}, row = [name];
    if (run.trace) row.push(percent(of(run.trace).bubble));
    if (run.predicted) row.push(percent(of(run.predicted).bubble));
    for (const w of used) row.push(...all.map((t) => percent(of(t)[w])));
    return row;
  });
  table(section("shares").querySelector(".scroll"), heads, rows);
}

// ---- plan

// The most turns between their forward and their backward at once, of a stage's first rank.
function inFlight(timeline, rank) {
  const {bars, fields, works} = timeline;
  let now = 0, most = 0;
  for (let i = 0; i < bars.length; i += fields.length) {
    if (bars[i] !== rank) continue;
    if (works[bars[i + 1]] === "forward") now++;
    if (works[bars[i + 1]] === "backward") now--;
    most = Math.max(most, now);
  }
  return most;
}

function planTable() {
  if (!run.plan) {
    hide("plan");
    return;
  }
  const text = (x) => (typeof x === "string" ? x : "");
  const why = [text(plan.why), text(plan.costs) && `Costs: ${plan.costs}.`];
  section("plan").querySelector(".hint").textContent = why.filter(Boolean).join(" ");
  const ms = (s) => (isNumber(s) ? (s * 1e3).toFixed(2) : "–");
  const split = object(run.predicted).shares && run.predicted.shares.some((s) => s && s.weights > 0);
  const any = (name) => stages.some((s) => isNumber(s[name]));
  const training = (columns) => (forwardOnly ? [] : columns);
  const columns = [
    ["stage", (s, i) => (chunks > 1 ? `${placeOf(i).stage}, chunk ${placeOf(i).chunk}` : String(i))],
    ["pieces", (s) => [...new Set([s.starts_at, s.ends_with])].filter((x) => typeof x === "string").join(" … ")],
    ...(stages.some((s) => s.replicas > 1) ? [["replicas", (s) => figure(replicasOf(s))]] : []),
    ["parameters", (s) => (isNumber(s.parameters) ? s.parameters.toLocaleString("en") : "–")],
    ["forward ms", (s) => ms(s.forward_seconds)],
    ...training([["backward ms", (s) => ms(s.backward_seconds)]]),
    ...(split ? [["its weights' ms", (s) => ms(s.weights_seconds)]] : []),
    ...training([["update ms", (s) => ms(s.update_seconds)],
      ["recompute", recomputation]]),
    ...training(run.in_flight ? [["in flight", (s, i) => figure(run.in_flight[placeOf(i).stage])]]
      : run.predicted ? [["in flight", (s, i) => figure(inFlight(run.predicted, firstRank(placeOf(i).stage)))]] : []),
    ["sends", (s, i) => (i + 1 < stages.length ? bytes(s.send_bytes) : "–")],
    ...(any("peak_bytes") ? [["memory", (s) => bytes(s.peak_bytes)]] : []),
    ...(any("weight_bytes") ? [["weights", (s) => bytes(s.weight_bytes)]] : []),
    ...training(any("gradient_bytes") ? [["gradients", (s) => bytes(s.gradient_bytes)]] : []),
    ...training(any("optimizer_bytes") ? [["optimizer", (s) => bytes(s.optimizer_bytes)]] : []),
    ...(any("cache_bytes") ? [["caches", (s) => bytes(s.cache_bytes)]] : []),
  ];
  const rows = stages.map((s, i) => columns.map((c) => c[1](s, i)));
  table(section("plan").querySelector(".scroll"), columns.map((c) => c[0]), rows);
}

// `recompute` of a stage: an object with its layers and their worth, or short: true, false, or a list of layers.
function recomputation(s) {
  const r = s.recompute;
  const layers = Array.isArray(r) ? r : Array.isArray(object(r).layers) ? r.layers : [];
  const what = [...(r === true || object(r).whole === true ? ["the whole stage"] : []), ...layers];
  const { saves_bytes: saves, adds_seconds: adds } = object(r);
  const worth = isNumber(saves) && isNumber(adds) ? `; saves ${bytes(saves)}, adds ${(adds * 1e3).toFixed(2)} ms` : "";
  return what.length ? what.join(", ") + worth : "no";
}

const replicasOf = (s) => (isNumber(s.replicas) ? s.replicas : 1);
function firstRank(stage) {
  return stages.slice(0, stage).reduce((n, s) => n + replicasOf(s), 0);
}

// ---- theme

function theme() {
  const button = section("theme"), root = document.documentElement, choices = ["automatic", "light", "dark"];
  const set = (choice) => {
    if (choice === "automatic") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", choice);
    button.textContent = `Theme: ${choice}`;
    pictures.forEach((p) => p.draw());
  };
  let at = 0;
  button.onclick = () => set(choices[(at = (at + 1) % choices.length)]);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => pictures.forEach((p) => p.draw()));
}
