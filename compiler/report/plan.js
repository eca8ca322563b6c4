// The page about a plan that was not run.
const ranks = stages.length ? Array.from({length: positions}, (_, i) => replicasOf(stages[firstPart(i)])) : [];
const nRanks = ranks.reduce((a, b) => a + b, 0), nStages = ranks.length;
const ms = (seconds) => (isNumber(seconds) ? (seconds * 1e3).toFixed(2) : "–");
// Ranks of a shard group, which share the layers of one rank of the pipeline.
const shards = plan.tensor > 1 ? plan.tensor : 1;
const perSample = run.tokens_per_sample > 0 ? run.tokens_per_sample : 1;
const unit = generates || run.tokens_per_sample > 0 ? "tokens" : "samples";

// A batch's samples or tokens in a second; of programs that generate, the tokens of all samples.
function throughput(batch, seconds) {
  return seconds > 0 ? (batch * (generates ? 1 : perSample)) / seconds : NaN;
}

const tokenSeconds = () => stages.reduce((sum, s) => sum + s.forward_seconds, 0);

// "2,1", or where that would be long "64 of 8".
function ranksByStage(replicas) {
  if (replicas.length <= 8) return replicas.join(",");
  const [least, most] = [Math.min(...replicas), Math.max(...replicas)];
  return `${replicas.length} of ${least === most ? least : `${least} to ${most}`}`;
}

// "3", "0–7"
const span = (from, to) => (from === to ? String(from) : `${from}–${to}`);

// ---- figures

function planFigures() {
  const seconds = generates ? tokenSeconds() : plan.batch_seconds;
  const what = generates ? "per token of each sample, without messages" : forwardOnly ? "a batch" : "an update";
  addFigure(`${ms(seconds)} ms`, `${what}, predicted`);
  addFigure(figure(throughput(generates ? plan.microbatch : plan.batch, seconds)), `${unit} a second, predicted`);
  if (!generates) addFigure(percent(run.waiting), "of the ranks' time spent waiting");
  const used = run.asked > nRanks * shards ? `ranks used, of ${figure(run.asked)}` : "ranks";
  addFigure(figure(nRanks * shards), shards > 1 ? `${used}, ${shards} share each layer` : used);
  addFigure(bytes(Math.max(...stages.map((s) => s.peak_bytes))), "memory of the fullest rank");
  if (generates) addFigure(bytes(plan.cache_bytes_a_token), "of keys and values per token");
}

function runnersUp() {
  const all = list(run.runners_up);
  if (!all.length) {
    hide("others");
    return;
  }
  const heads = ["ms", "longer by", "microbatch", "memory at most", "ranks by stage", "recompute", "cut at"];
  const longer = (r) => (plan.batch_seconds > 0 ? percent(r.seconds / plan.batch_seconds - 1) : "–");
  const rows = all.map((r) => [ms(r.seconds), longer(r), figure(r.microbatch), bytes(r.peak_bytes),
    ranksByStage(r.replicas), r.recompute.length ? `stages ${r.recompute.join(", ")}` : "no", r.cuts.join(", ")]);
  table(section("others").querySelector(".scroll"), heads, rows);
}

// ---- the model's graph, drawn with this page: inline, so that boxes say more where they are pointed at

function model() {
  if (!run.picture) {
    hide("model");
    return;
  }
  const drawn = new DOMParser().parseFromString(run.picture, "image/svg+xml");
  section("model").querySelector(".scroll").append(document.importNode(drawn.documentElement, true));
}

// ---- devices: what is in one group lies in one frame

// Neighbours differ in hue and in lightness; numbers say the same.
function paint(e, stage) {
  const light = stage % 2 === 1;
  e.style.background = `hsl(${(210 + stage * 137.5) % 360} ${light ? "70% 80%" : "60% 30%"})`;
  e.style.color = light ? "#111" : "#fff";
}

const stageOfRank = ranks.flatMap((n, stage) => Array(n).fill(stage));
const levels = list(object(run.cluster).levels);
const devicesIn = (level) => levels.slice(0, level + 1).reduce((n, l) => n * l.count, 1);
const nameOf = (level) => levels[level].name || (level ? "group" : "machine");
const rankOn = new Map(list(run.device_of).map((device, rank) => [device, rank]));

