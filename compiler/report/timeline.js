"use strict";
// Shared by all scripts: elements are made from text alone, never from markup.
function element(tag, attributes, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g", "rect"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

const isNumber = (x) => typeof x === "number" && Number.isFinite(x);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// Microseconds for people.
function duration(us) {
  const size = Math.abs(us);
  if (size >= 1e6) return `${+(us / 1e6).toPrecision(4)} s`;
  if (size >= 1e3) return `${+(us / 1e3).toPrecision(4)} ms`;
  return `${+us.toPrecision(3)} µs`;
}

function showTip(text, x, y) {
  const tip = document.getElementById("tip");
  tip.textContent = text;
  tip.hidden = !text;
  if (!text) return;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
}

// The largest of 1, 2, 5 times a power of ten that is not above x.
function roundStep(x) {
  const power = 10 ** Math.floor(Math.log10(x));
  return [5, 2, 1].find((m) => m * power <= x * 1.0001) * power;
}

const HATCHED = new Set(["recompute", "wait", "data"]);
const SHORT = {
  forward: "F", backward: "B", recompute: "R", weights: "W", update: "U", validation: "V", checkpoint: "C",
};
// A row: what is computed, below it messages, below these the exchange of gradients.
const LANES = [{top: 4, height: 24}, {top: 31, height: 6}, {top: 39, height: 4}];
const ROW = 48, AXIS = 22;

// A row a rank, zoomed and moved along time. `data` is what pdc's timeline.c wrote. What is drawn in which lane, with
// which words, is told by methods of their own: launch.js has others.
class Timeline {
  constructor(parent, title, data, note) {
    this.data = data;
    this.read();
    const label = `${title}: ${data.ranks.length} ranks over ${duration(this.end - this.start)}`;
    this.canvas = element("canvas", {tabindex: "0", role: "img", "aria-label": label});
    const button = (text, label, act) => {
      const b = element("button", {type: "button", "aria-label": label, title: label}, text);
      b.onclick = () => { act(); this.draw(); };
      return b;
    };
    const updates = button("Two updates", "Show two updates of the steady state", () => this.showUpdates());
    const bar = element("div", {class: "bar"}, element("h3", {}, title),
      button("−", "Zoom out", () => this.zoom(2, 0.5)), button("+", "Zoom in", () => this.zoom(0.5, 0.5)),
      button("←", "Earlier", () => this.move(-0.5)), button("→", "Later", () => this.move(0.5)),
      button("All", "Show all of it", () => this.show(this.start, this.end)),
      ...(this.updates.length < 4 ? [] : [updates]));
    const below = note ? [element("p", {class: "note"}, note)] : [];
    parent.append(element("div", {class: "timeline"}, bar, this.canvas, ...below));
    this.listen();
    this.showUpdates();
    this.draw();
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(this.canvas);
  }

  laneOf(work) { return work <= 6 ? 0 : work <= 10 ? 1 : 2; }

  // What a bar may be labelled with, the longest text first.
  labels(i) {
    const {bars, works} = this.data, number = String(bars[i + this.field.number]);
    return [`${SHORT[works[bars[i + 1]]]} ${number}`, number];
  }

  // By rank and lane: indices of bars in order of their starts.
  read() {
    const {bars, fields, ranks, works} = this.data, stride = fields.length;
    this.field = Object.fromEntries(fields.map((name, i) => [name, i]));
    this.lanes = ranks.map(() => LANES.map(() => []));
    this.start = Infinity;
    this.end = -Infinity;
    this.updates = [];
    for (let i = 0; i < bars.length; i += stride) {
      const rank = bars[i], work = bars[i + 1], from = bars[i + 2], to = from + bars[i + 3];
      this.lanes[rank][this.laneOf(work)].push(i);
      this.start = Math.min(this.start, from);
      this.end = Math.max(this.end, to);
      if (rank === 0 && works[work] === "update") this.updates.push(to);
    }
    if (!(this.end > this.start)) [this.start, this.end] = [0, 1];
    const longest = (lane) => lane.reduce((m, i) => Math.max(m, bars[i + 3]), 0);
    this.longest = this.lanes.map((rank) => rank.map(longest));
  }

  show(from, to) {
    const whole = this.end - this.start, span = Math.min(Math.max(to - from, whole * 1e-6, 1e-3), whole * 1.02);
    this.from = Math.min(Math.max(from, this.start - whole * 0.01), this.end + whole * 0.01 - span);
    this.to = this.from + span;
  }

  showUpdates() {
    const n = this.updates.length, middle = Math.floor(n / 2);
    if (n < 4) this.show(this.start, this.end);
    else this.show(this.updates[middle - 1], this.updates[middle + 1]);
  }

  zoom(factor, at) {
    const centre = this.from + (this.to - this.from) * at, span = (this.to - this.from) * factor;
    this.show(centre - span * at, centre + span * (1 - at));
  }

  move(part) {
    const span = this.to - this.from;
    this.show(this.from + span * part, this.to + span * part);
  }

  // ---- drawing

  place() {
    const width = this.canvas.clientWidth, names = width < 600 ? 46 : 150;
    this.left = names;
    this.scale = (width - names) / (this.to - this.from);
    return width;
  }

  draw() {
    const width = this.place(), ranks = this.data.ranks, height = AXIS + ROW * ranks.length + 4;
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const c = this.canvas.getContext("2d");
    c.scale(ratio, ratio);
    const colours = (work) => ({fill: this.fill(c, work), on: colour("on-" + work)});
    this.colours = Object.fromEntries(this.data.works.map((work) => [work, colours(work)]));
    this.edge = colour("text");
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.drawAxis(c, width, height);
    c.save();
    c.beginPath();
    c.rect(this.left, AXIS, width - this.left, height - AXIS);
    c.clip();
    this.lanes.forEach((lanes, rank) => lanes.forEach((lane, l) => this.drawLane(c, rank, lane, l, width)));
    this.drawArrows(c);
    c.restore();
    this.drawNames(c, width);
  }

  // Stripes for what must not be mistaken for the work it resembles.
  fill(c, work) {
    if (!HATCHED.has(work)) return colour(work);
    const tile = document.createElement("canvas"), size = 6;
    tile.width = tile.height = size;
    const t = tile.getContext("2d");
    t.fillStyle = colour(work);
    t.fillRect(0, 0, size, size);
    t.strokeStyle = colour(work === "recompute" ? "forward" : "page");
    t.lineWidth = 1.4;
    for (const shift of [-size, 0, size]) {
      t.beginPath();
      t.moveTo(shift, size);
      t.lineTo(shift + size, 0);
      t.stroke();
    }
    return c.createPattern(tile, "repeat");
  }

  drawAxis(c, width, height) {
    const line = colour("line"), step = roundStep(((this.to - this.from) / (width - this.left)) * 180);
    c.fillStyle = colour("soft");
    c.strokeStyle = line;
    c.lineWidth = 1;
    for (let k = Math.ceil(this.from / step); k * step <= this.to; k++) {
      const x = this.left + (k * step - this.from) * this.scale, text = k ? duration(k * step) : "0";
      c.beginPath();
      c.moveTo(x, AXIS - 5);
      c.lineTo(x, height);
      c.stroke();
      if (x + 3 + c.measureText(text).width < width) c.fillText(text, x + 3, AXIS / 2);
    }
    for (let rank = 1; rank < this.data.ranks.length; rank++) {
      c.beginPath();
      c.moveTo(0, AXIS + rank * ROW);
      c.lineTo(width, AXIS + rank * ROW);
      c.stroke();
    }
  }

  drawNames(c, width) {
    c.fillStyle = colour("text");
    this.data.ranks.forEach((name, rank) => {
      const y = AXIS + rank * ROW + LANES[0].top + LANES[0].height / 2, colon = name.indexOf(": ");
      if (width < 600 || colon < 0) {
        c.fillText(width < 600 ? `rank ${rank}` : name, 8, y, this.left - 12);
        return;
      }
      c.fillText(name.slice(0, colon), 8, y - 7, this.left - 12);
      c.fillStyle = colour("soft");
      c.fillText(name.slice(colon + 2), 8, y + 8, this.left - 12);
      c.fillStyle = colour("text");
    });
  }

  // The first bar of a lane that may reach into the view.
  firstVisible(lane, longest) {
    const {bars} = this.data;
    let low = 0, high = lane.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bars[lane[middle] + 2] < this.from - longest) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  drawLane(c, rank, lane, l, width) {
    const {bars, works} = this.data, y = AXIS + rank * ROW + LANES[l].top, height = LANES[l].height;
    let reached = -Infinity;
    for (let k = this.firstVisible(lane, this.longest[rank][l]); k < lane.length; k++) {
      const i = lane[k], work = works[bars[i + 1]], x = this.left + (bars[i + 2] - this.from) * this.scale;
      if (x > width) break;
      const right = x + bars[i + 3] * this.scale;
      if (right < this.left || (right < reached + 0.25 && right - x < 1)) continue;
      const shown = Math.max(right - x - (right - x > 4 ? 1 : 0), 0.75);
      c.fillStyle = this.colours[work].fill;
      c.fillRect(x, y, shown, height);
      reached = x + shown;
      if (l === 0 && bars[i + this.field.chunk] > 0) this.drawEdge(c, i, x, y, shown);
      if (l === 0 && shown > 14) this.drawLabel(c, i, work, Math.max(x, this.left), Math.min(right, width), y);
    }
  }

  // A lower edge, the thicker the later the chunk.
  drawEdge(c, i, x, y, width) {
    const height = Math.min(9, 2 + 2 * this.data.bars[i + this.field.chunk]);
    c.fillStyle = this.edge;
    c.fillRect(x, y + LANES[0].height - height, width, height);
  }

  drawLabel(c, i, work, x, right, y) {
    for (const text of this.labels(i)) {
      const width = c.measureText(text).width;
      if (width + 4 > right - x) continue;
      c.fillStyle = this.colours[work].on;
      c.fillText(text, (x + right - width) / 2, y + LANES[0].height / 2 + 0.5);
      return;
    }
  }

  // From sends to their receives, where few enough are in view to be told apart.
  drawArrows(c) {
    const {arrows, ranks} = this.data, most = this.canvas.clientWidth / 6, seen = [];
    for (let i = 0; i < arrows.length && seen.length <= most; i += 4) {
      const inView = arrows[i + 3] >= this.from && arrows[i + 1] <= this.to;
      if (inView && ranks[arrows[i]] && ranks[arrows[i + 2]]) seen.push(i);
    }
    if (seen.length > most) return;
    c.strokeStyle = c.fillStyle = colour("send");
    c.lineWidth = 1;
    c.globalAlpha = 0.75;
    const middle = LANES[1].top + LANES[1].height / 2;
    for (const i of seen) {
      const x0 = this.left + (arrows[i + 1] - this.from) * this.scale, y0 = AXIS + arrows[i] * ROW + middle;
      const x1 = this.left + (arrows[i + 3] - this.from) * this.scale, y1 = AXIS + arrows[i + 2] * ROW + middle;
      const angle = Math.atan2(y1 - y0, x1 - x0);
      c.beginPath();
      c.moveTo(x0, y0);
      c.lineTo(x1, y1);
      c.stroke();
      c.beginPath();
      c.moveTo(x1, y1);
      c.lineTo(x1 - 6 * Math.cos(angle - 0.4), y1 - 6 * Math.sin(angle - 0.4));
      c.lineTo(x1 - 6 * Math.cos(angle + 0.4), y1 - 6 * Math.sin(angle + 0.4));
      c.fill();
    }
    c.globalAlpha = 1;
  }

  // ---- pointing

  barAt(x, y) {
    const rank = Math.floor((y - AXIS) / ROW), inRow = y - AXIS - rank * ROW;
    if (x < this.left || !this.lanes[rank]) return -1;
    const l = inRow < LANES[1].top - 1 ? 0 : inRow < LANES[2].top - 1 ? 1 : 2, {bars} = this.data;
    const time = this.from + (x - this.left) / this.scale, slack = 2 / this.scale, lane = this.lanes[rank][l];
    let best = -1, nearest = slack;
    for (let k = this.firstVisible(lane, this.longest[rank][l]); k < lane.length; k++) {
      const start = bars[lane[k] + 2], distance = Math.max(start - time, time - start - bars[lane[k] + 3], 0);
      if (start > time + slack) break;
      if (distance < nearest) [best, nearest] = [lane[k], distance];
    }
    return best;
  }

  describe(i) {
    const {bars, works, ranks} = this.data, get = (name) => bars[i + this.field[name]], work = works[get("work")];
    const ofUpdate = ["update", "validation", "checkpoint", "reduce", "exchange", "gather"].includes(work);
    const lines = [`${work}, ${ofUpdate ? "update" : "microbatch"} ${get("number")}`, ranks[get("rank")]];
    lines.push(`${duration(get("length"))}, from ${duration(get("start"))}`);
    if (get("version") >= 0) lines.push(`weights of version ${get("version")}`);
    if (get("chunk") > 0) lines.push(`chunk ${get("chunk")}`);
    if (get("peer") >= 0) lines.push(`${work === "send" ? "to" : "from"} rank ${get("peer")}`);
    if (get("bytes") >= 0) lines.push(`${get("bytes").toLocaleString("en")} bytes`);
    return lines.join("\n");
  }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const i = this.barAt(event.clientX - box.left, event.clientY - box.top);
    showTip(i < 0 ? "" : this.describe(i), event.clientX, event.clientY);
  }

  listen() {
    const canvas = this.canvas, pointers = new Map();
    const at = (x) => (x - canvas.getBoundingClientRect().left - this.left) / (canvas.clientWidth - this.left);
    canvas.addEventListener("wheel", (e) => {
      const whole = this.to - this.from >= this.end - this.start;
      if (whole && e.deltaY > 0 && !e.ctrlKey) return; // nothing to zoom out of: the page scrolls
      e.preventDefault();
      const turned = Math.max(-400, Math.min(400, e.deltaY * (e.ctrlKey ? 6 : 1))); // a pinch turns little
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.move((e.deltaX || e.deltaY) / 1000);
      else this.zoom(1.0015 ** turned, Math.max(0, at(e.clientX)));
      this.draw();
      this.hover(e);
    }, {passive: false});
    canvas.addEventListener("pointerdown", (e) => {
      canvas.setPointerCapture(e.pointerId);
      pointers.set(e.pointerId, e.clientX);
      canvas.classList.add("moving");
      this.hover(e);
    });
    canvas.addEventListener("pointermove", (e) => {
      if (!pointers.has(e.pointerId)) {
        this.hover(e);
        return;
      }
      const before = [...pointers.values()];
      pointers.set(e.pointerId, e.clientX);
      const after = [...pointers.values()];
      if (after.length === 1) this.move((before[0] - after[0]) / (canvas.clientWidth - this.left));
      else this.pinch(at(before[0]), at(before[1]), at(after[0]), at(after[1]));
      if (before[0] !== after[0]) showTip("");
      this.draw();
    });
    const release = (e) => {
      pointers.delete(e.pointerId);
      if (!pointers.size) canvas.classList.remove("moving");
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => showTip(""));
    canvas.addEventListener("keydown", (e) => {
      const act = {
        ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
        ArrowUp: () => this.zoom(0.7, 0.5), ArrowDown: () => this.zoom(1.4, 0.5),
        "+": () => this.zoom(0.7, 0.5), "=": () => this.zoom(0.7, 0.5), "-": () => this.zoom(1.4, 0.5),
        0: () => this.show(this.start, this.end),
        Home: () => this.show(this.start, this.start + this.to - this.from),
        End: () => this.show(this.end - (this.to - this.from), this.end),
      }[e.key];
      if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      act();
      this.draw();
    });
  }

  // Two fingers keep their two times.
  pinch(a0, b0, a1, b1) {
    const span = this.to - this.from, apart = b1 - a1;
    if (Math.abs(apart) < 0.02) return;
    const wide = Math.abs((span * (b0 - a0)) / apart), from = this.from + span * a0 - wide * a1;
    this.show(from, from + wide);
  }
}
