// The columns of the list of requests, and the menu that chooses them.

import { html, useState } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { Icon, ICONS, Menu } from "./parts.js";
import { keep, kept } from "./settings.js";
import { change } from "./state.js";
import { oneLine, textOf } from "./text.js";
import { clock } from "./times.js";

const NUMBERS = { BIGINT: true, DOUBLE: true, INTEGER: true, number: true, integer: true, float: true };

const FIRST = "gen_ai.response.time_to_first_chunk";
/** A connection's record is an event of its own. */
export const WEBSOCKET = "websocket.connection";

/** Columns that are there before anybody chooses, in their order. `fields`: the first that a row has counts. */
export const COLUMNS = [
  { id: "time", label: "Time", fields: ["timestamp"], width: 88 },
  { id: "status", label: "Status", fields: ["http.response.status_code"], width: 58, sort: true },
  { id: "outcome", label: "Outcome", fields: ["outcome"], width: 126 },
  { id: "method", label: "Method", fields: ["http.request.method"], width: 62 },
  { id: "route", label: "Route", fields: ["http.route", "url.path", "rpc.method", "triton.model_name"], width: 140, grow: 2 },
  { id: "model", label: "Model", fields: ["gen_ai.response.model", "gen_ai.request.model", "triton.model_name"], width: 104, grow: 1 },
  { id: "duration", label: "Duration", fields: ["duration_s"], unit: "s", width: 140, grow: 2, sort: true },
  { id: "first", label: "First chunk", fields: [FIRST], unit: "s", width: 88, sort: true },
  { id: "input", label: "Tokens in", fields: ["gen_ai.usage.input_tokens"], unit: "1", width: 76, sort: true },
  { id: "output", label: "Tokens out", fields: ["gen_ai.usage.output_tokens"], unit: "1", width: 76, sort: true },
  { id: "rate", label: "Tokens/s", fields: ["gen_ai.response.output_tokens_per_second"], unit: "1", width: 74, sort: true },
  { id: "tenant", label: "Tenant", fields: ["tenant.id"], width: 82, grow: 1 },
  { id: "pod", label: "Pod", fields: ["k8s.pod.name", "host.name"], width: 84, grow: 1 },
];
const BY_ID = new Map(COLUMNS.map((column) => [column.id, column]));

/** Return the ids of the columns that are shown: those of the URL, else those that this browser keeps. */
export function chosen(params) {
  const given = params.columns?.split(",").filter(Boolean);
  return given?.length ? given : kept("columns", COLUMNS.map((column) => column.id));
}

/** Return the columns of ids; what is no id of ours is the name of a field. */
export function columnsOf(ids, fields) {
  return ids.map((id) => {
    if (BY_ID.has(id)) return BY_ID.get(id);
    const field = fields.get(id);
    const isNumber = NUMBERS[field?.type] ?? false;
    return { id, label: id, fields: [id], unit: isNumber ? (field?.unit ?? "1") : undefined, width: 130, grow: 1,
      sort: isNumber && field?.indexed !== false };
  });
}

/** Return which field of a column a row has, and its value. */
export function found(column, row) {
  for (const name of column.fields) {
    if (row[name] !== undefined && row[name] !== null) return [name, row[name]];
  }
  return column.id === "method" && row.event_name === WEBSOCKET ? ["event_name", WEBSOCKET] : [column.fields[0], undefined];
}

/** Return the model of a request: the one that answered, else the one that it named. */
export function modelOf(row) {
  return found(BY_ID.get("model"), row)[1];
}

/** Return the route of a request. */
export function routeOf(row) {
  return found(BY_ID.get("route"), row)[1];
}

/** Return the method of a request. */
export function methodOf(row) {
  const method = found(BY_ID.get("method"), row)[1];
  return method === WEBSOCKET ? "WS" : method;
}

/** Return the columns that have something to show: of the usual ones those of which a row has a field, by `filled`. */
export function filledOf(columns, filled) {
  if (!isUsual(columns)) return columns;
  return columns.filter(({ id, fields }) => id === "time" || fields.some((name) => filled.has(name)));
}

/** Return whether nobody has chosen other columns. */
export function isUsual(columns) {
  return columns.length === COLUMNS.length && columns.every((column, at) => column === COLUMNS[at]);
}

/** Return the kind of an outcome, which has a colour: `ok`, `abort` or `bad`. */
export function kindOf(outcome) {
  if (outcome === undefined || outcome === "ok") return "ok";
  return outcome === "client_disconnect" ? "abort" : "bad";
}

