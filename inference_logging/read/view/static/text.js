// Texts of records come from strangers. They are shown as text nodes only, and nothing in them moves other text.

import { html, useState } from "./pages/vendor/htm/standalone.module.js";

// C0 and C1 controls, soft hyphen, zero-width, bidirectional and tag characters. ZWJ and ZWNJ stay: scripts need them.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
/** The name of requests without a value: NONE of read/segments/columns.py. */
export const NONE = "(none)";
const CUT_LINE = 300;
const CUT_BLOCK = 2000;

function shown(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Return a text in which each character that would be invisible, or would turn the text around, can be seen. */
export function visible(text) {
  return text.replace(HIDDEN, shown);
}

/** Return the beginning of a text in one line. */
export function oneLine(text, limit = CUT_LINE) {
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return visible(cut).replace(/\n/g, "⏎").replace(/\t/g, "⇥");
}

/** Return a value of a record as text: strings as they are, others in their JSON form. */
export function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

/** Return how long a text is, in words. */
export function lengthOf(text) {
  const count = text.length;
  return count < 10_000 ? `${count.toLocaleString("en")} characters` : `${(count / 1e6).toFixed(count < 1e5 ? 3 : 2)} M characters`;
}

/** A text of any length, cut with a button that shows the rest. */
export function LongText({ text, limit = CUT_BLOCK, class: name = "" }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = text.length > limit;
  const part = isCut && !isWhole ? `${text.slice(0, limit)}…` : text;
  return html`<div class="long ${name}">
    <div class="long-text" dir="auto">${visible(part)}</div>
    ${isCut && html`<button class="quiet small" type="button" aria-expanded=${isWhole} onClick=${() => setWhole(!isWhole)}>
      ${isWhole ? "show less" : `show all, ${lengthOf(text)}`}
    </button>`}
  </div>`;
}

/** Put a text on the clipboard; returns whether that worked. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text) {
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  return isDone;
}
