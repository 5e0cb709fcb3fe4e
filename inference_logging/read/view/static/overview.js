// The overview: how much, how fast, how well, over the range of time that is chosen or brushed.

import { html, useEffect, useMemo, useState } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { address, fetchJson, useAnswer } from "./api.js";
import { kindOf, modelOf, routeOf, WEBSOCKET } from "./columns.js";
import { FilterBar } from "./filters.js";
import { Empty, ExportMenu, Failure, Loading, Plot } from "./parts.js";
import { queryOf } from "./requests.js";
import { change, linkTo } from "./state.js";
import { NONE, oneLine, textOf } from "./text.js";
import { clock, fromSeconds, seconds, stampOf } from "./times.js";
import { parse, withCondition } from "./where.js";

const EVERY_MS = 15_000;
/** What failed, as `stats` and `query` count it: a request without an outcome has not. */
const FAILED = ["outcome>=", "outcome!=ok", "outcome!=client_disconnect"];
/** Buckets of time: no more than there are requests, so that a few of them are no row of spikes. */
const BUCKETS = { least: 12, most: 120 };

const sum = (values) => values.reduce((total, value) => total + value, 0);

export function OverviewPage({ params, meta, now }) {
  const asked = JSON.stringify([params.where, params.text, params.trace, params.range, params.from, params.to]);
  const [turn, setTurn] = useState(0);
  const query = useMemo(() => queryOf(params, now()), [asked, turn]);
  // A range without an end is looked at again. One that ends now moves on, which makes it another question each time.
  const isMoving = Boolean(params.range);
  const everyMs = isMoving || params.to ? 0 : EVERY_MS;
  const [buckets, setBuckets] = useState(BUCKETS.most);
  const answer = useAnswer(address("aggregate", { q: { ...query, buckets, fields: FIELDS, heatmap: "duration_s", heatmap_rows: 40 } }), everyMs);
  const total = answer.data && sum(answer.data.count);
  useEffect(() => { if (total) setBuckets(Math.max(BUCKETS.least, Math.min(BUCKETS.most, total))); }, [total]);
  useEffect(() => {
    const timer = isMoving ? setInterval(() => document.hidden || setTurn((number) => number + 1), EVERY_MS) : 0;
    return () => clearInterval(timer);
  }, [isMoving]);
  return html`<div class="overview">
    <${FilterBar} params=${params} meta=${meta} query=${query}><${ExportMenu} query=${query} /><//>
    <${Content} answer=${answer} query=${query} params=${params} meta=${meta} everyMs=${everyMs} />
  </div>`;
}

function Content({ answer, query, params, meta, everyMs }) {
  const { data, error, reload } = answer;
  if (error && !data) return html`<${Failure} error=${error} what="The overview" retry=${reload} />`;
  if (!data) return html`<${Loading} what="the overview" />`;
  const total = sum(data.count);
  if (!total) {
    const isIndexing = meta.progress && !meta.progress.done;
    return html`<${Empty} title=${isIndexing ? "Nothing yet: the index is still being built." : "No request matches."}>
      <p><button type="button" onClick=${() => change({ where: [], text: "", trace: "", range: "", from: "", to: "" })}>Look at everything</button></p><//>`;
  }
  return html`<div class="overview-body">
    ${meta.progress && !meta.progress.done && html`<p class="banner" role="status">The index is still being built: figures are those of what is indexed.</p>`}
    ${data.complete === false && html`<p class="banner" role="status">The search ended before all was read: figures are those of what was read. A smaller range is searched whole.</p>`}
    <${Tiles} data=${data} />
    ${weightNote(data)}
    <${WebSockets} query=${query} everyMs=${everyMs} />
    <${Plots} data=${data} query=${query} params=${params} everyMs=${everyMs} />
    <${Groups} query=${query} params=${params} everyMs=${everyMs} />
    <div class="two">
      <${ShortList} title="Slowest" everyMs=${everyMs} query=${{ ...query, order: "-duration_s" }} href=${linkTo({ order: "-duration_s", kind: "request" }, "requests", "")} />
      <${ShortList} title="Failed" everyMs=${everyMs} query=${{ ...query, where: [...query.where, ...FAILED] }} href=${linkTo({ where: [...(params.where ?? []), ...FAILED], kind: "request" }, "requests", "")} failed=${sum(data.errors)} />
    </div>
  </div>`;
}

/** Of sampled requests, each record counts as the requests that it represents. */
function weightNote({ count, weighted }) {
  const [records, requests] = [count, weighted].map(sum);
  return Math.round(requests) !== records && html`<p class="hint">${format(records, "1")} records, each weighted by adjusted_count.</p>`;
}