/** Return the content of a cell. */
export function cell(column, row, greatest) {
  const [, value] = found(column, row);
  if (column.id === "time") return clock(row.timestamp_ns);
  if (value === undefined) return html`<span class="absent">–</span>`;
  if (column.id === "outcome") return html`<span class="outcome ${kindOf(value)}">${oneLine(textOf(value))}</span>`;
  if (column.id === "method") return oneLine(textOf(methodOf(row)));
  if (column.id === "duration") return bar(row, value, greatest);
  if (column.unit !== undefined && typeof value === "number") return format(value, column.unit);
  return oneLine(textOf(value));
}

/** What the first part of the bars is. */
export const BarLegend = () => html`<span class="bar-legend"><i class="bar-first" aria-hidden="true"></i>wait for the first chunk</span>`;

/** The bar of a duration: its first part is the wait for the first chunk. A connection, which may last, has none. */
function bar(row, duration, greatest) {
  const share = (value) => `${Math.max(0, Math.min(100, (value / greatest) * 100)).toFixed(2)}%`;
  const first = row[FIRST];
  const printed = html`<span class="bar-value">${format(duration, "s")}</span>`;
  if (row.event_name === WEBSOCKET) return html`<span class="bar-none"></span>${printed}`;
  return html`<span class="bar" aria-hidden="true">
      <i class="bar-all ${kindOf(row.outcome)}" style=${{ width: share(duration) }}></i>
      ${first !== undefined && html`<i class="bar-first" style=${{ width: share(Math.min(first, duration)) }}></i>`}
    </span>${printed}`;
}

/** Return which fields the rows must have for these columns. */
export function fieldsOf(columns) {
  const always = ["event_name", "outcome", "duration_s", FIRST, "http.response.status_code"];
  return [...new Set([...always, ...columns.flatMap((column) => column.fields)])].filter((name) => name !== "timestamp");
}

export function ColumnMenu({ columns, meta }) {
  const ids = columns.map((column) => column.id);
  return html`<${Menu} label="Columns" icon="columns" title="Choose columns" align="right" class="optional">
    ${() => html`<${Chooser} ids=${ids} meta=${meta} />`}
  <//>`;
}

function set(ids) {
  keep("columns", ids);
  const isUsual = ids.join() === COLUMNS.map((column) => column.id).join();
  change({ columns: isUsual ? "" : ids.join(",") }, { replace: true });
}

function Chooser({ ids, meta }) {
  const [typed, setTyped] = useState("");
  const toggle = (id) => set(ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id]);
  const move = (id, step) => {
    const at = ids.indexOf(id);
    const to = at + step;
    if (to < 0 || to >= ids.length) return;
    const next = [...ids];
    [next[at], next[to]] = [next[to], next[at]];
    set(next);
  };
  const known = new Set(COLUMNS.flatMap((column) => [column.id, ...(column.fields.length === 1 ? column.fields : [])]));
  const more = meta.fields.map(({ name }) => name).filter((name) => !known.has(name) && !ids.includes(name) && name.includes(typed.trim()));
  const label = (id) => COLUMNS.find((column) => column.id === id)?.label ?? id;
  return html`<div class="chooser">
    <ul aria-label="Columns of the list">${ids.map((id) => html`<li key=${id}>
      <label><input type="checkbox" checked onChange=${() => toggle(id)} disabled=${ids.length === 1} />${oneLine(label(id), 60)}</label>
      <button type="button" class="icon-button" aria-label="Move ${label(id)} to the left" onClick=${() => move(id, -1)}><${Icon} path=${ICONS.up} size=${12} /></button>
      <button type="button" class="icon-button" aria-label="Move ${label(id)} to the right" onClick=${() => move(id, 1)}><${Icon} path=${ICONS.down} size=${12} /></button>
    </li>`)}</ul>
    <input type="search" aria-label="Find a field" placeholder="Find a field" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
    <ul class="chooser-more" aria-label="Other fields">
      ${COLUMNS.filter((column) => !ids.includes(column.id)).map((column) => html`<li key=${column.id}><label>
        <input type="checkbox" checked=${false} onChange=${() => toggle(column.id)} />${column.label}</label></li>`)}
      ${more.slice(0, 60).map((name) => html`<li key=${name}><label>
        <input type="checkbox" checked=${false} onChange=${() => toggle(name)} /><bdi>${oneLine(name, 60)}</bdi></label></li>`)}
    </ul>
    <button type="button" class="link" onClick=${() => set(COLUMNS.map((column) => column.id))}>The usual columns</button>
  </div>`;
}
