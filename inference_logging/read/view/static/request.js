// One request: as a panel beside the list, and as a page. All fields have their meaning and unit; a click on a value filters by it.

import { html, useState } from "./pages/vendor/htm/standalone.module.js";
import { format, unitTitle } from "./pages/format.js";
import { address, useAnswer } from "./api.js";
import { kindOf, methodOf, routeOf } from "./columns.js";
import { ExportMenu, Empty, Failure, Icon, ICONS, Loading, notice } from "./parts.js";
import { useKeys } from "./keys.js";
import { Exception, Messages, Records } from "./messages.js";
import { change, go, linkTo } from "./state.js";
import { copy, oneLine, textOf, LongText } from "./text.js";
import { Timeline } from "./timeline.js";
import { arrival } from "./timeline_model.js";
import { full } from "./times.js";
import { asCommand, withCondition, canFilter } from "./where.js";

/** The panel beside the list. */
export function RequestPanel({ recordKey, meta, params, onFilter, onClose }) {
  const answer = useAnswer(address("record", { key: recordKey }));
  const open = (key) => change({ open: key });
  return html`<aside class="panel" aria-label="The request that is open">
    <div class="panel-tools"><a class="tool" href=${linkTo({ open: "" }, "request", recordKey)} title="Open as a page (o)"><${Icon} path=${ICONS.open} /> Page</a>
      <button type="button" class="tool" aria-label="Close" title="Close (Esc)" onClick=${onClose}><${Icon} path=${ICONS.close} /></button></div>
    <${Body} answer=${answer} meta=${meta} params=${params} onFilter=${onFilter} onOpen=${open} />
  </aside>`;
}

/** The page of one request. */
export function RequestPage({ recordKey, params, meta }) {
  const answer = useAnswer(address("record", { key: recordKey }));
  const back = () => (history.length > 1 ? history.back() : go(linkTo({}, "requests", "")));
  const filter = (field, value, isNot) => go(linkTo({ where: withCondition(params.where ?? [], field, value, isNot ? "!=" : "=") }, "requests", ""));
  useKeys({ Escape: back });
  return html`<div class="request-page">
    <p class="crumb"><a href=${linkTo({}, "requests", "")}><${Icon} path=${ICONS.left} size=${12} /> Requests</a></p>
    <${Body} answer=${answer} meta=${meta} params=${params} onFilter=${filter} onOpen=${(key) => go(linkTo({}, "request", key))} />
  </div>`;
}

function Body({ answer, meta, params, onFilter, onOpen }) {
  const { data, error, isLoading, reload } = answer;
  if (error?.status === 404) {
    return html`<${Empty} title="This record is gone."><p>Its segment was removed by retention, or the address is of another folder.</p><//>`;
  }
  if (error) return html`<${Failure} error=${error} what="The request" retry=${reload} />`;
  if (isLoading || !data) return html`<${Loading} what="the request" />`;
  const { record, logs = [] } = data;
  return html`<article class="request">
    <${Head} data=${data} meta=${meta} params=${params} onFilter=${onFilter} />
    <section aria-label="Timeline"><${Timeline} answer=${data} onOpen=${onOpen} /></section>
    <${Exception} record=${record} />
    <${Messages} record=${record} />
    <${Records} logs=${logs} begin=${arrival(record)} />
    <${Fields} record=${record} resource=${data.resource ?? {}} meta=${meta} onFilter=${onFilter} />
  </article>`;
}

function Head({ data, meta, params, onFilter }) {
  const { record } = data;
  const route = routeOf(record) ?? record.event_name;
  const begun = arrival(record);
  return html`<header class="request-head">
    <h2><span class="outcome ${kindOf(record.outcome)}">${oneLine(textOf(record.outcome ?? ""))}</span>
      <span class="method">${oneLine(textOf(methodOf(record) ?? ""))}</span> <bdi>${oneLine(textOf(route), 120)}</bdi></h2>
    <p class="quiet-text">${begun === null ? "" : html`arrived ${full(begun)} · `}<code>${oneLine(textOf(record.request_id ?? ""), 40)}</code>
      ${data.resource?.["k8s.pod.name"] && html` · <bdi>${oneLine(textOf(data.resource["k8s.pod.name"]), 60)}</bdi>`} · pid ${record.pid ?? "?"}</p>
    <${Figures} record=${record} />
    <${Actions} record=${record} meta=${meta} params=${params} onFilter=${onFilter} />
  </header>`;
}

