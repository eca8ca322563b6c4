// The page about a run: which sections there are follows from which parts of the run there are.
const evaluation = object(log && log.evaluation), evaluates = !!log && !log.step.length && !!log.evaluation;
const last = (x) => list(x).filter(isNumber).at(-1);

function median(x) {
  const sorted = list(x).filter(isNumber).sort((a, b) => a - b), n = sorted.length;
  return n ? (sorted[Math.floor((n - 1) / 2)] + sorted[Math.floor(n / 2)]) / 2 : NaN;
}

// The first updates include what starts up.
const settled = (x) => list(x).slice(list(x).length > 8 ? 3 : 0);

// ---- figures

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
    if (isNumber(seconds)) addFigure(`${figure(seconds * 1e3)} ms`, "per token, planned, without messages");
    addFigure(bytes(plan.cache_bytes_a_token), "of keys and values per token");
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
  if (!log) say("There is no log.jsonl: no losses, throughput or measured memory. 'train --run DIR' writes one.");
  else if (log.cut) say("log.jsonl ends within a line: the run was cut short there.");
  else if (!log.end) say("The log has no last line: the run has not ended, or was stopped.");
  if (!run.trace) say("There is no trace.json: no measured timeline. 'train --run DIR' writes one.");
  else if (run.trace.dropped > 0)
    say(`The trace had no room for the last ${figure(run.trace.dropped)} events: it ends before the run does.`);
  if (!run.plan) say("There is no plan.json: no plan and no predicted timeline.");
  else if (run.unpredicted) say(`No predicted timeline: ${run.unpredicted}.`);
}

// ---- timelines, shares

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

// ---- memory

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

// ---- the model's graph, which pdc drew. As an image, for nothing in a run's files is run.

function model() {
  if (typeof run.picture !== "string") {
    hide("model");
    return;
  }
  const src = `data:image/svg+xml,${encodeURIComponent(run.picture)}`;
  section("model").querySelector(".scroll").append(element("img", {src, alt: "The model's layers in the plan's stages"}));
}

title();
missing();
figures();
timelines();
curves();
planTable();
model();
memory();
theme();
