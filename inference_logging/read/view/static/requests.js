// The page of requests: the live list, and the request that is open beside it.

import { html, useEffect, useMemo, useReducer, useRef, useState } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { address, useAnswer } from "./api.js";
import { BarLegend, chosen, columnsOf, fieldsOf, filledOf, isUsual, WEBSOCKET, ColumnMenu } from "./columns.js";
import { ExportMenu, Empty, Failure, Icon, ICONS, Loading, useMedia } from "./parts.js";
import { FilterBar } from "./filters.js";
import { useKeys } from "./keys.js";
import { RequestPanel } from "./request.js";
import { RequestList } from "./request_list.js";
import { change, go, linkTo } from "./state.js";
import { RequestTable } from "./table.js";
import { bounds, brief, RANGE_WORDS } from "./times.js";
import { withCondition } from "./where.js";

const KINDS = { "": ["request", WEBSOCKET], request: ["request"], websocket: [WEBSOCKET] };
const NOUNS = { "": ["request or WebSocket", "requests and WebSockets"], request: ["request", "requests"], websocket: ["WebSocket", "WebSockets"] };

/** Return the query of a page's params; `events` are requests alone where a page computes with them. */
export function queryOf(params, nowNs, events = KINDS.request) {
  return { where: params.where ?? [], events, text: params.text, trace: params.trace, ...bounds(params, nowNs) };
}

export function RequestsPage({ params, meta, now }) {
  const columns = useMemo(() => columnsOf(chosen(params), meta.byName), [params.columns, meta]);
  const order = params.order ?? "newest";
  const isLive = order === "newest" && !params.to;
  const list = useList(params, columns, order, isLive, now);
  const filled = filledOf(columns, list.filled);
  const isWide = useMedia(WIDE);
  const seen = params.open && !isWide && isUsual(columns) ? filled.filter((column) => BESIDE.has(column.id)) : filled;
  const query = queryOf(params, now(), kindsOf(params));
  const [isPaused, setPaused] = useState(false);
  const [isAtTop, setAtTop] = useState(true);
  const [current, setCurrent] = useState(params.open ?? null);
  useEffect(() => list.hold(isPaused || !isAtTop), [isPaused, isAtTop, list]);
  const open = (key) => { setCurrent(key); show(key); };
  const filter = (field, value, isNot) => change({ where: withCondition(params.where ?? [], field, value, isNot ? "!=" : "=") });
  const sort = (field) => change({ order: order === `-${field}` ? field : order === field ? "" : `-${field}` });
  useListKeys(list, { current, setCurrent, setPaused, isLive, open: params.open, params });
  return html`<div class="requests ${params.open ? "has-panel" : ""}">
    <section class="requests-list" aria-label="List of requests">
      <${FilterBar} params=${params} meta=${meta} query=${query}>
        <${ColumnMenu} columns=${columns} meta=${meta} />
        <${ExportMenu} query=${{ ...query, order }} fields=${["timestamp", ...fieldsOf(columns)]} />
      <//>
      <${ListState} list=${list} order=${order} isLive=${isLive} isPaused=${isPaused} isAtTop=${isAtTop} setPaused=${setPaused} params=${params} />
      ${list.rows.length
        ? html`<${RequestTable} columns=${seen} rows=${list.rows} current=${current} open=${params.open} order=${order}
            total=${list.matched} onOpen=${open} onFilter=${filter} onSort=${sort} onTop=${setAtTop} onEnd=${() => list.more()} />`
        : html`<${NoRows} list=${list} params=${params} meta=${meta} />`}
    </section>
    ${params.open && html`<${RequestPanel} key=${params.open} recordKey=${params.open} meta=${meta} params=${params}
      onFilter=${filter} onClose=${() => change({ open: "" })} />`}
  </div>`;
}

/** Of the usual columns, those that there is room for beside an open request, unless the window is wide. */
const BESIDE = new Set(["time", "outcome", "route", "duration", "first"]);
const WIDE = matchMedia("(min-width: 2200px)");

const kindsOf = (params) => KINDS[params.kind] ?? KINDS[""];

function show(key) {
  // Beside the list where there is room for both.
  if (matchMedia("(min-width: 1100px)").matches) change({ open: key });
  else go(linkTo({ open: "" }, "request", key));
}

/** Use the list of rows for the params; it loads anew when what is asked for changes. */
function useList(params, columns, order, isLive, now) {
  const [, draw] = useReducer((number) => number + 1, 0);
  const frame = useRef(0);
  const list = useMemo(() => new RequestList(() => {
    // Several changes of one frame are drawn once.
    frame.current ||= requestAnimationFrame(() => { frame.current = 0; draw(); });
  }), []);
  const asked = JSON.stringify([params.where, params.text, params.trace, params.range, params.from, params.to, params.kind, order, fieldsOf(columns)]);
  useEffect(() => {
    list.start({ ...queryOf(params, now(), kindsOf(params)), order, fields: fieldsOf(columns) }, isLive);
    return () => list.stop();
  }, [asked, isLive]);
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return list;
}

function useListKeys(list, state) {
  const move = (step) => {
    const at = list.rows.findIndex((row) => row.key === state.current);
    const next = list.rows[Math.max(0, Math.min(list.rows.length - 1, at < 0 ? 0 : at + step))];
    if (!next) return;
    state.setCurrent(next.key);
    if (state.open) change({ open: next.key }, { replace: true });
  };
  const step = (by) => (event) => {
    // Arrows belong to what has the focus, unless that is the list or nothing.
    if (event.key.startsWith("Arrow") && event.target !== document.body && !event.target.closest(".grid")) return false;
    return move(by);
  };
  useKeys({
    j: step(1), k: step(-1), ArrowDown: step(1), ArrowUp: step(-1),
    Enter: () => (state.current ? show(state.current) : false),
    o: () => (state.current ? go(linkTo({ open: "" }, "request", state.current)) : false),
    Escape: () => (state.open ? change({ open: "" }) : false),
    p: () => (state.isLive ? state.setPaused((is) => !is) : false),
    x: () => change({ where: [], text: "", trace: "" }),
  });
}

