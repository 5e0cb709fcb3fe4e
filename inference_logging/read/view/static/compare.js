// Two choices of requests beside each other: which are compared, how their times differ, and what else is different.

import { html, useEffect, useMemo } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { address, useAnswer } from "./api.js";
import { ConditionInput, RangeMenu } from "./filters.js";
import { Empty, Failure, Icon, ICONS, Loading, Plot } from "./parts.js";
import { change, linkTo } from "./state.js";
import { NONE, oneLine, textOf } from "./text.js";
import { bounds } from "./times.js";

const NAMES = { a: "A", b: "B" };
const COLOURS = { a: "first", b: "second" };
export const QUANTITIES = [
  ["duration_s", "Duration", "s"], ["gen_ai.response.time_to_first_chunk", "Time to first chunk", "s"],
  ["gen_ai.response.time_per_output_token", "Time per output token", "s"], ["engine.queued_s", "In the engine's queue", "s"],
  ["engine.prefill_s", "Prefill", "s"], ["engine.decode_s", "Decode", "s"],
  ["gen_ai.usage.input_tokens", "Tokens in", "1"], ["gen_ai.usage.output_tokens", "Tokens out", "1"],
];
const DISTRIBUTIONS = QUANTITIES.slice(0, 4);

/** Return the query of one side, of the URL's params `a.…` or `b.…`. */
function sideQuery(params, side, nowNs) {
  const directory = params[`${side}.dir`];
  return { where: params[`${side}.where`] ?? [], events: ["request"], directories: directory ? [directory] : undefined, ...bounds(params, nowNs, `${side}.`) };
}

export function ComparePage({ params, meta, now }) {
  const names = ["where", "dir", "range", "from", "to"];
  useEffect(() => {
    const isChosen = ["a", "b"].some((side) => names.some((name) => params[`${side}.${name}`]));
    if (meta.directories.length > 1 && !isChosen) change(foldersOf(meta), { replace: true });
  }, []);
  const asked = JSON.stringify(["a", "b"].flatMap((side) => names.map((name) => params[`${side}.${name}`])));
  const isSame = ["a", "b"].map((side) => JSON.stringify(names.map((name) => params[`${side}.${name}`] ?? null))).every((one, _, all) => one === all[0]);
  const queries = useMemo(() => ["a", "b"].map((side) => sideQuery(params, side, now())), [asked]);
  const answer = useAnswer(isSame ? null : address("compare", { a: queries[0], b: queries[1] }));
  return html`<div class="compare-body">
    <div class="two sides">${["a", "b"].map((side) => html`<${Side} key=${side} side=${side} params=${params} query=${queries[side === "a" ? 0 : 1]} meta=${meta} data=${answer.data?.[side]} />`)}</div>
    <div class="compare-tools"><button type="button" onClick=${() => change(swapped(params, names))}>Swap A and B</button>
      <${Suggestions} meta=${meta} params=${params} /></div>
    ${isSame ? html`<${Empty} title="Choose two sides."><p>Give A and B different conditions, ranges of time or folders: two versions, two models, before and after.</p><//>`
      : answer.error ? html`<${Failure} error=${answer.error} what="The comparison" retry=${answer.reload} />`
        : !answer.data || answer.isLoading ? html`<${Loading} what="both sides" />`
          : html`<${Found} data=${answer.data} params=${params} />`}
  </div>`;
}

const foldersOf = ({ directories }) => ({ "a.dir": directories[0], "b.dir": directories[1] });

function swapped(params, names) {
  return Object.fromEntries(names.flatMap((name) => [[`a.${name}`, params[`b.${name}`] ?? ""], [`b.${name}`, params[`a.${name}`] ?? ""]]));
}

function Side({ side, params, query, meta, data }) {
  const conditions = params[`${side}.where`] ?? [];
  const set = (where) => change({ [`${side}.where`]: where });
  const total = data && sumOf(data.weighted);
  return html`<section class="card-plot side side-${side}" aria-label="Side ${NAMES[side]}">
    <div class="card-head"><h2 class="side-name"><i class="swatch"></i>${NAMES[side]}</h2>${total !== undefined && html`<span class="quiet-text">${format(total, "1")} requests</span>`}
      <a class="card-link" href=${linkTo({ where: conditions, range: params[`${side}.range`] ?? "", from: params[`${side}.from`] ?? "", to: params[`${side}.to`] ?? "", kind: "request" }, "requests", "")}>its requests</a></div>
    <div class="side-tools"><${ConditionInput} id="where-${side}" query=${query} meta=${meta} onAdd=${set} />
      <${RangeMenu} params=${params} prefix="${side}." />
      ${meta.directories.length > 1 && html`<select aria-label="Folder of ${NAMES[side]}" value=${params[`${side}.dir`] ?? ""} onChange=${(event) => change({ [`${side}.dir`]: event.target.value })}>
        <option value="">all folders</option>${meta.directories.map((one) => html`<option key=${one} value=${one}>${oneLine(one, 80)}</option>`)}</select>`}</div>
    ${conditions.length > 0 && html`<ul class="chips">${conditions.map((text) => html`<li key=${text} class="chip"><span><bdi>${oneLine(text, 80)}</bdi></span>
      <button type="button" aria-label="Remove ${oneLine(text, 60)}" onClick=${() => set(conditions.filter((one) => one !== text))}><${Icon} path=${ICONS.close} size=${12} /></button></li>`)}</ul>`}
  </section>`;
}

const SPLITS = [["service.version", "versions"], ["model", "models"], ["k8s.pod.name", "pods"], ["tenant.id", "tenants"], ["http.route", "routes"]];

/** Buttons for what the folder itself offers: its two most frequent versions, models, pods …; nothing if all are alike. */
function Suggestions({ meta, params }) {
  const answers = SPLITS.map(([field]) => useAnswer(address("values", { q: { field, events: ["request"], limit: 20 } })));
  const splits = answers.map(({ data }) => (data ?? []).slice(0, 2).map(({ condition }) => condition).sort());
  const hasFolders = meta.directories.length > 1;
  if (!hasFolders && splits.every((conditions) => conditions.length < 2)) return null;
  return html`<span class="quiet-text">Compare</span> ${hasFolders && html`<button type="button" class="link" onClick=${() => change(foldersOf(meta))}>folders</button>`}
    ${SPLITS.map(([field, name], at) => splits[at].length > 1 && html`<${Split} key=${field} name=${name} conditions=${splits[at]} params=${params} />`)}`;
}

function Split({ name, conditions: [one, other], params }) {
  const of = (side, condition) => [...(params[`${side}.where`] ?? []).filter((each) => !each.startsWith(condition.replace(/=.*/s, "="))), condition];
  return html`<button type="button" class="link" title="${oneLine(one, 60)} and ${oneLine(other, 60)}" onClick=${() => change({ "a.where": of("a", one), "b.where": of("b", other) })}>${name}</button>`;
}

function Found({ data, params }) {
  const empty = ["a", "b"].filter((side) => !data[side].count?.some((value) => value > 0));
  if (empty.length) return html`<${Empty} title="No request on side ${empty.map((side) => NAMES[side]).join(" and ")}."><p>Change its conditions or its range.</p><//>`;
  return html`<${Ratios} data=${data} />
    <div class="two">${DISTRIBUTIONS.map(([field, title, unit]) => html`<${Distribution} key=${field} data=${data} field=${field} title=${title} unit=${unit} />`)}</div>
    <${Changed} data=${data} />`;
}