function device(at) {
  const rank = rankOn.get(at);
  if (rank === undefined) return element("div", {class: "device", title: `device ${at}: no rank`}, "–");
  const stage = stageOfRank[rank], title = `device ${at}: rank ${rank}, stage ${stage}`;
  const cell = element("div", {class: "device", title}, element("b", {}, String(rank)), `S${stage}`);
  paint(cell, stage);
  return cell;
}

function group(level, first) {
  if (level < 0) return device(first);
  const size = devicesIn(level - 1), inside = element("div", {class: level ? "inside" : "inside devices"});
  const empty = (from) => ![...Array(size).keys()].some((i) => rankOn.has(from + i));
  let left = 0; // groups without a rank, which in a large cluster are many
  for (let i = 0; i < levels[level].count; i++) {
    if (level && empty(first + i * size)) left++;
    else inside.append(group(level - 1, first + i * size));
  }
  if (left) inside.append(element("div", {class: "name"}, `${plural(left, nameOf(level - 1))} without ranks`));
  const index = first / devicesIn(level), only = level === levels.length - 1;
  const name = element("div", {class: "name"}, only ? nameOf(level) : `${nameOf(level)} ${index}`);
  return element("div", {class: "group"}, name, inside);
}

// "server 0: 0–3, server 1: 4–5": groups of the first level and devices in them.
function places(devices) {
  const size = devicesIn(0), groups = new Map(), alone = levels.length < 2;
  for (const d of devices) groups.set(Math.floor(d / size), [...(groups.get(Math.floor(d / size)) || []), d]);
  const runs = (all) => {
    const out = [];
    for (const d of all) {
      if (out.length && out.at(-1)[1] === d - 1) out.at(-1)[1] = d;
      else out.push([d, d]);
    }
    return out.map((r) => span(...r)).join(", ");
  };
  if (groups.size > 4) return `${plural(groups.size, nameOf(0))}, ${runs(devices)}`;
  return [...groups].map(([g, all]) => (alone ? runs(all) : `${nameOf(0)} ${g}: ${runs(all)}`)).join("; ");
}

function rate(bandwidth) {
  if (!(bandwidth > 0)) return "";
  return bandwidth >= 1e9 ? `${figure(bandwidth / 1e9)} GB/s` : `${figure(bandwidth / 1e6)} MB/s`;
}

function clusterHint() {
  const {given, name, kinds} = object(run.cluster), words = [];
  if (!given) words.push(`No cluster was given: one machine with ${plural(levels[0].count, "device")}.`);
  else if (name) words.push(`${name}: ${plural(devicesIn(levels.length - 1), "device")}.`);
  for (const [i, l] of given ? levels.entries() : []) {
    const members = i ? `${nameOf(i - 1)}s` : "devices";
    const link = [rate(l.bandwidth), l.latency > 0 ? duration(l.latency * 1e6) : ""].filter(Boolean).join(", ");
    words.push(`A ${nameOf(i)} has ${figure(l.count)} ${members}${link ? ` at ${link}` : ""}.`);
  }
  const named = list(kinds).filter((k) => k.name);
  if (named.length) words.push(`Devices: ${named.map((k) => k.name).join(", ")}.`);
  if (shards > 1) words.push(`Each device stands for the ${shards} of a shard group, each rank for the group's ranks.`);
  words.push("A device shows its rank and, after S, its stage; a device without a rank has a dash.");
  return words.join(" ");
}

function cluster() {
  const place = section("cluster"), all = devicesIn(levels.length - 1), picture = place.querySelector(".groups");
  place.querySelector(".hint").textContent = clusterHint();
  picture.classList.toggle("small", nRanks > 256);
  picture.setAttribute("aria-label", `${plural(nRanks, "rank")} on ${plural(all, "device")}; see the table below`);
  picture.append(group(levels.length - 1, 0));
  const kinds = list(run.cluster.kinds), kindOf = list(run.cluster.kind_of);
  const rows = ranks.map((n, stage) => {
    const first = firstRank(stage), devices = list(run.device_of).slice(first, first + n).sort((a, b) => a - b);
    const swatch = element("span", {class: "swatch label"}, `S${stage}`);
    paint(swatch, stage);
    const s = stages[firstPart(stage)], pieces = [...new Set([s.starts_at, s.ends_with])].join(" … ");
    const held = inRow ? plan.chunks[stage] : chunks;
    const row = [swatch, held > 1 ? `${plural(held, "chunk")}, from ${s.starts_at}` : pieces,
      span(first, first + n - 1), places(devices)];
    return kindOf.length ? [...row, [...new Set(devices.map((d) => kinds[kindOf[d]].name))].join(", ")] : row;
  });
  const heads = ["stage", "pieces", "ranks", "devices", ...(kindOf.length ? ["kinds"] : [])];
  table(place.querySelector(".scroll"), heads, rows);
}

