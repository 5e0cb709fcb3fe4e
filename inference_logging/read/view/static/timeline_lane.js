// One lane of the timeline.

import { html } from "./pages/vendor/htm/standalone.module.js";

/** A lane: its name at the left, or above it where the window is narrow. */
export function Lane({ name, height, scale, class: kind = "", children, title, note }) {
  return html`<div class="lane ${kind} ${scale.labels ? "" : "named"}" title=${title}>
    <span class="lane-name" style=${scale.labels ? { width: `${scale.labels}px` } : {}}>${name}${note && html`<b>${note}</b>`}</span>
    <svg width=${scale.width} height=${height} role="img" aria-label="${name}${note ? ` ${note}` : ""}">${children}</svg>
  </div>`;
}
