// All fields of a record, with their meaning and unit; a click on a value filters by it.

import { html, useState } from "./pages/vendor/htm/standalone.module.js";
import { format, unitTitle } from "./pages/format.js";
import { Icon, ICONS } from "./parts.js";
import { LongText, oneLine, textOf } from "./text.js";
import { canFilter } from "./where.js";

const ELSEWHERE = new Set(["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "exception.stacktrace", "chunk_gaps_us"]);
const GROUPS = [
  ["Identity", /^(timestamp|event_name|severity|boot_id|pid|seq|trace_|span_id|request_id|client_request_id)/],
  ["Answer", /^(outcome|error\.|http\.|url\.|network\.|client\.|rpc\.|exception\.)/],
  ["Time", /^(duration_s|after_response|chunk|gen_ai\.response\.time|gen_ai\.response\.output_tokens_per)/],
  ["Model", /^gen_ai\.|^usage_source/],
  ["Engine", /^(engine|triton)\./],
];

export function Fields({ record, resource, meta, onFilter }) {
  const [typed, setTyped] = useState("");
  const entries = flat(record).filter(([name]) => !ELSEWHERE.has(name));
  const match = ([name, value]) => !typed || name.toLowerCase().includes(typed) || textOf(value).toLowerCase().includes(typed);
  const groups = [...grouped(entries), ["Resource", Object.entries(resource)]].map(([title, list]) => [title, list.filter(match)]).filter(([, list]) => list.length);
  return html`<section class="fields" aria-label="Fields">
    <div class="fields-head"><h3>Fields <span class="quiet-text">${entries.length}</span></h3>
      <input type="search" aria-label="Find a field or a value" placeholder="Find a field or a value" value=${typed} onInput=${(event) => setTyped(event.target.value.toLowerCase())} /></div>
    ${groups.map(([title, list]) => html`<table key=${title}><caption>${title}</caption><thead class="unseen"><tr><th scope="col">Field</th><th scope="col">Value</th></tr></thead>
      <tbody>${list.map(([name, value]) => html`<${Field} key=${name} name=${name} value=${value} field=${meta.byName.get(name)} onFilter=${onFilter} />`)}</tbody></table>`)}
    ${!groups.length && html`<p class="quiet-text">No field or value has this text.</p>`}
  </section>`;
}

/** Members of `attributes` and other nested objects have rows of their own. */
function flat(record, prefix = "", depth = 0) {
  return Object.entries(record).flatMap(([name, value]) => {
    const isNested = depth < 3 && value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length;
    return isNested ? flat(value, `${prefix}${name}.`, depth + 1) : [[prefix + name, value]];
  });
}

function grouped(entries) {
  const groups = new Map([...GROUPS.map(([title]) => [title, []]), ["Others", []]]);
  for (const entry of entries) {
    const title = GROUPS.find(([, pattern]) => pattern.test(entry[0]))?.[0] ?? "Others";
    groups.get(title).push(entry);
  }
  return groups;
}

function Field({ name, value, field, onFilter }) {
  const unit = unitOf(name, field);
  const isLong = typeof value === "string" && value.length > 200 || (value !== null && typeof value === "object");
  return html`<tr>
    <th scope="row"><bdi class="field-name">${oneLine(name, 120)}</bdi>${field?.meaning && html`<span class="meaning">${field.meaning.replaceAll("`", "")}</span>`}</th>
    <td>${isLong ? html`<${LongText} text=${textOf(value)} limit=${300} class="mono" />` : html`<bdi class="mono">${oneLine(textOf(value))}</bdi>`}
      ${typeof value === "number" && unit && html` <span class="quiet-text">${readable(value, unit)}</span>`}
      ${canFilter(value) && html`<span class="field-tools">
        <button type="button" class="icon-button" aria-label="Only ${oneLine(name, 60)} = this value" title="Only these (Shift: all others)" onClick=${(event) => onFilter(name, String(value), event.shiftKey)}><${Icon} path=${ICONS.plus} size=${12} /></button>
        <button type="button" class="icon-button" aria-label="Without ${oneLine(name, 60)} = this value" title="All others" onClick=${() => onFilter(name, String(value), true)}><${Icon} path=${ICONS.minus} size=${12} /></button></span>`}
    </td></tr>`;
}

function unitOf(name, field) {
  if (field?.unit) return field.unit;
  if (name.endsWith("_s")) return "s";
  if (name.endsWith("_us")) return "us";
  return name.endsWith("_bytes") ? "By" : "";
}

const SIGNS = { s: "s", us: "µs", By: "B" };

/** Return what follows a number: its unit, and the number as other pages print it where that is another one. */
function readable(value, unit) {
  const sign = SIGNS[unit];
  if (!sign) return value === 1 ? unitTitle(unit).replace(/s$/, "") : unitTitle(unit);
  const printed = format(value, unit);
  return printed === `${value} ${sign}` ? sign : `${sign} = ${printed}`;
}
