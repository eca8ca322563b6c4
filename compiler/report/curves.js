// Line charts, over updates if nothing else is said, with axes and the values under the pointer.

// Numbers for people: four digits are what a curve shows.
function figure(x) {
  if (!isNumber(x)) return "–";
  return Math.abs(x) >= 1e4 ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(4));
}

// The same for an axis, where there is little room: 250k, 1.5M.
function shortFigure(x) {
  const power = Math.abs(x) >= 1e9 ? 3 : Math.abs(x) >= 1e6 ? 2 : Math.abs(x) >= 1e5 ? 1 : 0;
  return power ? `${+(x / 1000 ** power).toPrecision(4)}${" kMG"[power]}` : figure(x);
}

// At most about two points a pixel: the least and the greatest of each bucket.
function thin(points, most) {
  if (points.length <= 2 * most) return points;
  const kept = [], size = points.length / most;
  for (let k = 0; k < most; k++) {
    const bucket = points.slice(Math.floor(k * size), Math.floor((k + 1) * size)).filter((p) => p[1] !== null);
    if (!bucket.length) continue;
    const low = bucket.reduce((a, b) => (b[1] < a[1] ? b : a));
    const high = bucket.reduce((a, b) => (b[1] > a[1] ? b : a));
    kept.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
  }
  return kept;
}

// series: [{name, colour, dash, points: [[x, y or null], ...]}], dash as in SVG, if any; fromZero: the y axis starts at 0. axis: what x counts, and
// whether it is drawn by powers of two.
class Curve {
  constructor(parent, title, series, fromZero, axis = {name: "update", powers: false}) {
    this.axis = axis;
    const clean = (all) => all.filter((p) => isNumber(p[0])).map((p) => [p[0], isNumber(p[1]) ? p[1] : null]);
    this.series = series.map((s) => ({...s, points: clean(s.points)}));
    this.series = this.series.filter((s) => s.points.some((p) => p[1] !== null));
    if (!this.series.length) return;
    this.fromZero = fromZero;
    this.svg = element("svg", {role: "img", "aria-label": title, height: "220"});
    const names = element("div", {class: "names"});
    for (const s of this.series.length > 1 ? this.series : [])
      names.append(element("span", {}, element("i", {style: `border: 0 ${s.dash ? "dashed" : "solid"} var(--${s.colour}); border-top-width: 2px`}), s.name));
    parent.append(element("div", {class: "curve"}, element("h3", {}, title), names, this.svg));
    this.bounds();
    this.draw();
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(this.svg);
    this.svg.addEventListener("pointermove", (e) => this.hover(e));
    this.svg.addEventListener("pointerdown", (e) => this.hover(e));
    this.svg.addEventListener("pointerleave", () => this.leave());
  }

  bounds() {
    const all = this.series.flatMap((s) => s.points).filter((p) => p[1] !== null);
    const least = (k) => all.reduce((m, p) => Math.min(m, p[k]), Infinity);
    const most = (k) => all.reduce((m, p) => Math.max(m, p[k]), -Infinity);
    [this.x0, this.x1] = [least(0), most(0)];
    [this.y0, this.y1] = [this.fromZero ? Math.min(0, least(1)) : least(1), most(1)];
    if (this.x0 === this.x1 && this.axis.powers) [this.x0, this.x1] = [this.x0 / 2, this.x1 * 2];
    if (this.x0 === this.x1) [this.x0, this.x1] = [this.x0 - 1, this.x1 + 1];
    const margin = (this.y1 - this.y0) * 0.05 || Math.abs(this.y1) * 0.05 || 1;
    this.y1 += margin;
    if (!this.fromZero) this.y0 -= margin;
  }

  x(v) {
    const at = this.axis.powers ? Math.log2 : (x) => x, from = at(this.x0);
    return 52 + ((at(v) - from) / (at(this.x1) - from)) * (this.width - 62);
  }
  y(v) { return 192 - ((v - this.y0) / (this.y1 - this.y0)) * 182; }

  draw() {
    this.width = this.svg.clientWidth || 420;
    this.svg.replaceChildren();
    const step = roundStep((this.y1 - this.y0) / 4);
    const xStep = Math.max(1, roundStep((this.x1 - this.x0) / (this.width / 110)));
    for (let k = Math.ceil(this.y0 / step); k * step <= this.y1; k++) {
      const y = this.y(k * step);
      this.svg.append(element("line", {class: "rule", x1: 52, x2: this.width - 10, y1: y, y2: y}),
        element("text", {x: 46, y: y + 4, "text-anchor": "end"}, shortFigure(+(k * step).toPrecision(12))));
    }
    const ticks = [];
    for (let k = Math.ceil(this.x0 / xStep); !this.axis.powers && k * xStep <= this.x1; k++) ticks.push(k * xStep);
    for (let x = 2 ** Math.ceil(Math.log2(this.x0)); this.axis.powers && x <= this.x1; x *= 2) ticks.push(x);
    for (const x of ticks)
      this.svg.append(element("text", {x: this.x(x), y: 208, "text-anchor": "middle"}, figure(x)));
    for (const s of this.series) this.drawLine(s);
    this.cross = element("line", {class: "cross", y1: 10, y2: 192, visibility: "hidden"});
    this.svg.append(this.cross);
  }

  drawLine(s) {
    const points = thin(s.points, this.width), drawn = points.filter((p) => p[1] !== null);
    let d = "", pen = "M";
    for (const [x, y] of points) {
      if (y === null) { pen = "M"; continue; }
      d += `${pen}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
      pen = "L";
    }
    const stroke = `var(--${s.colour})`;
    const dash = s.dash ? {"stroke-dasharray": s.dash} : {};
    this.svg.append(element("path", {d, fill: "none", stroke, "stroke-width": 1.6, "stroke-linejoin": "round", ...dash}));
    for (const [x, y] of drawn.length <= 30 ? drawn : [])
      this.svg.append(element("circle", {cx: this.x(x), cy: this.y(y), r: 2.5, fill: stroke}));
  }

  hover(event) {
    const pointer = event.clientX - this.svg.getBoundingClientRect().left;
    const away = (x) => Math.abs(this.x(x) - pointer), distance = (p) => away(p[0]);
    const nearer = (a, b) => (b[1] !== null && (!a || distance(b) < distance(a)) ? b : a);
    const nearest = this.series.map((s) => s.points.reduce(nearer, null));
    const step = nearest.reduce((a, b) => (away(b[0]) < away(a) ? b[0] : a), Infinity);
    const value = (p) => +p[1].toPrecision(7);
    const lines = this.series.map((s, i) => (nearest[i][0] === step ? `${s.name} ${value(nearest[i])}` : null));
    this.cross.setAttribute("x1", this.x(step));
    this.cross.setAttribute("x2", this.x(step));
    this.cross.setAttribute("visibility", "visible");
    showTip([`${this.axis.name} ${figure(step)}`, ...lines.filter(Boolean)].join("\n"), event.clientX, event.clientY);
  }

  leave() {
    this.cross.setAttribute("visibility", "hidden");
    showTip("");
  }
}
