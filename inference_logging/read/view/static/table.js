// The list of requests as a grid: only the rows in view are elements. A row has one line, or two on a phone.

import "./node_env.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./pages/vendor/htm/standalone.module.js";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "./pages/vendor/virtual-core/index.js";
import { format } from "./pages/format.js";
import { cell, found, kindOf, methodOf, modelOf, routeOf, WEBSOCKET } from "./columns.js";
import { useMedia } from "./parts.js";
import { oneLine, textOf } from "./text.js";
import { clock } from "./times.js";
import { canFilter } from "./where.js";

const LINE = 28;
const CARD = 60;
const NARROW = matchMedia("(max-width: 640px)");  // as a phone's window

/**
 * The grid. `onOpen(key)`, `onFilter(field, value, isNot)`, `onSort(field)`, `onTop(isAtTop)` when scrolled, `onEnd()` when
 * the last rows are in view. `current` is the key of the row that the keyboard is on.
 */
export function RequestTable(given) {
  const { columns, rows, current, open, order, total, onFilter, onOpen, onTop, onEnd } = given;
  const scroller = useRef(null);
  const isNarrow = useMedia(NARROW);
  const list = useVirtual(scroller, rows.length, isNarrow ? CARD : LINE);
  const items = list.getVirtualItems();
  const last = items.length ? items[items.length - 1].index : 0;
  useEffect(() => { if (rows.length && last >= rows.length - 20) onEnd(); }, [last, rows.length]);
  useFollow(list, rows, current);
  const click = (event) => clicked(event, onFilter, onOpen);
  const greatest = greatestDuration(items, rows);
  const index = rows.findIndex((row) => row.key === current);
  return html`<div class="grid-frame ${isNarrow ? "narrow" : ""}" style=${{ "--columns": template(columns), "--least": `${leastWidth(columns)}px` }}>
    <div class="grid" ref=${scroller} role="grid" tabindex="0" aria-label="Requests" aria-rowcount=${(total ?? rows.length) + 1}
      aria-colcount=${columns.length} aria-activedescendant=${index >= 0 ? `row-${index}` : undefined}
      onScroll=${() => onTop(scroller.current.scrollTop < LINE)} onClick=${click}>
      <${Head} columns=${columns} order=${order} onSort=${given.onSort} />
      <div class="grid-body" role="rowgroup" style=${{ height: `${list.getTotalSize()}px` }}>
        ${items.map(({ index: at, start }) => {
          const row = rows[at];
          if (!row) return null;
          const state = `${row.key === current ? " current" : ""}${row.key === open ? " open" : ""}`;
          return html`<div key=${row.key} id=${`row-${at}`} role="row" class="row ${kindOf(row.outcome)}${state}"
            data-key=${row.key} aria-rowindex=${at + 2} aria-selected=${row.key === current}
            style=${{ transform: `translateY(${start}px)` }}>
            ${isNarrow ? card(row, greatest, columns.length) : columns.map((column) => gridCell(column, row, greatest))}
          </div>`;
        })}
      </div>
    </div>
  </div>`;
}

function template(columns) {
  return columns.map(({ width, grow }) => (grow ? `minmax(${width}px, ${grow}fr)` : `${width}px`)).join(" ");
}

const GAP = 10;
const EDGES = 28;

function leastWidth(columns) {
  return columns.reduce((sum, { width }) => sum + width + GAP, EDGES - GAP);
}

function greatestDuration(items, rows) {
  const requests = items.map(({ index }) => rows[index]).filter((row) => row && row.event_name !== WEBSOCKET);
  return requests.reduce((most, { duration_s: duration }) => Math.max(most, duration ?? 0), 1e-9);
}

/** Keep the row of the keyboard in view, wherever new rows have moved it. */
function useFollow(list, rows, current) {
  useEffect(() => {
    const index = rows.findIndex((row) => row.key === current);
    if (index >= 0) list.scrollToIndex(index, { align: "auto" });
  }, [current]);
}