const sumOf = (values) => values.reduce((sum, value) => sum + value, 0);

/** Print how many requests each side has, or how many of them have a field. */
function counted(data, field) {
  return ["a", "b"].map((side) => {
    const [records, requests] = [data[side].count, data[side].weighted].map(sumOf);
    const unit = Math.round(requests) === records ? "" : " records";
    return `${NAMES[side]} ${field ? `${format(data[side].fields[field].count, "1")} of ${format(records, "1")}${unit}` : format(requests, "1")}`;
  }).join(", ");
}

function Ratios({ data }) {
  const rows = QUANTITIES.filter(([field]) => data.a.fields?.[field]?.count || data.b.fields?.[field]?.count);
  const ratios = (field) => data.fields?.[field] ?? {};
  const scale = scaleOf(rows.flatMap(([field]) => [ratios(field).ratio_p50, ...(ratios(field).interval ?? [])]));
  const share = (side) => sumOf(data[side].errors) / Math.max(1, sumOf(data[side].weighted));
  return html`<section class="card-plot" aria-label="What differs"><div class="card-head"><h2 id="ratios">B compared with A</h2>
      <span class="quiet-text">ratio of the medians with an interval of 95 %; failed: A ${format(share("a"), "ratio")}, B ${format(share("b"), "ratio")} of all requests (${counted(data)})</span></div>
    <div class="scroll-x" tabindex="0" role="group" aria-labelledby="ratios"><table class="wide-table ratios"><thead><tr><th scope="col">Quantity</th><th scope="col">A p50</th><th scope="col">B p50</th>
      <th scope="col">Ratio</th><th scope="col">Interval</th><th scope="col" class="ratio-head">B is less · the same · more<br /><small>${format(1 / scale, "x")} to ${format(scale, "x")}</small></th><th scope="col">A p99</th><th scope="col">B p99</th><th scope="col">Ratio p99</th></tr></thead>
      <tbody>${rows.map(([field, title, unit]) => html`<${Ratio} key=${field} title=${title} note=${counted(data, field)} unit=${unit} a=${data.a.fields[field]} b=${data.b.fields[field]} of=${ratios(field)} scale=${scale} />`)}</tbody></table></div>
  </section>`;
}

