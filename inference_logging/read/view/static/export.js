// Files of what is seen.

import { html } from "./pages/vendor/htm/standalone.module.js";
import { address } from "./api.js";
import { Menu } from "./parts.js";

const FORMATS = [
  ["csv", "CSV", "a table for spreadsheets"],
  ["perfetto", "Perfetto", "a time line for ui.perfetto.dev"],
  ["openai-jsonl", "Replay file", "for inference-logging replay"],
  ["mooncake", "Trace", "Mooncake's form, for load generators"],
];

/** The menu of files; each link downloads what `query` finds. A table has `fields` as its columns, where they are given. */
export function ExportMenu({ query, fields, label = "Export" }) {
  return html`<${Menu} label=${label} icon="export" title="Export what is seen" align="right">
    ${(close) => html`<ul class="export">${FORMATS.map(([format, name, words]) => html`<li key=${format}>
      <a href=${address("export", { format, q: format === "csv" ? { ...query, fields } : query })} download onClick=${close}><b>${name}</b><span>${words}</span></a></li>`)}</ul>`}
  <//>`;
}
