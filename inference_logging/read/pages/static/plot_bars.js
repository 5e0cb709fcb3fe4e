// Bars, dots and intervals by name, as elements of the page: names are text, and colours are the page's own.

import { format, formatTick, unitTitle } from "./format.js";
import { linearTicks, logTicks } from "./plot_axes.js";
import { colourOf, Frame, isolated, make, onResize } from "./plot_frame.js";

/**
 * Draw a row for each name. `data`: {labels, series: [{name, values, low?, high?, colour?}], unit, mark?
 * ("bar", "dot"), stacked?, log?, ours? (labels to emphasise), texts? (what stands beside a row, else its values),
 * rules? (lines across: [{value, name}]), label?}.
 */
export function bars(element, data) {
  const plot = new BarPlot(element, data);
  return { update: (next) => plot.set(next), destroy: () => plot.destroy() };
}

class BarPlot {
  constructor(element, data) {
    this.frame = new Frame(element, "bars", data.label);
    this.frame.area.addEventListener("keydown", (event) => this.key(event));
    this.set(data);
    this.end = onResize(this.frame.root, () => this.draw());
  }

  set(data) {
    this.data = data;
    this.at = null;
    const marks = this.data.series.reduce((sum, one) => sum + one.values.filter(isNumber).length, 0);
    Object.assign(this.frame.root.dataset, { marks, series: this.data.series.length, scaleX: data.log ? "log" : "linear" });
    this.frame.name(data.label);
    this.frame.showEmpty(marks === 0);
    this.frame.showLegend(this.data.series, () => this.draw());
    this.draw();
  }

  shown() {
    return this.data.series.map((one, index) => ({ ...one, colour: colourOf(one, index) }))
      .filter((one) => !this.frame.hidden.has(one.name));
  }

  draw() {
    const series = this.shown();
    this.place = this.scaleOf(series);
    this.list = make("div", "bars");
    this.rows = this.data.labels.map((label, at) => this.row(label, at, series));
    this.list.append(...this.rows, this.axis());
    this.frame.area.replaceChildren(this.list);
  }

  /** Return a function from a value to its place across the track, in percent. */
  scaleOf(series) {
    const { data } = this;
    const values = data.stacked ? data.labels.map((_, at) => series.reduce((sum, one) => sum + (one.values[at] ?? 0), 0))
      : series.flatMap((one) => [one.values, one.low ?? [], one.high ?? []]).flat();
    const ruled = (data.rules ?? []).map((rule) => rule.value);
    const found = [...values, ...ruled].filter((value) => isNumber(value) && (!data.log || value > 0));
    const width = this.frame.root.clientWidth || 600;
    const isNarrow = width < 544; // theme.css puts names above the bars from there
    const track = Math.max(120, width * (isNarrow ? 0.95 : 0.5));
    this.edge = isNarrow ? 8 : 3;
    if (data.log) {
      const [low, high] = [Math.min(...found) / 1.4, Math.max(...found) * 1.4];
      this.ticks = found.length ? logTicks(low, high, Math.max(2, Math.floor(track / 72)), data.unit === "B" ? 2 : 10) : [];
      return (value) => Math.max(0, (Math.log(value / low) / Math.log(high / low)) * 100);
    }
    const [low, high] = linearRange(found, data.mark === "dot");
    this.ticks = linearTicks(low, high, Math.max(2, Math.floor(track / 90)));
    return (value) => Math.max(0, ((value - low) / (high - low)) * 100);
  }

  row(label, at, series) {
    const name = make("div", this.data.ours?.includes(label) ? "bars-label ours" : "bars-label", isolated(label));
    const track = make("div", "bars-track", ...this.ticks.map((tick) => placed("bars-grid", this.place(tick))),
      ...(this.data.rules ?? []).map((rule) => placed("bars-rule", this.place(rule.value))));
    const marks = make("div", "bars-marks");
    this.marks(marks, at, series);
    track.append(marks);
    if (this.data.mark !== "dot" && !this.data.stacked) track.style.minHeight = `${Math.max(1.2, series.length * 0.8)}rem`;
    const row = make("div", "bars-row", name, track, make("div", "bars-value", isolated(this.text(at, series))));
    row.addEventListener("mousemove", (event) => this.describe(at, event.clientX - this.frame.area.getBoundingClientRect().left));
    return row;
  }