const FIGURES = [
  ["Status", "http.response.status_code", null], ["Duration", "duration_s", "s"], ["First byte", "time_to_first_byte_s", "s"],
  ["First chunk", "gen_ai.response.time_to_first_chunk", "s"], ["First reasoning", "gen_ai.response.time_to_first_reasoning", "s"],
  ["First tool call", "gen_ai.response.time_to_first_tool_call", "s"],
  ["Tokens in", "gen_ai.usage.input_tokens", "1"], ["Tokens out", "gen_ai.usage.output_tokens", "1"],
  ["Tokens/s", "gen_ai.response.output_tokens_per_second", "1"], ["Chunks", "chunks", "1"], ["Largest gap", "chunk_gap_max_us", "us"], ["Keep-alives", "stream.keep_alives", "1"],
  ["Preemptions", "engine.preemptions", "1"], ["Messages in", "websocket.messages_received", "1"],
  ["Messages out", "websocket.messages_sent", "1"], ["Close code", "websocket.close_code", null],
];

function Figures({ record }) {
  const there = FIGURES.filter(([, field]) => typeof record[field] === "number");
  const print = (value, unit) => (unit === null ? String(value) : format(value, unit));
  return html`<dl class="figures">${there.map(([label, field, unit]) => html`<div key=${field} title=${field}>
    <dt>${label}</dt><dd>${print(record[field], unit)}</dd></div>`)}</dl>`;
}

function Actions({ record, meta, params, onFilter }) {
  const trace = record.trace_id;
  const identity = record.request_id ? `request_id=${record.request_id}` : "";
  const copied = async (text, words) => notice((await copy(text)) ? `Copied: ${words}` : "The clipboard is not available here.");
  const directory = meta.directories[0] ?? "logs";
  const conditions = identity ? [identity] : params.where ?? [];
  return html`<div class="actions">
    ${trace && html`<button type="button" onClick=${() => onFilter("trace_id", trace, false)}><${Icon} path=${ICONS.filter} size=${13} />This trace</button>`}
    <button type="button" title=${asCommand(conditions, directory)} onClick=${() => copied(asCommand(conditions, directory), "a command of the shell")}>
      <${Icon} path=${ICONS.copy} size=${13} />Copy as tail --where</button>
    <button type="button" onClick=${() => copied(JSON.stringify(record, null, 2), "the record as JSON")}><${Icon} path=${ICONS.copy} size=${13} />JSON</button>
    ${identity && html`<${ExportMenu} query=${{ where: [identity], events: [record.event_name] }} />`}
    ${trace && (meta.links ?? []).map((link) => html`<a key=${link.name} class="button" target="_blank" rel="noopener noreferrer" href=${traceLink(link.template, record)}>
      ${oneLine(link.name, 40)} <${Icon} path=${ICONS.open} size=${12} /></a>`)}
  </div>`;
}

/** Fill a template of `--trace-url`; what is not http(s) leads nowhere. */
function traceLink(template, record) {
  const filled = template.replaceAll(/\{(trace_id|span_id|request_id)\}/g, (_, name) => encodeURIComponent(record[name] ?? ""));
  return /^https?:\/\//i.test(filled) ? filled : undefined;
}

const ELSEWHERE = new Set(["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "exception.stacktrace", "chunk_gaps_us"]);
const GROUPS = [
  ["Identity", /^(timestamp|event_name|severity|boot_id|pid|seq|trace_|span_id|request_id|client_request_id)/],
  ["Answer", /^(outcome|error\.|http\.|url\.|network\.|client\.|rpc\.|exception\.)/],
  ["Time", /^(duration_s|after_response|chunk|gen_ai\.response\.time|gen_ai\.response\.output_tokens_per)/],
  ["Model", /^gen_ai\.|^usage_source/],
  ["Engine", /^(engine|triton)\./],
];

function Fields({ record, resource, meta, onFilter }) {
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
