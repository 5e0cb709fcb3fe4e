// A plot of pages/plots.js as a component: made once, updated with new data.

import { html, useEffect, useRef } from "./pages/vendor/htm/standalone.module.js";
import { draw } from "./pages/plots.js";

// Plots with one cursor also share what is selected, but only the one that the pointer went down on may act on it.
let touched = null;
addEventListener("pointerdown", (event) => { touched = event.target; }, { capture: true });

/** Draw `data` as `kind`; `title` stands above it, `note` beside the title. */
export function Plot({ kind, data, title, note, children }) {
  const element = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const own = data.onSelect ? { ...data, onSelect: (...range) => element.current?.contains(touched) && data.onSelect(...range) } : data;
    if (plot.current) plot.current.update(own);
    else plot.current = draw(kind, element.current, own);
  }, [data]);
  useEffect(() => () => { plot.current?.destroy(); plot.current = null; }, []);
  return html`<section class="card-plot" aria-label=${title}>
    <div class="card-head"><h2>${title}</h2>${note && html`<span class="quiet-text">${note}</span>`}${children}</div>
    <div ref=${element}></div>
  </section>`;
}
