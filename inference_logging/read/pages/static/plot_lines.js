// Lines, steps and bars over time or over another quantity, on a canvas by uPlot; distributions from counts between edges, which
// show the share up to a value, or the share above it.

import { format } from "./format.js";
import { across, pointText, scale, upwards } from "./plot_axes.js";
import { colourOf, Frame, onResize, onScheme, paint, ROOM } from "./plot_frame.js";

const HEIGHT = 240;
const MOST_IN_ORDER = 4;
const DASHES = [[], [6, 3], [2, 3]];

/**
 * Draw lines. `data`: {x: numbers ascending, series: [{name, values (null: nothing), unit?, colour?, dash?, fill?}], unit,
 * xUnit? ("time"), log?, xLog?, style? ("line", "steps", "bars"), stacked?, width? (of a bar, as x), yRange?, label?,
 * height?, sync? (a name: those of one name share cursor and axis of time), onSelect?(from, to)}.
 */
export function lines(element, data) {
  return new LinePlot(element, "lines", data).handle();
}

/** A plot over a horizontal axis; a distribution is one, whose data are made from counts. */
class LinePlot {
  constructor(element, kind, data, prepare = (given) => given) {
    this.prepare = prepare;
    this.frame = new Frame(element, kind, data.label);
    this.at = null;
    this.set(data);
    this.endings = [onScheme(() => this.plot?.redraw(true, true)), onResize(this.frame.root, (width) => this.resize(width))];
    this.frame.area.addEventListener("keydown", (event) => this.key(event));
  }

  /** What a caller has: `plot` is uPlot's. */
  handle() {
    const drawn = this;
    return { update: (next) => drawn.set(next), destroy: () => drawn.destroy(), get plot() { return drawn.plot; } };
  }

  set(given) {
    const data = this.prepare(given);
    this.data = data;
    this.units = [...new Set(data.series.map((one) => one.unit ?? data.unit ?? "1"))];
    const marks = data.series.reduce((sum, one) => sum + one.values.filter((value) => value !== null && value !== undefined).length, 0);
    Object.assign(this.frame.root.dataset, { marks, series: data.series.length, scaleY: data.log ? "log" : "linear",
      scaleX: data.xLog ? "log" : "linear" });
    this.frame.name(data.label);
    this.frame.showEmpty(marks === 0);
    this.frame.showLegend(data.series, () => this.redraw(), (index) => this.plot?.setSeries(index === null ? null : index + 1, { focus: true }));
    const shape = JSON.stringify([this.units, data.series.map((one) => [one.name, one.unit, one.colour, one.fill, one.dash]),
      data.log, data.xLog, data.xUnit, data.style, data.stacked, data.width, data.yRange, data.height]);
    if (this.plot && this.shape === shape) {
      this.plot.setData(this.columns(), !this.isZoomed);
      if (this.isZoomed) this.plot.redraw();
      return;
    }
    this.shape = shape;
    this.build();
  }

  build() {
    this.plot?.destroy();
    this.isZoomed = false;
    const width = Math.max(this.frame.root.clientWidth, 120);
    this.plot = new window.uPlot(this.options(width), this.columns(), this.frame.area);
  }

  options(width) {
    const { data, units } = this;
    const unitOf = (one) => one.unit ?? data.unit ?? "1";
    const xUnit = data.xUnit ?? "time";
    const [left, right] = data.sync ? [ROOM.left, ROOM.right] : [undefined, 30];
    return {
      width, height: data.height ?? HEIGHT, legend: { show: false }, padding: [8, data.sync && units.length > 1 ? 0 : right, 0, 0],
      ...(xUnit === "time" ? { tzDate: (unix_s) => window.uPlot.tzDate(new Date(unix_s * 1e3), "Etc/UTC") } : {}),
      focus: { alpha: data.series.length > 3 ? 0.25 : 1 },
      scales: { x: { ...scale(data.xLog, { pad: Boolean(data.xLog) }), time: xUnit === "time", ...this.xRange() },
        ...Object.fromEntries(units.map((unit) => [unit, scale(data.log, { fixed: data.yRange })])) },
      axes: [across(xUnit, data.xLog),
        ...units.slice(0, 2).map((unit, index) => upwards(unit, unit, data.log, index === 1, index ? data.sync && right : left))],
      series: [{}, ...this.drawn().map(({ one, index }) => this.seriesOptions(one, index, unitOf(one)))],
      cursor: { y: false, points: { size: 8 }, focus: { prox: 24 }, dataIdx: (plot, _, nearest, x) => this.nearest(nearest, x),
        drag: { x: true, y: false, setScale: !data.onSelect }, ...(data.sync ? { sync: { key: data.sync } } : {}) },
      hooks: { setCursor: [(plot) => this.hover(plot)], setSelect: [(plot) => this.selected(plot)], setScale: [(plot, key) => this.scaled(plot, key)] },
    };
  }

