// Draws the panels of a dashboard of Grafana's from its own JSON and what Prometheus answered, so that they can be looked at.
"use strict";

const PALETTE = ["#3f8f3a", "#c28f00", "#2f6fb7", "#c4622d", "#b3262f", "#6b54a3", "#0f8a8a", "#a83f80", "#6f6f6f", "#7a9a01"];
const COLOURS = {green: "#3f8f3a", yellow: "#b58900", orange: "#d0661b", red: "#c4162a", purple: "#8f3bb8", blue: "#2f6fb7"};
const make = (tag, name, parent, text) => {
  const element = document.createElement(tag);
  element.className = name;
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
};

function scaled(value, base, prefixes) {
  let place = 0;
  while (Math.abs(value) >= base && place < prefixes.length - 1) [value, place] = [value / base, place + 1];
  return [value, prefixes[place]];
}
const short = value => {
  if (value === 0) return "0";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3;
  return String(Number(value.toFixed(Math.abs(value) < 0.01 ? 5 : digits)));
};

// As Grafana writes a value of a unit.
function format(value, unit) {
  if (value === null || value === undefined) return "";
  if (unit === "s") {
    const size = Math.abs(value);
    if (size === 0) return "0 s";
    if (size < 1e-3) return `${short(value * 1e6)} µs`;
    if (size < 1) return `${short(value * 1e3)} ms`;
    return size < 60 ? `${short(value)} s` : size < 3600 ? `${short(value / 60)} min` : `${short(value / 3600)} h`;
  }
  if (unit === "percentunit") return `${short(value * 100)}%`;
  if (unit === "bytes" || unit === "Bps") {
    const [number, prefix] = unit === "bytes" ? scaled(value, 1024, ["", "Ki", "Mi", "Gi", "Ti"]) : scaled(value, 1000, ["", "k", "M", "G"]);
    return `${short(number)} ${prefix}B${unit === "Bps" ? "/s" : ""}`;
  }
  if (unit === "none") return short(value);
  const [number, prefix] = scaled(value, 1000, ["", "K", "Mil", "Bil"]);
  if (unit === "short") return `${short(number)}${prefix && ` ${prefix}`}`;
  const name = {reqps: "req/s", wps: "wr/s"}[unit] ?? (unit.startsWith("si:") ? unit.slice(3) : null);
  if (name === null) throw new Error(`no unit ${unit}`);
  return `${short(number)} ${{Mil: "M", Bil: "G", K: "k"}[prefix] ?? ""}${name}`;
}

const last = values => values.findLast(value => value !== null) ?? null;
const stepOf = (steps, value) => steps.reduce((found, step) => step.value === null || value >= step.value ? step : found, steps[0]);

function stat(body, panel, data) {
  const {unit, thresholds} = panel.fieldConfig.defaults;
  const values = make("div", "values", body);
  const boxes = data.series.map(() => make("div", "value", values));
  data.series.forEach(({name, values: found}, place) => {
    const one = boxes[place], now = last(found), colour = COLOURS[stepOf(thresholds.steps, now).color];
    make("div", "name", one, name);
    make("div", "number", one, format(now, unit)).style.color = colour;
    const area = make("div", "area", one);
    new uPlot({width: area.clientWidth, height: area.clientHeight, legend: {show: false}, cursor: {show: false}, padding: [2, 0, 0, 0],
      axes: [{show: false}, {show: false}], scales: {x: {time: false}, y: {range: (_, low, high) => [Math.min(0, low), high || 1]}},
      series: [{}, {stroke: colour, fill: `${colour}30`}]}, [data.x, found], area);
  });
}

function legend(body, series, colours) {
  const list = make("div", "legend", body);
  series.forEach(({name}, place) => {
    const one = make("span", "", list, name);
    make("i", "", one).style.background = colours[place];
  });
  return list.offsetHeight;
}

function marks(plot, data) {
  const {ctx, bbox} = plot;
  ctx.save();
  ctx.setLineDash([4, 3]);
  for (const {colour, times} of data.annotations) {
    // One path: what lies over each other is not darker.
    const areas = new Path2D(), begins = new Path2D();
    for (const [from, to] of times) {
      const left = Math.max(plot.valToPos(from, "x", true), bbox.left), right = Math.min(plot.valToPos(to, "x", true), bbox.left + bbox.width);
      areas.rect(left, bbox.top, Math.max(0, right - left), bbox.height);
      begins.moveTo(left, bbox.top);
      begins.lineTo(left, bbox.top + bbox.height);
    }
    ctx.fillStyle = `${COLOURS[colour]}18`;
    ctx.strokeStyle = COLOURS[colour];
    ctx.fill(areas);
    ctx.stroke(begins);
  }
  ctx.restore();
}