/** The line between the filter and the list: how many, live or paused, and how far a search came. */
function ListState({ list, order, isLive, isPaused, isAtTop, setPaused, params }) {
  const count = list.matched === null ? `${format(list.rows.length, "1")}${list.hasMore ? "+" : ""}` : `${list.isLeast ? "≥ " : ""}${format(list.matched, "1")}`;
  return html`<div class="list-state">
    ${isLive && html`<button type="button" class="live ${isPaused ? "paused" : ""}" aria-pressed=${isPaused} title="Pause the live list (p)"
      onClick=${() => setPaused(!isPaused)}><${Icon} path=${isPaused ? ICONS.play : ICONS.pause} size=${14} />${isPaused ? "Resume" : "Pause"}</button>`}
    <span class="live-dot ${liveState(isLive, list, isPaused)}" aria-hidden="true"></span>
    <span role="status">${liveWords(isLive, list, isPaused, order)}</span>
    ${list.waiting.length > 0 && html`<button type="button" class="waiting" onClick=${() => { setPaused(false); list.release(); document.querySelector(".grid")?.scrollTo(0, 0); }}>
      <${Icon} path=${ICONS.up} size=${12} /> ${format(list.waiting.length, "1")} new</button>`}
    ${list.filled.has("gen_ai.response.time_to_first_chunk") && html`<${BarLegend} />`}
    <${Counted} list=${list} count=${count} params=${params} />
    ${list.skipped > 0 && html`<span class="quiet-text" title="More rows came than a page can show; they are in the segments.">${format(list.skipped, "1")} not shown live</span>`}
    ${list.answer && !list.answer.complete && html`<${Searched} list=${list} />`}
    ${list.error && list.rows.length > 0 && html`<span class="bad" role="alert">${list.error.message} <button type="button" class="link" onClick=${() => list.retry()}>Try again</button></span>`}
    ${!isLive && order !== "newest" && html`<button type="button" class="link" onClick=${() => change({ order: "" })}>newest first</button>`}
  </div>`;
}

/** How many match; where there are WebSockets, also which of both are listed. */
function Counted({ list, count, params }) {
  const sockets = useAnswer(address("values", { q: { field: "event_name", events: [WEBSOCKET], limit: 1 } }));
  const hasBoth = params.kind || list.hasWebSockets || sockets.data?.length > 0;
  const [one, many] = NOUNS[hasBoth ? params.kind ?? "" : "request"] ?? NOUNS[""];
  return html`<span class="list-count" data-unknown=${list.matched === null ? "" : undefined}><b>${count}</b> ${list.matched === 1 ? one : many}</span>
    ${hasBoth && html`<select aria-label="What is listed" value=${params.kind ?? ""} onChange=${(event) => change({ kind: event.target.value })}>
      ${Object.keys(KINDS).map((kind) => html`<option key=${kind} value=${kind}>${kind ? NOUNS[kind][1] : "both"}</option>`)}</select>`}`;
}

const liveState = (isLive, list, isPaused) => (!isLive ? "" : isPaused ? "is-paused" : list.isConnected === false ? "is-lost" : "is-live");

function liveWords(isLive, list, isPaused, order) {
  if (order !== "newest") return order === "oldest" ? "oldest first" : `sorted by ${order.replace(/^-/, "")}, ${order.startsWith("-") ? "greatest" : "least"} first`;
  if (!isLive) return "a range that has ended";
  if (isPaused) return "paused";
  if (list.isConnected === false) return "connection lost, trying again";
  return list.isConnected ? "live" : "connecting";
}

function Searched({ list }) {
  const to = list.answer.searched_to_ns;
  return html`<span class="searched">searched back to ${to ? brief(to) : "where the time for it ended"}
    ${list.hasMore && html`<button type="button" class="link" onClick=${() => list.more()}>search on</button>`}</span>`;
}

function NoRows({ list, params, meta }) {
  if (list.error) return html`<${Failure} error=${list.error} what="The list of requests" retry=${() => list.retry()} />`;
  if (list.isLoading || list.answer === null) return html`<${Loading} what="requests" />`;
  const isFiltered = params.where?.length || params.text || params.trace || params.kind;
  const isBounded = params.range || params.from || params.to;
  if (meta.progress && !meta.progress.done) {
    return html`<${Empty} title="Nothing yet: the index is still being built.">
      <p>Newest segments come first; rows appear as they are read.</p><//>`;
  }
  return html`<${Empty} title=${isFiltered || isBounded ? "No request matches." : "No requests in this folder yet."}>
    ${isBounded && html`<p>The range is ${RANGE_WORDS[params.range] ?? "bounded"}.
      <button type="button" onClick=${() => change({ range: "", from: "", to: "" })}>Look at all time</button></p>`}
    ${isFiltered && html`<p><button type="button" onClick=${() => change({ where: [], text: "", trace: "", kind: "" })}>Remove the conditions</button></p>`}
    ${!isFiltered && !isBounded && html`<p>A request appears here when it has ended. Folders: ${meta.directories.map((one) => html`<code>${one}</code> `)}</p>`}
    ${list.answer && !list.answer.complete && html`<p><${Searched} list=${list} /></p>`}
  <//>`;
}