  seriesOptions(one, index, unit) {
    const { data } = this;
    const bars = data.style === "bars";
    const paths = bars ? window.uPlot.paths.bars({ size: [1, Infinity], align: 1, gap: 1 })
      : data.style === "steps" ? window.uPlot.paths.stepped({ align: 1 }) : undefined;
    const solid = bars || data.stacked;
    return { scale: unit, stroke: () => paint(colourOf(one, index)), width: bars ? 0 : 1.8, paths, spanGaps: false,
      show: !this.frame.hidden.has(one.name), dash: one.dash ?? DASHES[Math.floor(index / 6) % 3],
      ...(solid || one.fill ? { fill: () => paint(colourOf(one, index)) + (solid ? "" : "22") } : {}),
      points: bars || data.points === false ? { show: false } : { size: 5, fill: () => paint(colourOf(one, index)) } };
  }

  /** The series in the order in which they are drawn: of a stack, the whole first and its parts over it. */
  drawn() {
    const listed = this.data.series.map((one, index) => ({ one, index }));
    return this.data.stacked ? listed.reverse() : listed;
  }

  columns() {
    const { data } = this;
    const positive = (values) => (data.log ? values.map((value) => (value > 0 ? value : null)) : values);
    const shown = data.series.filter((one) => !this.frame.hidden.has(one.name));
    return [data.x, ...this.drawn().map(({ one }) => {
      if (!data.stacked) return positive(one.values);
      const below = shown.slice(0, shown.indexOf(one) + 1);
      return data.x.map((_, at) => below.reduce((sum, part) => sum + (part.values[at] ?? 0), 0));
    })];
  }

  xRange() {
    const { data } = this;
    if ((data.style !== "bars" && !data.sync) || data.xLog) return {};
    return { range: (_, low, high) => [low, high === this.data.x.at(-1) ? high + this.step() : high] };
  }

  step() {
    const { x, width } = this.data;
    return width ?? (x.length > 1 ? x.at(-1) - x.at(-2) : 1);
  }

  nearest(nearest, x) {
    if (this.data.style !== "bars" || nearest === null || nearest === undefined) return nearest;
    return nearest > 0 && this.data.x[nearest] > x ? nearest - 1 : nearest;
  }

  hover(plot) {
    const { idx, left, top } = plot.cursor;
    if (idx === null || idx === undefined || left < 0) return void (this.isKey || this.frame.hideTip());
    this.at = idx;
    this.describe(idx, left, top);
  }

  describe(at, left, top) {
    const rows = this.rows(at);
    const { plot, data } = this;
    const head = pointText(data.x[at], data.xUnit ?? "time", this.step());
    this.frame.showTip(left + plot.bbox.left / devicePixelRatio, top, head, rows, { spoken: this.isKey });
  }

  /** Return name, value and colour of each series at a point, the values as they were given. */
  rows(at) {
    const { data } = this;
    const listed = data.series.map((one, index) => ({ one, index }));
    if (listed.length > MOST_IN_ORDER) listed.sort((a, b) => (b.one.values[at] ?? -Infinity) - (a.one.values[at] ?? -Infinity));
    return listed.filter(({ one }) => !this.frame.hidden.has(one.name))
      .map(({ one, index }) => ({ name: one.name, value: format(one.values[at], one.unit ?? data.unit ?? "1"), colour: colourOf(one, index) }));
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return this.unzoom();
    if (event.key === "Enter" && this.range) return this.choose(...this.range);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const last = this.data.x.length - 1;
    const from = this.at ?? (steps[event.key] > 0 ? -1 : last + 1);
    this.at = Math.max(0, Math.min(last, from + steps[event.key]));
    if (event.shiftKey) this.extend(Math.max(0, Math.min(last, from)));
    else this.range = this.anchor = null;
    this.isKey = true;
    const left = this.plot.valToPos(this.data.x[this.at], "x");
    this.plot.setCursor({ left, top: this.plot.over.clientHeight / 4 });
    this.isKey = false;
  }