function axes(unit) {
  const look = {stroke: "#555", grid: {stroke: "#0001", width: 1}, ticks: {stroke: "#0002", width: 1}, font: "11px sans-serif"};
  const time = (_, found) => found.map(one => new Date(one * 1000).toISOString().slice(11, 19));
  const incrs = unit === "bytes" ? {incrs: Array.from({length: 50}, (_, power) => 2 ** power)} : {};
  return [{...look, values: time, space: 62, size: 26}, {...look, ...incrs, size: 76, values: (_, found) => found.map(one => format(one, unit))}];
}

function lines(body, panel, data) {
  const {unit, min, max, custom, thresholds} = panel.fieldConfig.defaults;
  const colours = data.series.map((_, place) => PALETTE[place % PALETTE.length]);
  const isStacked = custom.stacking.mode === "normal", isLog = custom.scaleDistribution?.type === "log";
  const sums = data.x.map(() => 0);
  const columns = data.series.map(({values}) => isStacked ? values.map((one, at) => sums[at] += one ?? 0) : values.map(one => isLog && !(one > 0) ? null : one));
  const order = isStacked ? columns.map((_, place) => place).reverse() : columns.map((_, place) => place);
  const isHidden = ({values}) => panel.fieldConfig.overrides.some(({matcher: {id, options}}) =>
    id === "byValue" && options.reducer === "max" && options.op === "lte" && Math.max(...values) <= options.value);
  const named = data.series.map((one, place) => [one, colours[place]]).filter(([one]) => !isHidden(one));
  const height = body.clientHeight - legend(body, named.map(([one]) => one), named.map(([_, colour]) => colour)) - 4;
  const y = isLog ? {distr: 3} : {range: (_, low, high) => {
    const bottom = min ?? Math.min(0, low);
    return [bottom, max ?? (high > bottom ? high + (high - bottom) * 0.08 : bottom + 1)];
  }};
  const bars = custom.drawStyle === "bars" ? uPlot.paths.bars({size: [0.9, 20]}) : undefined;
  const series = order.map(place => ({
    label: data.series[place].name, stroke: colours[place], width: custom.lineWidth * 1.5, paths: bars, points: {show: false},
    fill: isLog ? undefined : isStacked ? `color-mix(in srgb, ${colours[place]} ${custom.fillOpacity}%, white)`
      : `${colours[place]}${Math.round(custom.fillOpacity * 2.55).toString(16).padStart(2, "0")}`,
  }));
  const areas = plot => {
    if (custom.thresholdsStyle?.mode !== "area") return;
    thresholds.steps.forEach((step, place) => {
      if (step.value === null) return;
      const top = plot.valToPos(Math.min(thresholds.steps[place + 1]?.value ?? 1, 1), "y", true);
      plot.ctx.fillStyle = `${COLOURS[step.color]}18`;
      plot.ctx.fillRect(plot.bbox.left, top, plot.bbox.width, plot.valToPos(step.value, "y", true) - top);
    });
  };
  const place = make("div", "plot", body);
  body.prepend(place);
  new uPlot({padding: [8, 24, 0, 0], width: body.clientWidth, height, legend: {show: false}, cursor: {show: false}, axes: axes(unit), scales: {x: {range: [data.from, data.to]}, y},
    series: [{}, ...series], hooks: {drawClear: [plot => { areas(plot); marks(plot, data); }]}}, [data.x, ...order.map(one => columns[one])], place);
}

