// Distributions from counts between edges: the share up to a value, or the share above it.

import { LinePlot } from "./plot_lines.js";

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