// ---- the timeline

function timeline() {
  if (!run.predicted) {
    const say = `No predicted timeline: ${run.unpredicted}.`;
    section("missing").append(element("li", {}, say));
    hide("timelines");
    hide("shares");
    return;
  }
  legend();
  const t = run.predicted, n = t.bars.length / t.fields.length, words = [];
  if (run.first_replicas) words.push(`One rank a stage is drawn, of ${figure(nRanks)}: its first replica.`);
  if (n < t.total) words.push(`The first ${figure(n)} of ${figure(t.total)} events.`);
  words.push("The plan's schedule run with its stages' planned times; transfers take none.");
  const updates = forwardOnly ? "Predicted" : "Predicted: two updates in the steady state";
  pictures.push(new Timeline(section("predicted"), updates, t, words.join(" ")));
  shares();
}

// ---- memory

const KINDS = [["weights", "weight_bytes", "weights"], ["gradients", "gradient_bytes", "backward"],
  ["optimizer", "optimizer_bytes", "update"], ["caches", "cache_bytes", "validation"]];

// Of a rank of the stage, all its chunks together.
function memoryOf(stage) {
  const parts = stages.filter((s, i) => placeOf(i).stage === stage), peak = parts[0].peak_bytes;
  const sums = KINDS.map(([name, key, paint]) =>
    ({name, paint, bytes: parts.reduce((n, s) => n + (isNumber(s[key]) ? s[key] : 0), 0)}));
  const rest = Math.max(0, peak - sums.reduce((n, k) => n + k.bytes, 0));
  const restName = forwardOnly ? "workspace and other memory" : "activations and other memory";
  return {peak, kinds: [...sums, {name: restName, paint: "forward", bytes: rest}].filter((k) => k.bytes > 0)};
}

function memoryRow(label, stage, limit, scale) {
  const {peak, kinds} = memoryOf(stage), track = element("div", {class: "track stacked"});
  for (const k of kinds) {
    const bar = element("div", {title: `${k.name}: ${bytes(k.bytes)}`});
    bar.style.width = `${(100 * k.bytes) / scale}%`;
    bar.style.background = `var(--${k.paint})`;
    track.append(bar);
  }
  if (limit <= scale) {
    const line = element("i", {class: "limit", title: `limit: ${bytes(limit)}`});
    line.style.left = `${(100 * limit) / scale}%`;
    track.append(line);
  }
  const value = `${bytes(peak)}: ${kinds.map((k) => `${k.name} ${bytes(k.bytes)}`).join(", ")}`;
  return [element("span", {}, label), track, element("span", {class: "value"}, value)];
}

function memory() {
  const limits = list(run.limits), every = nRanks <= 64, rows = element("div", {class: "memory"});
  const most = Math.max(...stages.map((s) => s.peak_bytes), 1), limit = Math.min(...limits);
  const scale = limit <= 4 * most ? Math.max(...limits.filter((l) => l <= 4 * most), most) * 1.02 : most * 1.02;
  for (let stage = 0; stage < nStages; stage++) {
    const first = firstRank(stage), n = every ? ranks[stage] : 1;
    for (let i = 0; i < n; i++) {
      const label = every ? `rank ${first + i}: stage ${stage}`
        : `ranks ${span(first, first + ranks[stage] - 1)}: stage ${stage}`;
      rows.append(...memoryRow(label, stage, limits[first + i], scale));
    }
  }
  section("memory").querySelector(".bars").append(rows);
  const same = limits.every((l) => l === limit), where = limit <= 4 * most ? "the line" : "beyond the bars' end";
  const which = same ? `A rank may take ${bytes(limit)}: ${where}.`
    : `Ranks may take ${bytes(limit)} to ${bytes(Math.max(...limits))}: ${where}.`;
  section("memory").querySelector(".hint").textContent =
    `${which} Exact: every rank's memory was laid out. Replicas of a stage take the same.`;
  const used = new Map(ranks.flatMap((n, stage) => memoryOf(stage).kinds.map((k) => [k.name, k.paint])));
  for (const [name, paint] of used) {
    const swatch = element("span", {class: "swatch"});
    swatch.style.background = `var(--${paint})`;
    section("memory").querySelector(".legend").append(element("li", {}, swatch, name));
  }
}

