// What was said: messages where they were captured, an exception, and the application's own records.

import { html, useState } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { LongText, lengthOf, oneLine, textOf } from "./text.js";
import { since } from "./timeline_model.js";
import { nanoseconds } from "./times.js";

const DIRECTIONS = [["gen_ai.system_instructions", "System"], ["gen_ai.input.messages", "Input"], ["gen_ai.output.messages", "Output"]];
const MOST_MESSAGES = 50;

/** The captured messages; nothing where none were. */
export function Messages({ record }) {
  const there = DIRECTIONS.filter(([field]) => record[field] !== undefined);
  if (!there.length) return null;
  return html`<section class="messages" aria-label="Messages"><h3>Messages</h3>
    ${there.map(([field, title]) => html`<${Direction} key=${field} title=${title} field=${field} value=${record[field]} />`)}
  </section>`;
}

function Direction({ title, field, value }) {
  const list = Array.isArray(value) ? value : [value];
  const [most, setMost] = useState(MOST_MESSAGES);
  // The newest of a long conversation count most, so the first are what is left out.
  const shown = list.slice(-most);
  return html`<div class="direction">
    <h4 title=${field}>${title}${list.length > 1 ? html` <span class="quiet-text">${list.length} messages</span>` : ""}</h4>
    ${list.length > shown.length && html`<button type="button" class="quiet small" onClick=${() => setMost(most * 4)}>show ${list.length - shown.length} earlier</button>`}
    ${shown.map((message, index) => html`<${Message} key=${index} message=${message} />`)}
  </div>`;
}

function Message({ message }) {
  if (message === null || typeof message !== "object") return html`<div class="message"><${LongText} text=${textOf(message)} /></div>`;
  const role = typeof message.role === "string" ? message.role : "";
  const parts = Array.isArray(message.parts) ? message.parts : message.content !== undefined ? [message] : [];
  return html`<div class="message role-${/^(system|user|assistant|tool)$/.test(role) ? role : "other"}">
    <p class="role">${oneLine(role || "part", 40)}${message.finish_reason ? html` <span class="quiet-text">finish: ${oneLine(textOf(message.finish_reason), 40)}</span>` : ""}</p>
    ${parts.length ? parts.map((part, index) => html`<${Part} key=${index} part=${part} />`) : html`<${LongText} text=${textOf(message)} class="mono" />`}
  </div>`;
}

function Part({ part }) {
  if (part !== null && typeof part === "object" && typeof part.content === "string") {
    const kind = part.type && part.type !== "text" ? html`<p class="part-kind">${oneLine(textOf(part.type), 40)}</p>` : null;
    return html`${kind}<${LongText} text=${part.content} />`;
  }
  return html`<${LongText} text=${textOf(part)} class="mono" />`;
}

/** The exception that ended a request. */
export function Exception({ record }) {
  if (!record["exception.type"]) return null;
  const message = textOf(record["exception.message"] ?? "");
  const stack = record["exception.stacktrace"];
  return html`<section class="exception" aria-label="Exception">
    <h3>${oneLine(textOf(record["exception.type"]), 200)}</h3>
    ${message && html`<${LongText} text=${message} limit=${600} />`}
    ${stack !== undefined && html`<details open><summary>Stack, ${lengthOf(textOf(stack))}</summary><${LongText} text=${textOf(stack)} class="mono" limit=${4000} /></details>`}
  </section>`;
}

const OWN = new Set(["timestamp", "severity_text", "event_name", "boot_id", "pid", "seq", "trace_id", "span_id", "trace_flags",
  "request_id", "logger", "message", "attributes", "key"]);

/** The records that the application made inside the request. */
export function Records({ logs, begin }) {
  if (!logs.length) return null;
  return html`<section class="records" aria-label="Application records"><h3>Records logged during it <span class="quiet-text">${logs.length}</span></h3>
    <ul>${logs.map((log, index) => html`<li key=${index} class="s-${/^\w+$/.test(log.severity_text ?? "") ? log.severity_text : "INFO"}">
      <span class="at">${begin === null ? "" : at(log, begin)}</span><span class="severity">${oneLine(textOf(log.severity_text ?? ""), 8)}</span>
      <div><${LongText} text=${textOf(log.message ?? log.event_name ?? "")} limit=${500} />
        <p class="quiet-text">${oneLine(textOf(log.logger ?? ""), 80)} ${members(log).map(([name, value]) => html`<span class="member"><i>${oneLine(name, 60)}</i>=<bdi>${oneLine(textOf(value), 200)}</bdi></span> `)}</p></div>
    </li>`)}</ul>
  </section>`;
}

function at(log, begin) {
  const ns = nanoseconds(log.timestamp);
  return ns === null ? "" : `+${format(since(begin, ns), "s")}`;
}

function members(log) {
  const attributes = log.attributes !== null && typeof log.attributes === "object" ? log.attributes : {};
  return [...Object.entries(attributes), ...Object.entries(log).filter(([name]) => !OWN.has(name))];
}