function clicked(event, onFilter, onOpen) {
  const row = event.target.closest("[data-key]");
  if (!row) return;
  const value = event.target.closest("[data-field]");
  if (value) onFilter(value.dataset.field, value.dataset.value, event.shiftKey);
  else if (!getSelection()?.toString()) onOpen(row.dataset.key);
}

function Head({ columns, order, onSort }) {
  return html`<div class="grid-head" role="rowgroup"><div role="row" class="row-head" aria-rowindex="1">
    ${columns.map((column) => {
      const field = column.fields[0];
      const isDown = order === `-${field}`;
      const isUp = order === field;
      const sort = isDown ? "descending" : isUp ? "ascending" : column.sort ? "none" : undefined;
      return html`<div role="columnheader" class=${column.unit || column.id === "status" ? "right" : ""} aria-sort=${sort}
        title=${column.fields.join(", ")}>
        ${column.sort
          ? html`<button type="button" class="sort" onClick=${() => onSort(field)}>${column.label}
              <span aria-hidden="true">${isDown ? "↓" : isUp ? "↑" : ""}</span></button>`
          : html`<span>${column.label}</span>`}
      </div>`;
    })}
  </div></div>`;
}

const OPENS = new Set(["time", "duration", "first", "input", "output", "rate"]);

function gridCell(column, row, greatest) {
  const [field, value] = found(column, row);
  const isValue = !OPENS.has(column.id) && value !== undefined && canFilter(value);
  const content = cell(column, row, greatest);
  const right = column.unit !== undefined || column.id === "status" ? " right" : "";
  return html`<div role="gridcell" class="cell c-${column.id.replace(/\W/g, "-")}${right}">
    ${isValue
      ? html`<bdi class="value" data-field=${field} data-value=${String(value)} title=${hint(field, value)}>${content}</bdi>`
      : html`<bdi>${content}</bdi>`}
  </div>`;
}

function hint(field, value) {
  return `${field}=${oneLine(textOf(value), 120)}\nClick: only these. Shift-click: all others.`;
}

/** A row on a phone: two lines in one cell. */
function card(row, greatest, count) {
  const route = routeOf(row) ?? "";
  const model = modelOf(row);
  const first = row["gen_ai.response.time_to_first_chunk"];
  const tokens = row["gen_ai.usage.output_tokens"];
  return html`<div role="gridcell" class="card" aria-colspan=${count}>
    <div class="card-line"><span class="card-time">${clock(row.timestamp_ns)}</span>
      <span class="outcome ${kindOf(row.outcome)}">${row["http.response.status_code"] ?? ""} ${row.outcome === "ok" ? "" : oneLine(textOf(row.outcome ?? ""))}</span>
      <span class="card-time">${oneLine(textOf(methodOf(row) ?? ""), 10)}</span><bdi class="card-route">${oneLine(textOf(route))}</bdi></div>
    <div class="card-line card-facts"><span class="card-bar">${cell({ id: "duration", fields: ["duration_s"] }, row, greatest)}</span>
      ${first !== undefined && html`<span>first ${format(first, "s")}</span>`}
      ${tokens !== undefined && html`<span>${format(tokens, "{token}")}</span>`}
      ${model !== undefined && html`<bdi class="card-model">${oneLine(textOf(model))}</bdi>`}</div>
  </div>`;
}

/** Use a virtual list of `count` rows of `height` pixels inside the element of `scroller`. */
export function useVirtual(scroller, count, height) {
  const [, draw] = useState(0);
  const list = useRef(null);
  const options = {
    count,
    estimateSize: () => height,
    getScrollElement: () => scroller.current,
    observeElementOffset,
    observeElementRect,
    scrollToFn: elementScroll,
    overscan: 8,
    onChange: () => draw((number) => number + 1),
  };
  list.current ??= new Virtualizer(options);
  list.current.setOptions(options);
  useLayoutEffect(() => list.current._didMount(), []);
  useLayoutEffect(() => list.current._willUpdate());
  useEffect(() => list.current.measure(), [height]);
  return list.current;
}
