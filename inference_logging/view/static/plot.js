// A plot of pages/plots.js as a component: made once, updated with new data.

import { html, useEffect, useRef } from "./pages/vendor/htm/standalone.module.js";
import { bars, distribution, heatmap, lines } from "./pages/plots.js";

const KINDS = { bars, distribution, heatmap, lines };

/** Draw `data` as `kind`; `title` stands above it, `note` beside the title. */
export function Plot({ kind, data, title, note, children }) {
  const element = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    if (plot.current) plot.current.update(data);
    else plot.current = KINDS[kind](element.current, data);
  }, [data]);
  useEffect(() => () => { plot.current?.destroy(); plot.current = null; }, []);
  return html`<section class="card-plot" aria-label=${title}>
    <div class="card-head"><h3>${title}</h3>${note && html`<span class="quiet-text">${note}</span>`}${children}</div>
    <div ref=${element}></div>
  </section>`;
}