// ---- plans for other numbers of ranks, for other batches

function sweep(id, points, axis, hint) {
  const place = section(id);
  if (!points.length) {
    hide(id);
    return;
  }
  place.querySelector(".hint").textContent = hint;
  const x = (p) => p[axis.key], grid = place.querySelector(".grid"), what = generates ? "a token" : "a batch";
  const rates = (p) => throughput(generates ? p.microbatch : p.batch, p.seconds);
  const drawn = (y) => points.map((p) => [x(p), isNumber(p.seconds) ? y(p) : null]);
  const series = (name, colour, y) => [{name, colour, points: drawn(y)}];
  const sameBatch = axis.key === "batch" || points.every((p) => p.batch === points[0].batch);
  if (sameBatch) new Curve(grid, `Milliseconds ${what}`, series("ms", "forward", (p) => p.seconds * 1e3), true, axis);
  new Curve(grid, `Throughput, ${unit} a second`, series(`${unit}/s`, "update", rates), true, axis);
  const one = points.find((p) => p.ranks === 1 && isNumber(p.seconds));
  const times = axis.key === "ranks" && one;
  const heads = [axis.name, "", ...(sameBatch ? [] : ["batch"]), `ms ${what}`, `${unit} a second`,
    ...(times ? ["times one rank"] : []), "ranks used", "ranks by stage", "microbatch", "reason"];
  const rows = points.map((p) => {
    const planned = isNumber(p.seconds), or = (value) => (planned ? value : "–");
    return [figure(x(p)), p.chosen ? "this plan" : "", ...(sameBatch ? [] : [figure(p.batch)]), ms(p.seconds),
      or(figure(rates(p))), ...(times ? [or((rates(p) / rates(one)).toFixed(2))] : []), or(figure(p.used)),
      or(ranksByStage(list(p.replicas))), or(figure(p.microbatch)), planned ? "" : p.why];
  });
  const keep = (row) => (points.some((p) => p.why) ? row : row.slice(0, -1));
  table(place.querySelector(".scroll"), keep(heads), rows.map(keep));
}

function sweeps() {
  const how = `Planned anew with the schedule ${plan.schedule} and what the command line pins. In these plans memory ` +
    "is an estimate, except for this page's own plan: a plan close to the limit may not fit.";
  const cores = plan.target !== "cuda" && !run.cluster.given
    ? ` A thread counts on a processor of its own; this machine has ${figure(run.processors)}.` : "";
  const anew = run.pinned ? " This page's own plan is from a file." : "";
  sweep("ranks", list(run.by_ranks), {name: "ranks", key: "ranks", powers: true}, how + anew + cores);
  sweep("batches", list(run.by_batch), {name: "batch", key: "batch", powers: true}, how + anew);
}

// ---- schedules

function schedules() {
  const all = list(run.schedules);
  if (!all.length) {
    hide("schedules");
    return;
  }
  const heads = ["schedule", "ms a batch", "times", "microbatch", "recompute", "memory", "waiting",
    "critical resource", "ranks by stage", ...(all.some((r) => r.why) ? ["reason"] : [])];
  const rows = all.map((r) => {
    if (r.why) return [r.label, ...Array(heads.length - 2).fill("–"), r.why];
    const row = [r.label, ms(r.seconds), r.times.toFixed(2), figure(r.microbatch), r.recompute ? "yes" : "no",
      bytes(r.peak_bytes), percent(r.waiting), `${r.critical}, ${Math.round(100 * r.share)} %`,
      ranksByStage(r.replicas)];
    return heads.length > row.length ? [...row, ""] : row;
  });
  table(section("schedules").querySelector(".scroll"), heads, rows);
}

title();
planFigures();
planTable();
runnersUp();
model();
cluster();
timeline();
memory();
sweeps();
schedules();
theme();