function Tiles({ data }) {
  // As `stats` has it: without time between two requests there is no rate.
  const span = seconds(data.last_ns) - seconds(data.first_ns);
  const weighted = sum(data.weighted);
  const errors = sum(data.errors);
  const of = (field, name) => data.fields?.[field]?.[name];
  const tiles = [
    ["Requests", format(weighted, "1"), `${format(weighted / span, "1/s")} from first to last`],
    ["Failed", format(errors / weighted, "ratio"), format(errors, "{request}"), errors ? "bad" : ""],
    ["Duration p50", format(of("duration_s", "p50"), "s"), `p95 ${format(of("duration_s", "p95"), "s")}`],
    ["Duration p99", format(of("duration_s", "p99"), "s"), `greatest ${format(of("duration_s", "max"), "s")}`],
    ["First chunk p50", format(of(FIRST, "p50"), "s"), `p95 ${format(of(FIRST, "p95"), "s")}`],
    ["First chunk p99", format(of(FIRST, "p99"), "s"), `greatest ${format(of(FIRST, "max"), "s")}`],
    ["Tokens out", format(sum(data.output_tokens) / span, "{token}/s").replace(" tokens/s", "/s"), `${format(sum(data.output_tokens), "1")} tokens`],
    ["Tokens in", format(sum(data.input_tokens) / span, "{token}/s").replace(" tokens/s", "/s"), `${format(sum(data.input_tokens), "1")} tokens`],
  ];
  return html`<dl class="tiles">${tiles.map(([label, value, note, kind]) => html`<div key=${label}><dt>${label}</dt><dd class=${kind ?? ""}>${value}<small>${note}</small></dd></div>`)}</dl>`;
}

/** How many WebSocket connections there are: one may last an hour, so they are in no figure of requests. */
function WebSockets({ query, everyMs }) {
  const { data } = useAnswer(address("aggregate", { q: { ...query, events: [WEBSOCKET], buckets: 1, fields: ["duration_s"] } }), everyMs);
  if (!data?.count[0]) return null;
  return html`<p class="hint">Beside the requests: <a href=${linkTo({ kind: "websocket" }, "requests", "")}>${format(data.count[0], "1")} WebSocket ${data.count[0] === 1 ? "connection" : "connections"}</a>, ${format(data.errors[0], "1")} failed, duration p50 ${format(data.fields.duration_s.p50, "s")}.</p>`;
}

const brush = (from, to) => change({ range: "", from: stampOf(fromSeconds(from)), to: stampOf(fromSeconds(to)) });

/** A region of a heat map is a range of time and of the value. */
const region = (field, params) => (from, to, low, high) => {
  const bound = (value) => String(Number(value.toPrecision(4)));
  const rest = (params.where ?? []).filter((one) => !new RegExp(`^${field.replace(/[.]/g, "\\.")}(>=|<)`).test(one));
  const where = withCondition(withCondition(rest, field, bound(low), ">="), field, bound(high), "<");
  change({ range: "", from: stampOf(fromSeconds(from)), to: stampOf(fromSeconds(to)), where });
};

function Plots({ data, query, params, everyMs }) {
  const over = useMemo(() => rates(data), [data]);
  const sync = "overview";
  const onSelect = brush;
  const requests = useMemo(() => ({ x: over.x, unit: "1/s", label: "Requests per second", height: 190, sync, onSelect,
    series: [{ name: "requests", values: over.requests, colour: "first", fill: true }, { name: "failed", values: over.errors, colour: "bad", fill: true }] }), [over]);
  const tokens = useMemo(() => ({ x: over.x, unit: "{token}/s", label: "Tokens per second", height: 190, sync, onSelect,
    series: [{ name: "out", values: over.output, colour: "third", fill: true }, { name: "in", values: over.input, colour: "fourth" }] }), [over]);
  return html`<p class="hint">Drag over a plot to look at that range; a region of a heat map also bounds the value.
      ${params.from && html` <button type="button" class="link" onClick=${() => history.back()}>back to the range before</button>`}</p>
    <div class="two">
      <${Plot} kind="lines" data=${requests} title="Requests per second" />
      <${Plot} kind="lines" data=${tokens} title="Tokens per second" />
      <${Heat} data=${data} field="duration_s" title="Duration" params=${params} />
      <${FirstHeat} query=${query} buckets=${data.count.length} params=${params} everyMs=${everyMs} />
      <${EngineOverTime} data=${data} query=${query} />
    </div>`;
}

