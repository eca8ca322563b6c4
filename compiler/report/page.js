// The page: which sections there are follows from which parts of the run there are.
const run = JSON.parse(document.getElementById("data").textContent);
const section = (id) => document.getElementById(id);
const hide = (id) => { section(id).hidden = true; };
const list = (x) => (Array.isArray(x) ? x : []);
const object = (x) => (x && typeof x === "object" && !Array.isArray(x) ? x : {});

const log = run.log || null, plan = object(run.plan), stages = list(plan.stages).map(object);
const start = object(log && log.start), end = object(log && log.end);
const ofPlan = (name) => (run.plan ? plan[name] : start[name]);
const evaluation = object(log && log.evaluation), evaluates = !!log && !log.step.length && !!log.evaluation;
// Programs of `pdc --infer` and `pdc --generate` have no backward passes and no updates.
const forwardOnly = ofPlan("schedule") === "forward", generates = isNumber(plan.cache_bytes_a_token);
const plural = (n, what) => `${figure(n)} ${what}${n === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;
const percent = (x) => (isNumber(x) ? `${(100 * x).toFixed(1)} %` : "–");
const last = (x) => list(x).filter(isNumber).at(-1);

function bytes(n) {
  if (!isNumber(n)) return "–";
  const unit = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(n))) / 10)));
  return `${unit ? (n / 1024 ** unit).toFixed(1) : n} ${["bytes", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

function median(x) {
  const sorted = list(x).filter(isNumber).sort((a, b) => a - b), n = sorted.length;
  return n ? (sorted[Math.floor((n - 1) / 2)] + sorted[Math.floor(n / 2)]) / 2 : NaN;
}

// The first updates include what starts up.
const settled = (x) => list(x).slice(list(x).length > 8 ? 3 : 0);

// ---- title, figures

function title() {
  const model = ofPlan("model"), schedule = ofPlan("schedule"), words = [];
  section("title").textContent = typeof model === "string" ? model : run.directory;
  const n = run.plan ? stages.length : start.stages, chunks = isNumber(plan.chunks) ? plan.chunks : 1;
  const ranks = `${plural(n / chunks, "rank")} of ${plural(chunks, "chunk")}`;
  if (isNumber(n)) words.push(chunks > 1 ? ranks : plural(n, "stage"));
  const replicas = run.plan ? stages.map((s) => s.replicas) : list(start.replicas);
  if (replicas.some((r) => r > 1)) words.push(`replicas ${replicas.join(", ")}`);
  if (typeof schedule === "string") words.push(`schedule ${schedule}`);
  const parts = `${plural(ofPlan("microbatches"), "microbatch")} of ${ofPlan("microbatch")}`;
  if (isNumber(ofPlan("batch"))) words.push(`batches of ${ofPlan("batch")} = ${parts}`);
  if (isNumber(start.parameters)) words.push(`${start.parameters.toLocaleString("en")} parameters`);
  if (ofPlan("target") === "cuda") words.push(`a GPU a rank, ${ofPlan("precision")}`);
  else if (isNumber(ofPlan("threads"))) words.push(`${plural(ofPlan("threads"), "thread")} a rank`);
  words.push(run.directory);
  section("subtitle").textContent = words.join(" · ");
}

function bubbleOf(timeline) {
  const shares = timeline ? timeline.shares.filter(Boolean).map((s) => s.bubble) : [];
  return shares.length ? shares.reduce((a, b) => a + b, 0) / shares.length : NaN;
}

function addFigure(value, name) {
  const box = element("div", {class: "figure"}, element("b", {}, value), element("span", {}, name));
  section("figures").append(box);
}

// Of a run that went over its data once and trained nothing.
function evaluationFigures() {
  const others = ["samples", "samples_per_s", "tokens_per_s", "ms"], {tokens_per_s, samples_per_s} = evaluation;
  for (const [name, value] of Object.entries(evaluation))
    if (isNumber(value) && !others.includes(name)) addFigure(figure(value), name);
  if (isNumber(evaluation.samples)) addFigure(figure(evaluation.samples), "samples evaluated");
  if (isNumber(tokens_per_s)) addFigure(figure(tokens_per_s), "tokens a second");
  else if (isNumber(samples_per_s)) addFigure(figure(samples_per_s), "samples a second");
}

function plannedFigures() {
  const seconds = stages.reduce((sum, s) => sum + s.forward_seconds, 0);
  if (generates) {
    if (isNumber(seconds)) addFigure(`${figure(seconds * 1e3)} ms`, "a token, planned, messages aside");
    addFigure(bytes(plan.cache_bytes_a_token), "of keys and values a token");
  } else if (isNumber(plan.batch_seconds) && (forwardOnly || !evaluates))
    addFigure(`${figure(plan.batch_seconds * 1e3)} ms`, forwardOnly ? "a batch, planned" : "an update, planned");
}

function figures() {
  const add = addFigure;
  if (log && log.step.length) {
    add(figure(last(log.loss)), `loss of update ${figure(last(log.step))}`);
    const held = log.validation;
    if (held.loss.length) add(figure(last(held.loss)), `validation loss, update ${figure(last(held.step))}`);
    for (const m of log.metrics.slice(0, 1)) {
      const held = m.validation.filter(isNumber);
      if (held.length) add(figure(last(held)), `validation ${m.name}`);
      else add(figure(last(m.training)), m.name);
    }
    const tokens = median(settled(log.tokens_per_s));
    if (isNumber(tokens)) add(figure(tokens), "tokens a second, median");
    else add(figure(median(settled(log.samples_per_s))), "samples a second, median");
    const planned = isNumber(plan.batch_seconds) ? `; planned ${figure(plan.batch_seconds * 1e3)} ms` : "";
    add(`${figure(median(settled(log.ms)))} ms`, `an update, median${planned}`);
    if (isNumber(last(log.mfu))) add(percent(median(settled(log.mfu))), "of the machine's peak");
  } else {
    if (evaluates) evaluationFigures();
    plannedFigures();
  }
  if (isNumber(bubbleOf(run.trace))) add(percent(bubbleOf(run.trace)), "bubble, measured");
  if (isNumber(bubbleOf(run.predicted))) add(percent(bubbleOf(run.predicted)), "bubble, predicted");
  const peak = Math.max(...list(end.peak_bytes).filter(isNumber), -1);
  if (peak >= 0) add(bytes(peak), "memory of the fullest rank");
}

function missing() {
  const say = (text) => section("missing").append(element("li", {}, text));
  if (!log) say("There is no log.jsonl: no losses, throughput or measured memory. 'train --run DIR' keeps one.");
  else if (log.cut) say("log.jsonl ends within a line: the run was cut short there.");
  else if (!log.end) say("The log has no last line: the run has not ended, or was stopped.");
  if (!run.trace) say("There is no trace.json: no measured timeline. 'train --run DIR' keeps one.");
  else if (run.trace.dropped > 0)
    say(`The trace had no room for the last ${figure(run.trace.dropped)} events: it ends before the run does.`);
  if (!run.plan) say("There is no plan.json: no plan and no predicted timeline.");
  else if (run.unpredicted) say(`No predicted timeline: ${run.unpredicted}.`);
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
  if (plan.chunks > 1) {
    const swatch = element("span", {class: "swatch"});
    swatch.style.background = "linear-gradient(var(--forward) 70%, var(--text) 70%)";
    section("legend").append(element("li", {}, swatch, "chunks after a rank's first"));
  }
}

const pictures = [];
function timelines() {
  if (!run.trace && !run.predicted) {
    hide("timelines");
    hide("shares");
    return;
  }
  legend();
  const shownOf = (t) => {
    const n = t.bars.length / t.fields.length;
    return n < t.total ? `The first ${figure(n)} of ${figure(t.total)} events.` : "";
  };
  if (run.trace) pictures.push(new Timeline(section("measured"), "Measured", run.trace, shownOf(run.trace)));
  if (run.predicted) {
    const how = "The plan's schedule run with its stages' planned times; transfers take none.";
    const note = `${shownOf(run.predicted)} ${how}`.trim();
    pictures.push(new Timeline(section("predicted"), "Predicted", run.predicted, note));
  }
  shares();
}

function table(place, heads, rows) {
  const cell = (tag, value, i) => element(tag, i === 0 || (heads[i] === "pieces") ? {class: "text"} : {}, value);
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
      "Shares of the time from a rank's first pass to its last. The bubble is what is left: waiting for other " +
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

// ---- curves

function curves() {
  if (!log || !log.step.length) {
    hide("curves");
    return;
  }
  const place = section("curves").querySelector(".grid"), points = (y) => log.step.map((x, i) => [x, y[i]]);
  const held = log.validation.step.map((x, i) => [x, log.validation.loss[i]]);
  new Curve(place, "Loss", [{name: "training", colour: "forward", points: points(log.loss)},
    {name: "validation", colour: "backward", points: held}]);
  for (const m of log.metrics)
    new Curve(place, m.name, [{name: "training", colour: "forward", points: points(m.training)},
      {name: "validation", colour: "backward", points: log.validation.step.map((x, i) => [x, m.validation[i]])}]);
  const unit = log.tokens_per_s.some(isNumber) ? "tokens" : "samples", rate = points(log[`${unit}_per_s`]);
  new Curve(place, `Throughput, ${unit} a second`, [{name: `${unit}/s`, colour: "update", points: rate}], true);
  new Curve(place, "Gradient norm", [{name: "norm", colour: "weights", points: points(log.grad_norm)}], true);
  new Curve(place, "Learning rate", [{name: "rate", colour: "reduce", points: points(log.lr)}], true);
}

// ---- plan, memory

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
  const chunks = isNumber(plan.chunks) ? plan.chunks : 1, positions = stages.length / chunks;
  const ms = (s) => (isNumber(s) ? (s * 1e3).toFixed(2) : "–");
  const split = object(run.predicted).shares && run.predicted.shares.some((s) => s && s.weights > 0);
  const any = (name) => stages.some((s) => isNumber(s[name]));
  const training = (columns) => (forwardOnly ? [] : columns);
  const columns = [
    ["stage", (s, i) => (chunks > 1 ? `${i % positions}, chunk ${Math.floor(i / positions)}` : String(i))],
    ["pieces", (s) => [...new Set([s.starts_at, s.ends_with])].filter((x) => typeof x === "string").join(" … ")],
    ...(stages.some((s) => s.replicas > 1) ? [["replicas", (s) => figure(replicasOf(s))]] : []),
    ["parameters", (s) => (isNumber(s.parameters) ? s.parameters.toLocaleString("en") : "–")],
    ["forward ms", (s) => ms(s.forward_seconds)],
    ...training([["backward ms", (s) => ms(s.backward_seconds)]]),
    ...(split ? [["its weights' ms", (s) => ms(s.weights_seconds)]] : []),
    ...training([["update ms", (s) => ms(s.update_seconds)],
      ["recompute", (s) => (s.recompute === true ? "yes" : "no")]]),
    ...training(run.predicted
      ? [["in flight", (s, i) => figure(inFlight(run.predicted, firstRank(i % positions)))]] : []),
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

const replicasOf = (s) => (isNumber(s.replicas) ? s.replicas : 1);
function firstRank(stage) {
  return stages.slice(0, stage).reduce((n, s) => n + replicasOf(s), 0);
}

function memory() {
  const planned = list(end.planned_peak_bytes || start.planned_peak_bytes), measured = list(end.peak_bytes);
  const most = Math.max(...planned.filter(isNumber), ...measured.filter(isNumber), 1);
  const names = list(object(run.trace || run.predicted).ranks);
  if (!planned.length && !measured.length) {
    hide("memory");
    return;
  }
  for (let rank = 0; rank < Math.max(planned.length, measured.length); rank++) {
    const track = (n, colour) => {
      const bar = element("div", {});
      bar.style.width = `${isNumber(n) ? Math.max(0, (100 * n) / most) : 0}%`;
      bar.style.background = `var(--${colour})`;
      return element("div", {class: "track"}, bar);
    };
    const ratio = measured[rank] / planned[rank], times = isNumber(ratio) ? `: ${ratio.toFixed(3)} of it` : "";
    const value = `${bytes(planned[rank])} planned, ${bytes(measured[rank])} measured${times}`;
    section("memory").querySelector(".bars").append(element("div", {class: "memory"},
      element("span", {}, typeof names[rank] === "string" ? names[rank] : `rank ${rank}`), element("span", {}),
      element("span", {}, "planned"), track(planned[rank], "forward"),
      element("span", {}, "measured"), track(measured[rank], "update"),
      element("span", {class: "value"}, value)));
  }
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

title();
missing();
figures();
timelines();
curves();
planTable();
memory();
theme();
