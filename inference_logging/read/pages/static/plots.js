// The plots of every page. Each function draws in an element, and returns {update(data), destroy()}.

import { bars } from "./plot_bars.js";
import { heatmap } from "./plot_heatmap.js";
import { distribution, lines } from "./plot_lines.js";

const KINDS = { bars, distribution, heatmap, lines };

/** Draw a plot by the name of its function. */
export function draw(kind, element, data) {
  return KINDS[kind](element, data);
}