  /** Select with the keyboard, from where Shift was first held. */
  extend(from) {
    this.anchor ??= from;
    this.range = [this.anchor, this.at].sort((a, b) => a - b).map((index) => this.data.x[index]);
    const [left, right] = this.range.map((x) => this.plot.valToPos(x, "x"));
    this.isExtending = true;
    this.plot.setSelect({ left, width: right - left, top: 0, height: this.plot.over.clientHeight }, false);
    this.isExtending = false;
  }

  selected(plot) {
    if (this.isExtending || plot.select.width < 4 || !this.data.onSelect) return;
    const { left, width } = plot.select;
    this.choose(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  choose(from, to) {
    if (this.data.onSelect) this.data.onSelect(from, to);
    else this.plot.setScale("x", { min: from, max: to });
    this.range = this.anchor = null;
    this.plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  }

  scaled(plot, key) {
    if (key !== "x" || !this.data.x.length) return;
    this.isZoomed = plot.scales.x.min > this.data.x[0] || plot.scales.x.max < this.data.x.at(-1);
    this.frame.root.dataset.zoomed = String(this.isZoomed);
  }

  unzoom() {
    this.range = this.anchor = null;
    this.frame.hideTip();
    this.plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.plot.setData(this.columns(), true);
  }

  redraw() {
    this.drawn().forEach(({ one }, place) => this.plot.setSeries(place + 1, { show: !this.frame.hidden.has(one.name) }));
    if (this.data.stacked) this.plot.setData(this.columns(), false);
  }

  resize(width) {
    this.plot?.setSize({ width: Math.max(width, 120), height: this.data.height ?? HEIGHT });
  }

  destroy() {
    this.endings.forEach((end) => end());
    this.plot?.destroy();
    this.frame.root.remove();
  }
}

const GRID = 200;

/**
 * Draw distributions. `data`: {series: [{name, edges (one more than counts, ascending), counts, colour?}], unit,
 * mode? ("cumulative", "tail"), label?, height?}.
 */
export function distribution(element, data) {
  return new LinePlot(element, "distribution", data, distributionLines).handle();
}

/** Return the lines of distributions: shares of each series at points that all of them have. */
function distributionLines(data) {
  const isTail = data.mode === "tail";
  const series = data.series.filter((one) => one.counts.some((count) => count > 0));
  const x = commonEdges(series);
  return {
    ...data, x, xUnit: data.unit, unit: "ratio", xLog: true, log: isTail, yRange: isTail ? undefined : [0, 1.02], points: false,
    series: series.map((one) => {
      const shares = cumulated(one, x);
      return { name: one.name, colour: one.colour, values: isTail ? shares.map((share) => (share < 1 ? 1 - share : null)) : shares, unit: "ratio" };
    }),
  };
}

function commonEdges(series) {
  if (!series.length) return [];
  const first = positive(series[0].edges);
  if (series.every((one) => String(one.edges) === String(series[0].edges))) return first;
  const low = Math.min(...series.map((one) => positive(one.edges)[0]));
  const high = Math.max(...series.map((one) => one.edges.at(-1)));
  return Array.from({ length: GRID + 1 }, (_, index) => low * (high / low) ** (index / GRID));
}

/** A logarithmic axis has no 0: values from 0 to the first edge stand there. */
function positive(edges) {
  return edges[0] > 0 ? edges : [edges[1] / 2, ...edges.slice(1)];
}

/** Return the share of the counts up to each point, even within an interval. */
function cumulated({ edges, counts }, points) {
  const own = positive(edges);
  const sums = [0];
  counts.forEach((count) => sums.push(sums.at(-1) + count));
  const all = sums.at(-1) || 1;
  let at = 0;
  return points.map((point) => {
    while (at < own.length - 2 && own[at + 1] <= point) at++;
    const [low, high] = [own[at], own[at + 1]];
    const part = Math.log(point / low) / Math.log(high / low);
    return (sums[at] + counts[at] * Math.max(0, Math.min(1, part || 0))) / all;
  });
}