function Heat({ data, field, title, params }) {
  const plot = useMemo(() => data.heatmap && ({ x: bucketsOf(data).x, edges: data.heatmap.edges, cells: data.heatmap.cells, unit: "s", cellUnit: "{request}",
    label: `${title} over time`, height: 230, sync: "overview", onSelect: region(field, params) }), [data, params.where]);
  if (!plot || !data.heatmap.cells.length) return null;
  return html`<${Plot} kind="heatmap" data=${plot} title=${title} note=${heatNote(data)} />`;
}

/** Of how many requests a heat map is: not each has the value, and a logarithmic axis has no 0. */
function heatNote({ weighted, heatmap: { cells, zeros } }) {
  const [all, drawn, zero] = [weighted, cells.flat(), zeros].map(sum);
  const words = `${format(drawn + zero, "1")} of ${format(all, "1")} requests have it`;
  return zero ? `${words}; ${format(zero, "1")} of 0 s not drawn` : words;
}

function FirstHeat({ query, buckets, params, everyMs }) {
  const { data } = useAnswer(address("aggregate", { q: { ...query, buckets, fields: [], heatmap: FIRST, heatmap_rows: 40 } }), everyMs);
  return data ? html`<${Heat} data=${data} field=${FIRST} title="Time to first chunk" params=${params} />` : html`<div class="card-plot"><${Loading} what="the first chunks" /></div>`;
}

/** Use the engine's reports and the losses of the range. They belong to processes, so conditions on requests don't count. */
function useEngine(data, query) {
  const [state, set] = useState({ reports: null, losses: null, error: null });
  const range = { from_ns: data.from_ns, to_ns: data.to_ns, where: query.where.filter((one) => /^(k8s\.|service\.|host\.)/.test(one)) };
  useEffect(() => {
    const abort = new AbortController();
    const drops = { ...range, events: ["log.dropped"], limit: 1000, fields: ["dropped"] };
    Promise.all([engineReports(range, abort.signal), fetchJson("rows", { q: drops }, abort.signal)]).then(
      ([reports, losses]) => set({ reports, losses, error: null }),
      (error) => error.name === "AbortError" || set({ reports: null, losses: null, error }),
    );
    return () => abort.abort();
  }, [JSON.stringify(range)]);
  return state;
}

function EngineOverTime({ data, query }) {
  const { reports, losses, error } = useEngine(data, query);
  const engine = useMemo(() => reports?.rows.length > 0 && engineOverTime(reports.rows, data), [reports]);
  const lost = useMemo(() => losses?.rows.length > 0 && lossesOverTime(losses.rows, data), [losses]);
  const depth = useMemo(() => engine && ({ x: engine.x, unit: "1", label: "Requests in the engines", height: 190, sync: "overview", style: "steps", onSelect: brush,
    series: [{ name: "waiting", values: engine.waiting, colour: "warn", fill: true }, { name: "running", values: engine.running, colour: "first" },
      { name: "KV cache in use", values: engine.cache, unit: "ratio", colour: "third", dash: [6, 3] }] }), [engine]);
  const drops = useMemo(() => lost && ({ x: lost.x, unit: "1", label: "Records lost", height: 190, sync: "overview", style: "bars", onSelect: brush,
    series: [{ name: "records lost", values: lost.values, colour: "bad" }] }), [lost]);
  if (error) return html`<div class="card-plot"><${Failure} error=${error} what="The engine's reports" /></div>`;
  return html`${depth && html`<${Plot} kind="lines" data=${depth} title="Queue and engine" note=${`${engine.engines} ${engine.engines === 1 ? "engine" : "engines"}${reports.isWhole ? "" : "; the newest 5,000 reports"}`} />`}
    ${drops && html`<${Plot} kind="lines" data=${drops} title="Losses" note=${`${format(lost.total, "1")} records`}><a class="card-link" href=${linkTo({}, "logging", "")}>books</a><//>`}`;
}

const GROUPS = [["http.route", "route"], ["model", "model"], ["tenant.id", "tenant"], ["outcome", "outcome"],
  ["k8s.pod.name", "pod"], ["service.name", "service"], ["error.type", "error"], ["enduser.id", "user"]];