/** Return the power of two, at least 4, up to which the scale goes, so that each ratio and interval is inside. */
function scaleOf(ratios) {
  const sizes = ratios.filter((one) => one > 0 && Number.isFinite(one)).map((one) => Math.abs(Math.log2(one)));
  return 2 ** Math.max(2, ...sizes.map(Math.ceil));
}

function Ratio({ title, note, unit, a, b, of, scale }) {
  const { ratio_p50: ratio, interval } = of;
  const isClear = interval && (interval[0] > 1 || interval[1] < 1);
  return html`<tr><th scope="row">${title} <small class="quiet-text">${note}</small></th><td>${format(a.p50, unit)}</td><td>${format(b.p50, unit)}</td>
    <td class=${isClear ? "clear" : ""}>${format(ratio, "x")}</td><td class="quiet-text">${interval ? `${format(interval[0], "x")} – ${format(interval[1], "x")}` : "–"}</td>
    <td class="ratio-cell"><${Whisker} ratio=${ratio} interval=${interval} isClear=${isClear} scale=${scale} /></td>
    <td>${format(a.p99, unit)}</td><td>${format(b.p99, unit)}</td><td>${format(of.ratio_p99, "x")}</td></tr>`;
}

/** A ratio on a logarithmic scale, from 1 ÷ `scale` to `scale`. */
function Whisker({ ratio, interval, isClear, scale }) {
  if (!(ratio > 0)) return null;
  const place = (value) => `${Math.max(0, Math.min(100, 50 + (Math.log2(Math.max(value, 1e-9)) / Math.log2(scale)) * 50)).toFixed(2)}%`;
  return html`<span class="whisker ${isClear ? "clear" : ""}" aria-hidden="true"><i class="w-one"></i>
    ${interval && html`<i class="w-line" style=${{ left: place(interval[0]), right: `calc(100% - ${place(interval[1])})` }}></i>`}<i class="w-dot" style=${{ left: place(ratio) }}></i></span>`;
}

function Distribution({ data, field, title, unit }) {
  const sides = ["a", "b"].filter((side) => data[side].fields?.[field]?.histogram?.counts?.length);
  const plot = useMemo(() => ({ unit, label: `${title}, share of requests up to a value`, height: 210,
    series: sides.map((side) => ({ name: NAMES[side], colour: COLOURS[side], ...data[side].fields[field].histogram })) }), [data]);
  if (sides.length < 2) return null;
  return html`<${Plot} kind="distribution" data=${plot} title=${title} note="share up to a value, of the requests that have it: ${counted(data, field)}" />`;
}

function Changed({ data }) {
  const changed = data.changed ?? [];
  return html`<section class="card-plot" aria-label="What changed"><div class="card-head"><h2 id="changed">What else is different</h2><span class="quiet-text">shares of all requests (${counted(data)}), the largest difference first</span></div>
    ${!changed.length ? html`<p class="quiet-text">The shares of outcomes, routes, models, tenants and pods are alike.</p>`
      : html`<div class="scroll-x" tabindex="0" role="group" aria-labelledby="changed"><table class="wide-table"><thead><tr><th scope="col">Field</th><th scope="col" class="left">Value</th><th scope="col">A</th><th scope="col">B</th><th scope="col" class="ratio-head">Share</th></tr></thead>
        <tbody>${changed.map(({ field, value, share_a: a, share_b: b }) => html`<tr key=${`${field}=${value}`}><th scope="row">${oneLine(field, 60)}</th><td class="left">${value === null ? NONE : html`<bdi>${oneLine(textOf(value), 80)}</bdi>`}</td>
          <td>${format(a, "ratio")}</td><td>${format(b, "ratio")}</td><td class="ratio-cell"><span class="shares" aria-hidden="true"><i class="share-a" style=${{ width: `${a * 100}%` }}></i><i class="share-b" style=${{ width: `${b * 100}%` }}></i></span></td></tr>`)}</tbody></table></div>`}
  </section>`;
}
