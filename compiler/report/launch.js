// The page about several models in one launch. A model has one colour in all figures, and in curves a dash, too.
const sharp = object(run.sharp), left = object(run.left), trace = run.trace || null;
const named = (all, name) => list(all).map(object).find((m) => m.name === name) || {};
const models = list(run.models).map((m, i) => ({name: m.name, number: i, log: m.log || null, colour: `model-${i}`,
  dash: ["", "7 3", "2 2", "9 3 2 3"][i % 4], planned: named(sharp.models, m.name), left: named(left.models, m.name)}));
for (const m of models) {
  const root = document.documentElement.style;
  root.setProperty(`--${m.colour}`, `hsl(${(210 + 137.5 * m.number) % 360} 58% var(--model-light))`);
  root.setProperty(`--on-${m.colour}`, "var(--on-model)");
}
const last = (x) => list(x).filter(isNumber).at(-1);
const seconds = (s) => (isNumber(s) ? duration(s * 1e6) : "–");

// Bars are models: each in the one lane, with its name.
class Ranks extends Timeline {
  laneOf() { return 0; }
  labels(i) {
    const m = models[this.data.bars[i + 1]];
    return [m.name, String(m.number + 1)];
  }
  describe(i) {
    const {bars, ranks} = this.data;
    return [models[bars[i + 1]].name, ranks[bars[i]], `${duration(bars[i + 3])}, from ${duration(bars[i + 2])}`].join("\n");
  }
}

// ---- what is known of each model and rank

// By model: microseconds on each rank, and how often it was given one.
function countTurns() {
  for (const m of models) Object.assign(m, {turns: 0, on: list(trace && trace.ranks).map(() => 0)});
  for (let i = 0; trace && i < trace.bars.length; i += trace.fields.length) {
    const m = models[trace.bars[i + 1]];
    m.turns++;
    m.on[trace.bars[i]] += trace.bars[i + 3];
  }
}

const whole = trace ? (isNumber(left.seconds) ? left.seconds * 1e6 : 0) : 0;
const busy = (rank) => models.reduce((sum, m) => sum + m.on[rank], 0);

// The least validation loss; where nothing was validated the last loss. Of a model that failed, too.
function judge(m) {
  const held = m.log ? m.log.validation : {step: [], loss: []};
  m.best = held.loss.reduce((b, loss, i) => (isNumber(loss) && !(loss >= b.loss) ? {loss, step: held.step[i]} : b), {});
  m.loss = m.log ? last(m.log.loss) : m.left.loss;
  m.validates = isNumber(m.best.loss);
}

function chooseBest() {
  const validate = models.some((m) => m.validates), of = (m) => (validate ? m.best.loss : m.loss);
  const good = models.filter((m) => m.left.ended !== "failed" && isNumber(of(m)));
  return good.reduce((b, m) => (!b || of(m) < of(b) ? m : b), null);
}

function howItEnded(m) {
  const by = object(m.log && m.log.end).stopped_by, ended = m.left.ended;
  if (typeof by === "string") return `stopped by ${by}`;
  if (typeof ended === "string") return ended;
  return m.log ? (m.log.end ? "finished" : "has not ended") : "–";
}

// ---- sections

function heading() {
  const n = isNumber(left.ranks) ? left.ranks : sharp.ranks;
  section("title").textContent = models.map((m) => m.name).join(", ");
  section("subtitle").textContent = [`${plural(models.length, "model")} on ${plural(n, "rank")} in one launch`,
    run.directory].join(" · ");
}

function missing() {
  const say = (text) => section("missing").append(element("li", {}, text));
  const without = models.filter((m) => !m.log), cut = models.filter((m) => m.log && m.log.cut);
  const names = (some) => some.map((m) => m.name).join(", ");
  if (!trace)
    say("There is no timeline.json: no times of ranks. 'train --run DIR' writes the file after all models have ended.");
  else if (trace.dropped > 0)
    say(`The timeline had no room for the last ${figure(trace.dropped)} turns: it ends before the launch does.`);
  if (without.length === models.length) say("There are no logs: no losses. 'train --run DIR' writes them.");
  else if (without.length) say(`No log of: ${names(without)}.`);
  if (cut.length) say(`The log ends within a line: ${names(cut)}.`);
}

