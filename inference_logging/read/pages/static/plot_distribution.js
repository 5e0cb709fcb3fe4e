// Distributions from counts between edges: the share up to a value, the share above it, or the share in each interval.

import { LinePlot } from "./plot_lines.js";

const GRID = 200;

/**
 * Draw distributions. `data`: {series: [{name, edges (one more than counts, ascending), counts, colour?}], unit, log?
 * (true), mode? ("cumulative", "tail", "histogram"), marks? [{x, name}], label?, height?, onSelect?(from, to)}.
 */
export function distribution(element, data) {
  return new LinePlot(element, "distribution", data, distributionLines).handle();
}

/** Return the lines of distributions: shares of each series at points that all of them have. */
export function distributionLines(data) {
  const mode = data.mode ?? "cumulative";
  const isLog = data.log ?? true;
  const series = data.series.filter((one) => one.counts.some((count) => count > 0));
  const x = commonEdges(series, isLog);
  const isHistogram = mode === "histogram";
  return {
    ...data, x: isHistogram ? x.slice(0, -1) : x, xUnit: data.unit, unit: "ratio", xLog: isLog, log: mode === "tail",
    style: isHistogram ? "steps" : "line", yRange: mode === "cumulative" ? [0, 1.02] : undefined,
    points: false,
    series: series.map((one) => {
      const shares = cumulated(one, x, isLog);
      const values = mode === "cumulative" ? shares
        : mode === "tail" ? shares.map((share) => (share < 1 ? 1 - share : null))
          : shares.slice(1).map((share, at) => share - shares[at]);
      return { name: one.name, colour: one.colour, values, fill: isHistogram, unit: "ratio" };
    }),
  };
}

function commonEdges(series, isLog) {
  if (!series.length) return [];
  const first = positive(series[0].edges, isLog);
  if (series.every((one) => String(one.edges) === String(series[0].edges))) return first;
  const low = Math.min(...series.map((one) => positive(one.edges, isLog)[0]));
  const high = Math.max(...series.map((one) => one.edges.at(-1)));
  const at = isLog ? (share) => low * (high / low) ** share : (share) => low + (high - low) * share;
  return Array.from({ length: GRID + 1 }, (_, index) => at(index / GRID));
}

/** A logarithmic axis has no 0: values from 0 to the first edge stand there. */
function positive(edges, isLog) {
  return isLog && !(edges[0] > 0) ? [edges[1] / 2, ...edges.slice(1)] : edges;
}

/** Return the share of the counts up to each point, even within an interval. */
function cumulated({ edges, counts }, points, isLog) {
  const own = positive(edges, isLog);
  const sums = [0];
  counts.forEach((count) => sums.push(sums.at(-1) + count));
  const all = sums.at(-1) || 1;
  let at = 0;
  return points.map((point) => {
    while (at < own.length - 2 && own[at + 1] <= point) at++;
    const [low, high] = [own[at], own[at + 1]];
    const part = isLog ? Math.log(point / low) / Math.log(high / low) : (point - low) / (high - low);
    return (sums[at] + counts[at] * Math.max(0, Math.min(1, part || 0))) / all;
  });
}
