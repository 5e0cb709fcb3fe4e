// The keyboard: one table, which the help shows, the pages fill and `docs/view.md` repeats.

import { html, useEffect, useRef } from "./pages/vendor/htm/standalone.module.js";

export const KEYS = [
  ["/", "go to the filter"],
  ["t", "go to the search in texts"],
  ["j", "next request; ↓ too"],
  ["k", "previous request; ↑ too"],
  ["Enter", "open the request"],
  ["o", "open it as a page"],
  ["Esc", "close, or go back"],
  ["p", "pause the live list, or go on"],
  ["x", "remove all conditions"],
  ["g r", "go to Requests"],
  ["g o", "go to Overview"],
  ["g c", "go to Compare"],
  ["g l", "go to Logging"],
  ["?", "this help"],
];

const handlers = new Map();
let first = "";
let timer = 0;

/** Use handlers of keys (`{"j": function, "g r": function}`) while the component is there. */
export function useKeys(given) {
  const current = useRef(given);
  current.current = given;
  useEffect(() => {
    const own = Object.keys(given).map((key) => [key, (event) => current.current[key]?.(event)]);
    for (const [key, handler] of own) handlers.set(key, [...(handlers.get(key) ?? []), handler]);
    return () => {
      for (const [key, handler] of own) handlers.set(key, handlers.get(key).filter((one) => one !== handler));
    };
  }, []);
}

function isTyping(target) {
  return target.matches?.("input, textarea, select, [contenteditable]");
}

function pressed(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const isButton = event.target.matches?.("button, a, summary, [role=option]");
  if (event.key === "Enter" && isButton) return;
  const key = first ? `${first} ${event.key}` : event.key;
  clearTimeout(timer);
  first = "";
  if (event.key === "g" && key === "g") {
    first = "g";
    timer = setTimeout(() => { first = ""; }, 1200);
    return;
  }
  // The handler that came last is that of what lies on top; one that returns false leaves the key to the one below.
  for (const handler of [...(handlers.get(key) ?? [])].reverse()) {
    if (handler(event) !== false) { event.preventDefault(); return; }
  }
}

/** Listen to the keyboard. */
export function listen() {
  addEventListener("keydown", pressed);
}

/** The table of keys, over the page. */
export function Help({ onClose }) {
  const dialog = useRef(null);
  useEffect(() => { dialog.current.showModal(); }, []);
  return html`<dialog ref=${dialog} class="help" aria-labelledby="help-title" onClose=${onClose}
    onClick=${(event) => event.target === dialog.current && dialog.current.close()}>
    <h2 id="help-title">Keyboard</h2>
    <table><thead class="unseen"><tr><th scope="col">Key</th><th scope="col">What it does</th></tr></thead>
      <tbody>${KEYS.map(([key, words]) => html`<tr key=${key}><th scope="row">${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</th><td>${words}</td></tr>`)}</tbody>
    </table>
    <p class="quiet-text">Click a value to see only what has it; hold Shift for all others. On a timeline, drag to zoom in and
      press Home for the whole.</p>
    <button type="button" onClick=${() => dialog.current.close()}>Close</button>
  </dialog>`;
}
