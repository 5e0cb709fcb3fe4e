// Axes of plots on a canvas: where the labels stand, what they say, how much room they take.

import { format, formatTick, formatTime, unitTitle } from "./format.js";
import { paint } from "./plot_frame.js";

const FONT = "12px system-ui, sans-serif";
const BYTE_STEPS = Array.from({ length: 54 }, (_, power) => 2 ** power);

/** Return the points between `low` and `high` that a logarithmic axis labels, at most `most`. */
export function logTicks(low, high, most = 8, base = 10) {
  if (!(low > 0) || !(high > low)) return [];
  const [first, last] = [low, high].map((end) => Math.log(end) / Math.log(base));
  const powers = (every) => {
    const found = [];
    for (let power = Math.ceil(first - 1e-9); power <= last + 1e-9; power++) {
      if (power % every === 0) found.push(base ** power);
    }
    return found;
  };
  if (base === 10) {
    // Within a factor of three, round points are few: those of a linear axis are more.
    if (high < 3 * low) return linearTicks(low, high, Math.min(most, 6));
    for (const factors of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3]]) {
      const found = [];
      for (let power = Math.floor(first); power <= last; power++) {
        for (const factor of factors) {
          // Written as a decimal, since powers of ten below 1 times a factor are not exact.
          const point = Number(`${factor}e${power}`);
          if (point >= low * 0.999999 && point <= high * 1.000001) found.push(point);
        }
      }
      const closest = Math.min(...found.slice(1).map((point, at) => Math.log(point / found[at]))) / Math.log(high / low);
      if (found.length <= most && found.length > 1 && closest * most > 0.6) return found;
    }
  }
  for (let every = 1; every < 60; every++) {
    const found = powers(every);
    if (found.length <= most) return found.length ? found : [low];
  }
  return [low, high];
}

/** Return about `most` round points from `low` to `high`. */
export function linearTicks(low, high, most = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

/** Return the options of a scale. `pad` keeps values away from the edge, `fixed` are its ends. */
export function scale(isLog, { fixed = null, pad = true } = {}) {
  if (fixed) return { time: false, distr: isLog ? 3 : 1, range: () => fixed };
  if (isLog) {
    return { time: false, distr: 3, log: 10, range: (_, low, high) => {
      if (!(low > 0)) return [1, 10];
      return pad ? [low / 1.15, high * 1.15] : [low, high === low ? low * 2 : high];
    } };
  }
  return { time: false, range: (_, low, high) => {
    if (low === null || low === undefined) return [0, 1];
    if (!pad) return low === high ? [low - 0.5, low + 0.5] : [low, high];
    const [from, to] = [Math.min(0, low), Math.max(0, high)];
    return from === to ? [0, 1] : [from && from * 1.05, to && to * 1.05];
  } };
}

/** Return the options of the horizontal axis: of points in time, or of values with a unit. */
export function across(unit, isLog) {
  const shared = { ...look(), scale: "x", size: unit === "time" ? 42 : 30, gap: 4 };
  if (unit === "time") {
    return { ...shared, space: 76, values: (_, splits, _axis, _space, step) => times(splits, step) };
  }
  const label = (_, splits) => splits.map((point) => formatTick(point, unit));
  if (!isLog) return { ...shared, space: 70, values: label, ...(unit === "B" ? { incrs: BYTE_STEPS } : {}) };
  return { ...shared, values: label, filter: (_, splits) => splits,
    splits: (plot, _axis, low, high) => logTicks(low, high, Math.max(2, Math.floor(plot.bbox.width / devicePixelRatio / 62)),
      unit === "B" ? 2 : 10) };
}

/** Return the options of a vertical axis; `room` is its width, else that of its widest label. */
export function upwards(scaleName, unit, isLog, isRight, room) {
  const title = unitTitle(unit);
  return { ...look(), scale: scaleName, side: isRight ? 1 : 3, gap: 4, space: 30, size: room ? room - (title ? 18 : 0) : widest,
    ...(isRight ? { grid: { show: false } } : {}),
    ...(title ? { label: title, labelSize: 18, labelFont: FONT } : {}),
    ...(unit === "B" ? { incrs: BYTE_STEPS } : {}),
    values: (_, splits) => splits.map((point) => formatTick(point, unit)),
    ...(isLog ? { filter: (_, splits) => splits,
      splits: (plot, _axis, low, high) => logTicks(low, high, Math.max(2, Math.floor(plot.bbox.height / devicePixelRatio / 26))) } : {}) };
}

/** Return the words for a point of the horizontal axis, as a tip's heading has them. */
export function pointText(point, unit, step) {
  if (unit !== "time") return format(point, unit);
  const text = new Date(point * 1000).toISOString();
  return `${text.slice(0, 10)} ${formatTime(point, Math.min(step || 1, 1))} UTC`;
}

function look() {
  const [ink, grid] = [() => paint("quiet"), () => paint("grid")];
  return { stroke: ink, font: FONT, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 } };
}

/** Return the labels of points in time: the day stands where it changes. */
function times(splits, step) {
  let day = "";
  return splits.map((point) => {
    const text = formatTime(point, 86400);
    const label = step >= 86400 ? text : formatTime(point, step);
    const begins = text !== day && step < 86400;
    day = text;
    return begins ? `${label}\n${text}` : label;
  });
}

/** Return the room for the widest label. */
function widest(plot, labels, index, cycle) {
  const axis = plot.axes[index];
  if (cycle > 1) return axis._size;
  const longest = (labels ?? []).reduce((found, label) => (label.length > found.length ? label : found), "");
  plot.ctx.save();
  plot.ctx.font = axis.font[0];
  const width = plot.ctx.measureText(longest).width / devicePixelRatio;
  plot.ctx.restore();
  return Math.ceil(width) + axis.ticks.size + axis.gap + 4;
}