function figures(best) {
  addFigure(figure(models.length), models.length === 1 ? "model" : "models");
  if (trace) {
    const all = trace.ranks.reduce((sum, _, rank) => sum + busy(rank), 0);
    if (whole > 0) addFigure(percent(all / whole / trace.ranks.length), "of the ranks' time at work");
    addFigure(seconds(left.seconds), "the launch");
    addFigure(duration(all), "of work");
  }
  if (best) addFigure(best.name, best.validates ? `least validation loss: ${figure(best.best.loss)}`
    : `least loss at the end: ${figure(best.loss)}`);
  const failed = models.filter((m) => ["failed", "killed"].includes(m.left.ended)).length;
  if (failed) addFigure(figure(failed), "failed");
}

function timeline() {
  if (!trace || !trace.bars.length) {
    hide("timelines");
    hide("shares");
    return;
  }
  for (const m of models) {
    const swatch = element("span", {class: "swatch"});
    swatch.style.background = `var(--${m.colour})`;
    section("legend").append(element("li", {}, swatch, m.name));
  }
  pictures.push(new Ranks(section("measured"), "Which model was on which rank", trace));
  table(section("shares").querySelector(".scroll"), ["", "at work", "idle", "turns", "models"],
    trace.ranks.map((name, rank) => {
      const ofWhole = whole > 0 ? busy(rank) / whole : NaN, here = models.filter((m) => m.on[rank] > 0);
      let turns = 0;
      for (let i = 0; i < trace.bars.length; i += trace.fields.length) turns += trace.bars[i] === rank;
      return [name, percent(ofWhole), percent(1 - ofWhole), figure(turns), figure(here.length)];
    }));
}

const median = (x) => {
  const sorted = list(x).filter(isNumber).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : NaN;
};

function modelTable(best) {
  const any = (f) => models.some(f);
  const columns = [
    ["model", (m) => m.name],
    ...(any((m) => list(m.planned.define).length) ? [["settings", (m) => list(m.planned.define).join(", ")]] : []),
    ["ended", howItEnded],
    ["updates", (m) => figure(isNumber(m.left.step) ? m.left.step : last(m.log && m.log.step))],
    ["loss", (m) => figure(m.loss)],
    ...(any((m) => m.validates) ? [["least validation loss", (m) => figure(m.best.loss)],
      ["of update", (m) => figure(m.best.step)]] : []),
    ...(trace ? [["turns", (m) => figure(m.turns)], ["work", (m) => duration(m.on.reduce((a, b) => a + b, 0))]] : []),
    ...(trace && trace.ranks.length <= 8 ? trace.ranks.map((name, rank) => [`on ${name}`, (m) => (m.on[rank] ? duration(m.on[rank]) : "–")]) : []),
    ["ms an update, median", (m) => figure(median(m.log && m.log.ms))],
    ["planned ms", (m) => figure(m.planned.update_seconds * 1e3)],
    ["memory", (m) => bytes(last(object(m.log && m.log.end).peak_bytes))],
    ["planned memory", (m) => bytes(m.planned.peak_bytes)],
    ...(any((m) => m.planned.parts > 1) ? [["parts", (m) => figure(m.planned.parts)]] : []),
  ];
  const place = section("models").querySelector(".scroll");
  table(place, columns.map((c) => c[0]), models.map((m) => columns.map((c) => c[1](m))));
  if (best) place.querySelectorAll("tbody tr")[best.number].classList.add("best");
  section("models").querySelector(".hint").textContent = best ? `The best is in bold. Work is time on a rank, from the ` +
    `model's start to its end; an update's time is without what it waited.` : "";
}

function curves() {
  const place = section("curves").querySelector(".grid"), logs = models.filter((m) => m.log && m.log.step.length);
  if (!logs.length) {
    hide("curves");
    return;
  }
  const draw = (title, points, fromZero) =>
    new Curve(place, title, logs.map((m) => ({name: m.name, colour: m.colour, dash: m.dash, points: points(m.log)})), fromZero);
  const over = (x, y) => x.map((at, i) => [at, list(y)[i]]);
  draw("Loss", (log) => over(log.step, log.loss));
  draw("Validation loss", (log) => over(log.validation.step, log.validation.loss));
  const metrics = new Set(logs.flatMap((m) => m.log.metrics.map((x) => x.name)));
  for (const name of metrics) {
    draw(name, (log) => over(log.step, named(log.metrics, name).training));
    draw(`Validation ${name}`, (log) => over(log.validation.step, named(log.metrics, name).validation));
  }
  draw("Learning rate", (log) => over(log.step, log.lr), true);
}

countTurns();
models.forEach(judge);
const best = chooseBest();
heading();
missing();
figures(best);
timeline();
modelTable(best);
curves();
theme();