/** Percentiles by the field of `params.by`. */
export function Groups({ query, params, everyMs }) {
  const by = params.by || "http.route";
  const [sort, setSort] = useState("count");
  const answer = useAnswer(address("aggregate", { q: { ...query, buckets: 1, fields: FIELDS, group_by: by, groups_limit: 50 } }), everyMs);
  const groups = answer.data?.groups ?? [];
  return html`<section class="card-plot groups" aria-label="By group">
    <div class="card-head"><h2 id="groups-title">Percentiles by</h2>
      <select aria-label="Group by" value=${by} onChange=${(event) => change({ by: event.target.value === "http.route" ? "" : event.target.value })}>
        ${GROUPS.map(([field, name]) => html`<option key=${field} value=${field}>${name}</option>`)}
        ${!GROUPS.some(([field]) => field === by) && html`<option value=${by}>${oneLine(by, 60)}</option>`}
      </select><span class="quiet-text">click a value to filter</span></div>
    ${answer.error ? html`<${Failure} error=${answer.error} what="The groups" retry=${answer.reload} />`
      : !answer.data ? html`<${Loading} what="the groups" />`
        : html`<${GroupTable} groups=${sorted(groups, sort)} by=${by} params=${params} sort=${sort} setSort=${setSort} />`}
  </section>`;
}

const REST = { more: "(other values, or none)" };

const COLUMNS = [
  ["count", "Requests", (group) => group.weighted[0], "1"],
  ["errors", "Failed", (group) => group.errors && group.errors[0] / group.weighted[0], "ratio"],
  ["p50", "p50", (group) => group.fields?.duration_s?.p50, "s"], ["p95", "p95", (group) => group.fields?.duration_s?.p95, "s"],
  ["p99", "p99", (group) => group.fields?.duration_s?.p99, "s"],
  ["first50", "First chunk p50", (group) => group.fields?.[FIRST]?.p50, "s"], ["first99", "First chunk p99", (group) => group.fields?.[FIRST]?.p99, "s"],
  ["rate", "Tokens/s p50", (group) => group.fields?.["gen_ai.response.output_tokens_per_second"]?.p50, "1"],
];

function sorted(groups, name) {
  const value = COLUMNS.find(([id]) => id === name)[2];
  return [...groups].sort((a, b) => (value(b) ?? -1) - (value(a) ?? -1));
}

function GroupTable({ groups, by, params, sort, setSort }) {
  if (!groups.length) return html`<p class="quiet-text">No record has ${oneLine(by, 60)}.</p>`;
  const greatest = Math.max(...groups.map((group) => group.fields?.duration_s?.p99 ?? 0), 1e-9);
  const filter = (condition) => (event) => {
    const { field, value } = parse(condition);
    change({ where: withCondition(params.where ?? [], field, value, event.shiftKey ? "!=" : "=") });
  };
  return html`<div class="scroll-x" tabindex="0" role="group" aria-labelledby="groups-title"><table>
    <thead><tr><th scope="col">${oneLine(by, 60)}</th>${COLUMNS.map(([id, label]) => html`<th key=${id} scope="col" aria-sort=${id === sort ? "descending" : "none"}>
      <button type="button" class="sort" onClick=${() => setSort(id)}>${label}<span aria-hidden="true">${id === sort ? "↓" : ""}</span></button></th>`)}<th scope="col" class="spread-head">p50 · p95 · p99</th></tr></thead>
    <tbody>${groups.map((group) => html`<tr key=${String(group.value)}><th scope="row">${group.value === null ? html`<span class="quiet-text">${REST[group.rest] ?? NONE}</span>`
      : html`<button type="button" class="link plain" onClick=${filter(group.condition)} title="Only ${oneLine(group.condition, 120)} (Shift: all others)"><bdi>${oneLine(textOf(group.value), 80)}</bdi></button>`}</th>
      ${COLUMNS.map(([id, , value, unit]) => html`<td key=${id} class=${id === "errors" && value(group) > 0.05 ? "bad" : ""}>${format(value(group), unit)}</td>`)}
      <td class="spread"><${Spread} of=${group.fields?.duration_s} greatest=${greatest} /></td></tr>`)}</tbody></table></div>`;
}

/** The percentiles as points on one line, on a scale that all rows have. */
function Spread({ of, greatest }) {
  if (!of?.count) return null;
  const place = (value) => `${Math.min(100, (value / greatest) * 100).toFixed(2)}%`;
  return html`<span class="spread-line" aria-hidden="true"><i class="s-line" style=${{ left: place(of.p50), right: `calc(100% - ${place(of.p99)})` }}></i>
    ${["p50", "p95", "p99"].map((name) => html`<i key=${name} class="s-${name}" style=${{ left: place(of[name]) }}></i>`)}</span>`;
}

