// The plots of every page. Each function draws in an element, and returns {update(data), destroy()}.

import { bars } from "./plot_bars.js";
import { distribution } from "./plot_distribution.js";
import { heatmap } from "./plot_heatmap.js";
import { lines } from "./plot_lines.js";

export { bars, distribution, heatmap, lines };

const KINDS = { bars, distribution, heatmap, lines };

/** Draw a plot by the name of its function. */
export function draw(kind, element, data) {
  return KINDS[kind](element, data);
}

/** Draw `plots` ([{id, kind, data}]) in the elements with these ids; return what each function returned, by id. */
export function renderAll(plots) {
  return Object.fromEntries(plots.map(({ id, kind, data }) => [id, draw(kind, document.getElementById(id), data)]));
}
