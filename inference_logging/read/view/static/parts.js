// Small parts that every page uses: states, menus, notices, plots, and files of what is seen.

import { html, useEffect, useRef, useState } from "./pages/vendor/htm/standalone.module.js";
import { draw } from "./pages/plots.js";
import { address } from "./api.js";
import { visible } from "./text.js";

/** Use whether a query of the window (`matchMedia`) holds. */
export function useMedia(query) {
  const [holds, set] = useState(query.matches);
  useEffect(() => {
    const update = () => set(query.matches);
    query.addEventListener("change", update);
    return () => query.removeEventListener("change", update);
  }, []);
  return holds;
}

/** What is shown until an answer has come. */
export function Loading({ what }) {
  return html`<p class="state" role="status"><span class="spinner" aria-hidden="true"></span>Loading ${what}…</p>`;
}

/** An error, and the way to try again. */
export function Failure({ error, what, retry }) {
  return html`<div class="state failure" role="alert">
    <p><strong>${what} could not be loaded.</strong></p>
    <p class="words">${visible(error.message)}</p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** What stands where an answer is empty: why, and what helps. */
export function Empty({ title, children }) {
  return html`<div class="state empty" role="status"><p><strong>${title}</strong></p>${children}</div>`;
}

/** A stroke icon of 16 pixels, by its path. */
export function Icon({ path, size = 16 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <path d=${path} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" />
  </svg>`;
}

export const ICONS = {
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.2v9.6l7.5-4.8z",
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.5 10.5l3.5 3.5",
  filter: "M2 3.5h12l-4.7 5.4v4.1l-2.6-1.4V8.9z",
  clock: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 4.8V8l2.3 1.6",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  export: "M8 2.5v7.5M4.8 7L8 10.2 11.2 7M2.5 13.2h11",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.4v1.3M8 13.3v1.3M1.4 8h1.3M13.3 8h1.3M3.3 3.3l.9.9M11.8 11.8l.9.9M3.3 12.7l.9-.9M11.8 4.2l.9-.9",
  dark: "M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z",
  auto: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 2.2v11.6M10 3v10M12 4.2v7.6",
  open: "M9.5 2.5h4v4M13.3 2.7L7.5 8.5M6.5 3.5h-4v10h10v-4",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  left: "M10 4L6 8l4 4",
  right: "M6 4l4 4-4 4",
  copy: "M5.5 5.5h8v8h-8zM3 10.5h-.5v-8h8V3",
  plus: "M8 3.5v9M3.5 8h9",
  minus: "M3.5 8h9",
  whole: "M2.5 6v-3.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
};

/** A button that opens a panel below itself. Escape and a click elsewhere close it; the focus goes back. */
export function Menu({ label, icon, title, count, align = "left", children, class: name = "" }) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    const outside = (event) => root.current?.contains(event.target) || setOpen(false);
    addEventListener("pointerdown", outside);
    root.current?.querySelector(".menu-panel :is(a, button, input, select)")?.focus();
    return () => removeEventListener("pointerdown", outside);
  }, [isOpen]);
  const close = () => { setOpen(false); root.current?.querySelector("button")?.focus(); };
  const keys = (event) => {
    if (event.key === "Escape" && isOpen) { event.stopPropagation(); close(); }
  };
  return html`<div class="menu ${name}" ref=${root} onKeyDown=${keys}>
    <button type="button" class="tool" title=${title} aria-label=${title && !title.includes(label) ? `${label} – ${title}` : title ?? label} aria-expanded=${isOpen}
      aria-haspopup="true" onClick=${() => setOpen(!isOpen)}>
      ${icon && html`<${Icon} path=${ICONS[icon]} />`}<span class="tool-label">${label}</span>
      ${count ? html`<span class="count">${count}</span>` : null}
    </button>
    ${isOpen && html`<div class="menu-panel ${align}" role="group" aria-label=${title ?? label}>
      ${typeof children === "function" ? children(close) : children}
    </div>`}
  </div>`;
}

let showNotice = () => {};

/** Show a short notice for some seconds. */
export function notice(text) {
  showNotice(text);
}

/** Where notices appear; read aloud politely. */
export function Notices() {
  const [text, set] = useState("");
  const timer = useRef(0);
  useEffect(() => {
    showNotice = (next) => {
      clearTimeout(timer.current);
      set(next);
      timer.current = setTimeout(() => set(""), 4000);
    };
  }, []);
  return html`<div class="notices" role="status" aria-live="polite">${text && html`<p>${visible(text)}</p>`}</div>`;
}

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