/** Ten requests of a query, each a link; of those that failed, `failed` is how many there are. */
export function ShortList({ title, query, href, failed, everyMs }) {
  const isFailed = failed !== undefined;
  const answer = useAnswer(address("rows", { q: { ...query, limit: 10 } }), everyMs);
  const rows = answer.data?.rows ?? [];
  return html`<section class="card-plot" aria-label=${title}>
    <div class="card-head"><h2>${title}</h2>${isFailed && html`<span class="quiet-text">${format(failed, "1")}</span>`}
      <a class="card-link" href=${href}>all of them</a></div>
    ${answer.error ? html`<${Failure} error=${answer.error} what="The list" retry=${answer.reload} />`
      : !answer.data ? html`<${Loading} what="the list" />`
        : !rows.length ? html`<p class="quiet-text">${isFailed ? "None failed." : "None."}</p>`
          : html`<ol class="short">${rows.map((row) => html`<li key=${row.key}><a href=${linkTo({}, "request", row.key)}>
              <span class="short-value">${isFailed ? clock(row.timestamp_ns) : format(row.duration_s, "s")}</span>
              <span class="outcome ${kindOf(row.outcome)}">${oneLine(textOf(row.outcome ?? ""), 24)}</span>
              <bdi class="short-what">${oneLine(words(row, isFailed), 120)}</bdi></a></li>`)}</ol>`}
  </section>`;
}

function words(row, isFailed) {
  const parts = [isFailed ? row["error.type"] : clock(row.timestamp_ns), row["tenant.id"], modelOf(row), routeOf(row), row["k8s.pod.name"]];
  return parts.filter((part) => part !== undefined && part !== null).map(textOf).join(" · ");
}

const FIRST = "gen_ai.response.time_to_first_chunk";
const FIELDS = ["duration_s", FIRST, "gen_ai.response.output_tokens_per_second", "gen_ai.response.time_per_output_token"];
const STATS_PAGES = 5;

/** Return the begins of the buckets of an aggregate, seconds since 1970, and their length. */
function bucketsOf(answer) {
  const from = seconds(answer.from_ns ?? "0");
  const length = Number(answer.bucket_ns ?? 1) / 1e9;
  return { x: answer.count.map((_, index) => from + index * length), length, from };
}

/** Return the rates of an aggregate over time. */
function rates(answer) {
  const { x, length } = bucketsOf(answer);
  const per = (values) => values.map((value) => value / length);
  return { x, requests: per(answer.weighted), errors: per(answer.errors), output: per(answer.output_tokens), input: per(answer.input_tokens) };
}

/** Fetch the engine's reports of a range, newest first, as many as some pages hold. */
async function engineReports(query, signal) {
  const rows = [];
  let after;
  for (let page = 0; page < STATS_PAGES; page++) {
    const q = { ...query, events: ["engine.stats"], order: "newest", limit: 1000, after,
      fields: ["boot_id", "pid", "engine.index", "engine.running", "engine.waiting", "engine.kv_cache_usage"] };
    const answer = await fetchJson("rows", { q }, signal);
    rows.push(...answer.rows);
    if (answer.next === null || answer.next === undefined) return { rows, isWhole: true };
    after = answer.next;
  }
  return { rows, isWhole: false };
}

/**
 * Put the reports into the buckets: running and waiting are the greatest of each engine in a bucket, summed over engines;
 * the cache is the fullest engine's.
 */
function engineOverTime(rows, answer) {
  const { x, length, from } = bucketsOf(answer);
  const engines = new Map();
  for (const row of rows) {
    const bucket = Math.floor((seconds(row.timestamp_ns) - from) / length);
    if (bucket < 0 || bucket >= x.length) continue;
    const name = `${row.boot_id}/${row.pid}/${row["engine.index"] ?? 0}`;
    if (!engines.has(name)) engines.set(name, x.map(() => null));
    const at = (engines.get(name)[bucket] ??= { running: 0, waiting: 0, cache: 0 });
    at.running = Math.max(at.running, row["engine.running"] ?? 0);
    at.waiting = Math.max(at.waiting, row["engine.waiting"] ?? 0);
    at.cache = Math.max(at.cache, row["engine.kv_cache_usage"] ?? 0);
  }
  const over = (field, join) => x.map((_, bucket) => {
    const there = [...engines.values()].map((buckets) => buckets[bucket]).filter(Boolean).map((one) => one[field]);
    return there.length ? join(there) : null;
  });
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  return { x, engines: engines.size, running: over("running", sum), waiting: over("waiting", sum), cache: over("cache", (values) => Math.max(...values)) };
}

/** Put lost records into the buckets. */
function lossesOverTime(rows, answer) {
  const { x, length, from } = bucketsOf(answer);
  const values = x.map(() => 0);
  let total = 0;
  for (const row of rows) {
    const lost = typeof row.dropped === "number" ? row.dropped : 0;
    total += lost;
    const bucket = Math.floor((seconds(row.timestamp_ns) - from) / length);
    if (bucket >= 0 && bucket < x.length) values[bucket] += lost;
  }
  return { x, values, total };
}
