// A heat map: how many values fall in each interval of a quantity, for each bucket of time.

import { format } from "./format.js";
import { across, pointText, scale, upwards } from "./plot_axes.js";
import { Frame, make, onResize, onScheme, paint, ROOM } from "./plot_frame.js";

const HEIGHT = 260;

/**
 * Draw a heat map. `data`: {x: starts of buckets (seconds since 1970), edges: ascending, one more than rows, cells: for
 * each bucket the count of each row, unit, cellUnit? ("1"), colour? ("first"), label?, height?, sync?,
 * onSelect?(x0, x1, y0, y1)}.
 */
export function heatmap(element, data) {
  const map = new HeatMap(element, data);
  return { update: (next) => map.set(next), destroy: () => map.destroy(), get plot() { return map.plot; } };
}

class HeatMap {
  constructor(element, data) {
    this.frame = new Frame(element, "heatmap", data.label);
    this.cell = null;
    this.set(data);
    this.endings = [onScheme(() => this.plot?.redraw(true, true)), onResize(this.frame.root, (width) =>
      this.plot?.setSize({ width: Math.max(width, 120), height: this.data.height ?? HEIGHT }))];
    this.frame.area.addEventListener("keydown", (event) => this.key(event));
  }

  set(data) {
    const edges = !(data.edges[0] > 0) ? [data.edges[1] / 2, ...data.edges.slice(1)] : data.edges;
    this.data = { ...data, edges };
    this.greatest = Math.max(0, ...data.cells.flat());
    const marks = data.cells.flat().filter((count) => count > 0).length;
    Object.assign(this.frame.root.dataset, { marks, scaleY: "log", scaleX: "linear" });
    this.frame.name(data.label);
    this.frame.showEmpty(marks === 0);
    this.showColours();
    const shape = JSON.stringify([edges, data.unit, data.height]);
    const columns = [data.x, data.x.map(() => null)];
    if (this.plot && this.shape === shape) return void this.plot.setData(columns, true);
    this.shape = shape;
    this.plot?.destroy();
    this.plot = new window.uPlot(this.options(Math.max(this.frame.root.clientWidth, 120)), columns, this.frame.area);
  }

  options(width) {
    const { data } = this;
    return {
      width, height: data.height ?? HEIGHT, legend: { show: false }, padding: [8, data.sync ? ROOM.right : 30, 0, 0],
      tzDate: (unix_s) => window.uPlot.tzDate(new Date(unix_s * 1e3), "Etc/UTC"),
      scales: { x: { range: (_, low, high) => [low, high === this.data.x.at(-1) ? high + this.step() : high] },
        y: scale(true, { fixed: [data.edges[0], data.edges.at(-1)] }) },
      axes: [across("time", false), { ...upwards("y", data.unit, true, false, data.sync && ROOM.left), grid: { show: false } }],
      series: [{}, { scale: "y", points: { show: false } }],
      cursor: { points: { show: false }, drag: { x: true, y: Boolean(data.onSelect), setScale: !data.onSelect },
        ...(data.sync ? { sync: { key: data.sync } } : {}) },
      hooks: { draw: [(plot) => this.paint(plot)], setCursor: [(plot) => this.hover(plot)], setSelect: [(plot) => this.selected(plot)] },
    };
  }

  /** Show which colour is how many: those of one, of the greatest, and of the middle between them. */
  showColours() {
    const { legend } = this.frame;
    const counts = [...new Set([1, Math.round(((1 + Math.sqrt(this.greatest)) / 2) ** 2), this.greatest])];
    legend.hidden = this.greatest < 1;
    legend.replaceChildren(make("span", "plot-colours", ...counts.map((count) => {
      const colour = make("i", "");
      colour.style.background = `var(--${this.data.colour ?? "first"})`;
      colour.style.opacity = this.strength(count);
      return make("span", "", colour, format(count, this.data.cellUnit ?? "1"));
    }), "in a cell"));
  }