function heatmap(body, panel, data) {
  // Buckets hold all below them: each less the one before.
  const rows = data.series.map(one => ({edge: one.name === "+Inf" ? Infinity : Number(one.name), values: one.values})).sort((a, b) => a.edge - b.edge);
  const cells = rows.map((row, place) => row.values.map((value, at) => value === null ? null : Math.max(0, value - (place ? rows[place - 1].values[at] ?? 0 : 0))));
  const most = Math.max(...cells.flat()), {exponent} = panel.options.color;
  const position = value => {
    const place = rows.findIndex(row => value <= row.edge), low = place ? rows[place - 1].edge : 0, high = rows[place].edge;
    return place + (Number.isFinite(high) ? (value - low) / (high - low) : 0.5);
  };
  const draw = plot => {
    const {ctx} = plot, width = plot.valToPos(data.x[0] + data.step, "x", true) - plot.valToPos(data.x[0], "x", true);
    cells.forEach((row, place) => row.forEach((value, at) => {
      if (!(value > panel.options.filterValues.le)) return;
      const top = plot.valToPos(place + 1, "y", true), share = (value / most) ** exponent;
      ctx.fillStyle = `hsl(210 75% ${Math.round(90 - 60 * share)}%)`;
      ctx.fillRect(plot.valToPos(data.x[at], "x", true) - width, top, width - 0.5, plot.valToPos(place, "y", true) - top - 1);
    }));
    ctx.fillStyle = panel.options.exemplars.color;
    for (const [at, value] of data.exemplars) {
      ctx.beginPath();
      ctx.arc(plot.valToPos(at, "x", true), plot.valToPos(position(value), "y", true), 2.2, 0, 7);
      ctx.fill();
    }
  };
  const [x, y] = axes(panel.options.yAxis.unit), all = rows.map((_, place) => place + 1);
  const label = place => place < 1 ? "0 s" : Number.isFinite(rows[place - 1].edge) ? format(rows[place - 1].edge, panel.options.yAxis.unit) : "+Inf";
  const labels = {...y, splits: () => [0, ...all], values: (_, found) => found.map((one, at) => at % Math.ceil(all.length / 8) ? "" : label(one))};
  new uPlot({padding: [8, 24, 0, 0], width: body.clientWidth, height: body.clientHeight - 16, legend: {show: false}, cursor: {show: false}, axes: [x, labels],
    scales: {x: {range: [data.from, data.to]}, y: {range: [0, rows.length]}}, series: [{}, {show: true, stroke: "transparent"}],
    hooks: {draw: [draw]}}, [data.x, data.x.map(() => 0)], body);
  make("div", "scale", body, `white: none; dark: ${format(most, panel.options.cellValues.unit)} in a bucket; ${data.exemplars.length} exemplars`);
}

function states(body, panel, data) {
  const mapped = panel.fieldConfig.defaults.mappings[0].options;
  const rows = make("div", "states", body);
  for (const {name, values} of data.series) {
    make("div", "name", rows, name);
    const line = make("div", "line", rows);
    for (const value of values) make("b", "", line).style.background = value === null ? "transparent" : COLOURS[mapped[value].color];
  }
  legend(body, Object.values(mapped).map(({text}) => ({name: text})), Object.values(mapped).map(({color}) => COLOURS[color]));
}

const DRAWN = {stat, timeseries: lines, heatmap, "state-timeline": states};

// Draws each panel in its place; `found` has the answers by the panel's number. Returns what could not be drawn.
function dashboard(panels, found) {
  const problems = [], board = make("main", "", document.body);
  for (const panel of panels) {
    const {x, y, w, h} = panel.gridPos, box = make("section", panel.type, board);
    box.id = `panel-${panel.id}`;
    box.style.gridArea = `${y + 1} / ${x + 1} / span ${h} / span ${w}`;
    make("h2", "", box, panel.title);
    if (panel.type === "row") continue;
    const body = make("div", "body", box);
    try {
      if (!found[panel.id].series.length) throw new Error("no data");
      DRAWN[panel.type](body, panel, found[panel.id]);
    } catch (error) {
      problems.push(`${panel.title}: ${error.message}`);
      make("p", "empty", body, error.message);
    }
  }
  return problems;
}

// The titles of panels without colour: grids and axes are grey.
function blank() {
  const isColoured = ({0: red, 1: green, 2: blue, 3: alpha}) => alpha > 0 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40;
  const coloured = canvas => {
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4) found += isColoured(data.subarray(at, at + 4));
    return found;
  };
  const shown = panel => [...panel.querySelectorAll("canvas")].reduce((sum, canvas) => sum + coloured(canvas), panel.querySelectorAll(".line b").length);
  return [...document.querySelectorAll("section:not(.row)")].filter(panel => shown(panel) < 20).map(panel => panel.querySelector("h2").textContent);
}