  marks(track, at, series) {
    if (this.data.mark === "dot") return this.dots(track, at, series);
    let left = 0;
    series.forEach((one, index) => {
      const value = one.values[at];
      if (!isNumber(value) || value === 0) return;
      const bar = placed("bars-bar", this.data.stacked ? this.place(left) : 0);
      bar.style.width = `${this.place(value)}%`;
      bar.style.background = `var(--${one.colour})`;
      const height = this.data.stacked ? 100 : 100 / series.length;
      bar.style.top = `${this.data.stacked ? 10 : index * height + 10 / series.length}%`;
      bar.style.height = `${height * 0.8}%`;
      bar.dataset.value = value;
      track.append(bar);
      if (isNumber(one.low?.[at])) track.append(this.reach(one, at, "quiet", bar));
      left += value;
    });
    if (this.data.stacked || series.length < 2) return;
    track.style.height = `${series.length * 0.8}rem`;
    track.style.top = `calc(50% - ${series.length * 0.4}rem)`;
  }

  dots(track, at, series) {
    const values = series.map((one) => one.values[at]).filter((value) => isNumber(value) && (!this.data.log || value > 0));
    if (values.length > 1) {
      const [low, high] = [this.place(Math.min(...values)), this.place(Math.max(...values))];
      const span = placed("bars-span", low);
      span.style.width = `${high - low}%`;
      span.style.top = "calc(50% - 1px)";
      track.append(span);
    }
    series.forEach((one) => {
      if (!isNumber(one.values[at]) || (this.data.log && !(one.values[at] > 0))) return;
      if (isNumber(one.low?.[at])) track.append(this.reach(one, at, one.colour));
      const dot = placed("bars-dot", this.place(one.values[at]));
      dot.style.top = "calc(50% - .325rem)";
      dot.style.background = `var(--${one.colour})`;
      dot.dataset.value = one.values[at];
      track.append(dot);
    });
  }

  /** Return how far an interval reaches, in the middle of the row, or of `bar`. */
  reach(one, at, colour, bar = null) {
    const reach = placed("bars-reach", this.place(one.low[at]));
    reach.style.width = `${Math.max(0, this.place(one.high[at]) - this.place(one.low[at]))}%`;
    reach.style.top = bar ? `calc(${bar.style.top} + ${bar.style.height} / 2 - 1px)` : "calc(50% - 1px)";
    reach.style.background = `var(--${colour})`;
    return reach;
  }

  /** Return what stands beside a row. */
  text(at, series) {
    if (this.data.texts) return this.data.texts[at];
    return series.map((one) => format(one.values[at], this.data.unit)).join(" · ");
  }

  axis() {
    const labels = this.ticks.map((tick) => {
      const place = this.place(tick);
      const label = placed(place < this.edge ? "first" : place > 100 - this.edge ? "last" : "", place);
      label.textContent = formatTick(tick, this.data.unit);
      return label;
    });
    const rules = (this.data.rules ?? []).map((rule) => `┆ ${rule.name}`);
    const unit = [unitTitle(this.data.unit), ...rules].filter(Boolean).join(" ");
    return make("div", "bars-axis", make("div", "bars-label"), make("div", "bars-ticks", ...labels), make("div", "bars-value", unit));
  }

  describe(at, left, spoken = false) {
    const rows = this.shown().map((one) => {
      const reach = isNumber(one.low?.[at]) ? ` (${format(one.low[at], this.data.unit)} … ${format(one.high[at], this.data.unit)})` : "";
      return { name: one.name || this.data.label || "", value: format(one.values[at], this.data.unit) + reach, colour: one.colour };
    });
    const row = this.rows[at];
    this.frame.showTip(left, row.offsetTop + row.offsetHeight + 4, this.data.labels[at], rows, { spoken });
  }

  key(event) {
    const steps = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return this.frame.hideTip();
    if (!(event.key in steps) || !this.rows.length) return;
    event.preventDefault();
    const from = this.at ?? (steps[event.key] > 0 ? -1 : this.rows.length);
    this.at = Math.max(0, Math.min(this.rows.length - 1, from + steps[event.key]));
    this.rows.forEach((row, at) => row.classList.toggle("at", at === this.at));
    this.describe(this.at, this.frame.area.clientWidth / 2, true);
  }

  destroy() {
    this.end();
    this.frame.root.remove();
  }
}

/** Return the ends of a linear axis: from 0, but for dots that lie close to each other far from it. */
function linearRange(found, isDots) {
  const [low, high] = [Math.min(0, ...found), Math.max(0, ...found)];
  const least = Math.min(...found);
  if (isDots && found.length && least > 0.6 * high) {
    const room = Math.max((high - least) * 0.12, high * 0.002);
    return [least - room, high + room];
  }
  return [low * 1.02, high * 1.02 || 1];
}

function isNumber(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

function placed(className, left) {
  const element = make("i", className);
  element.style.left = `${left}%`;
  return element;
}