  /** Return the opacity of a cell. */
  strength(count) {
    return 0.15 + 0.85 * Math.sqrt(count / this.greatest);
  }

  step() {
    const { x, width } = this.data;
    return width ?? (x.length > 1 ? x[1] - x[0] : 1);
  }

  paint(plot) {
    const { ctx, bbox } = plot;
    const { x, edges, cells } = this.data;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = paint(this.data.colour ?? "first");
    const rows = edges.map((edge) => Math.round(plot.valToPos(edge, "y", true)));
    const step = this.step();
    x.forEach((start, bucket) => {
      const left = Math.round(plot.valToPos(start, "x", true));
      const width = Math.max(1, Math.round(plot.valToPos(start + step, "x", true)) - left);
      cells[bucket].forEach((count, row) => {
        if (!(count > 0)) return;
        ctx.globalAlpha = this.strength(count);
        ctx.fillRect(left, rows[row + 1], width, rows[row] - rows[row + 1]);
      });
    });
    ctx.restore();
  }

  hover(plot) {
    const { left, top } = plot.cursor;
    if (this.isKey) return;
    if (left === null || left === undefined || left < 0 || !this.data.x.length) return this.frame.hideTip();
    const [x, y] = [plot.posToVal(left, "x"), plot.posToVal(top, "y")];
    this.cell = [this.bucketOf(x), this.rowOf(y)];
    this.describe(left, top, false);
  }

  bucketOf(x) {
    const found = this.data.x.findIndex((start) => start > x);
    return Math.max(0, (found < 0 ? this.data.x.length : found) - 1);
  }

  rowOf(y) {
    const { edges } = this.data;
    const found = edges.findIndex((edge) => edge > y);
    return Math.max(0, Math.min(edges.length - 2, (found < 0 ? edges.length : found) - 1));
  }

  describe(left, top, spoken) {
    const [bucket, row] = this.cell;
    const { x, edges, cells, unit, cellUnit } = this.data;
    const all = cells[bucket].reduce((sum, count) => sum + count, 0);
    const rows = [{ name: `${format(edges[row], unit)} … ${format(edges[row + 1], unit)}`, value: format(cells[bucket][row], cellUnit ?? "1"),
      colour: this.data.colour ?? "first" }, { name: "all in this time", value: format(all, cellUnit ?? "1") }];
    this.frame.showTip(left + this.plot.bbox.left / devicePixelRatio, top, pointText(x[bucket], "time", this.step()), rows, { spoken });
  }

  key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], Home: [-Infinity, 0], End: [Infinity, 0] };
    const { x, edges } = this.data;
    if (event.key === "Enter" && this.cell) return this.choose();
    if (!(event.key in steps) || !x.length) return;
    event.preventDefault();
    const [bucket, row] = this.cell ?? [event.key === "ArrowLeft" ? x.length : -1, Math.floor(edges.length / 2)];
    const within = (value, most) => Math.max(0, Math.min(most, value));
    this.cell = [within(bucket + steps[event.key][0], x.length - 1), within(row + steps[event.key][1], edges.length - 2)];
    const left = this.plot.valToPos(x[this.cell[0]] + this.step() / 2, "x");
    const top = (this.plot.valToPos(edges[this.cell[1]], "y") + this.plot.valToPos(edges[this.cell[1] + 1], "y")) / 2;
    this.isKey = true;
    this.plot.setCursor({ left, top });
    this.isKey = false;
    this.describe(left, top, true);
  }

  choose() {
    const [bucket, row] = this.cell;
    const { x, edges, onSelect } = this.data;
    onSelect?.(x[bucket], x[bucket] + this.step(), edges[row], edges[row + 1]);
  }

  selected(plot) {
    const { left, top, width, height } = plot.select;
    if (!this.data.onSelect || width < 4 || height < 4) return;
    this.data.onSelect(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"),
      plot.posToVal(top + height, "y"), plot.posToVal(top, "y"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  destroy() {
    this.endings.forEach((end) => end());
    this.plot?.destroy();
    this.frame.root.remove();
  }
}
