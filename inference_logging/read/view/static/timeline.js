// The timeline of one request, as SVG: bars, ticks and marks over one axis, which drag, wheel and keys zoom. Lanes below the
// request's own: the chunks of a stream with the gaps between them, and what ran beside the request, which are other requests of its
// process and the state of the engine.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { ticks, timelineOf } from "./timeline_model.js";
import { Icon, ICONS } from "./parts.js";
import { oneLine, textOf } from "./text.js";
import { kindOf } from "./columns.js";

const LABELS = 92;
const LABELS_NARROW = 0;

/** Use the width of an element. */
function useWidth(element) {
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    const update = () => set(element.current?.clientWidth ?? 0);
    const observer = new ResizeObserver(update);
    observer.observe(element.current);
    update();
    return () => observer.disconnect();
  }, []);
  return width;
}

/** The timeline of `answer`; `onOpen(key)` opens a request that ran beside it. */
export function Timeline({ answer, onOpen }) {
  const model = useMemo(() => timelineOf(answer), [answer]);
  const root = useRef(null);
  const width = useWidth(root);
  const whole = model ? [0, model.total * 1.02] : [0, 1];
  const [range, setRange] = useState(whole);
  const [hover, setHover] = useState(null);
  useEffect(() => setRange(whole), [model]);
  const labels = width < 520 ? LABELS_NARROW : LABELS;
  const scale = useMemo(() => scaleOf(range, width, labels), [range, width, labels]);
  const zoom = useZoom(root, scale, range, setRange, whole);
  const at = hover === null ? null : scale.time(hover);
  return html`<div class="timeline" ref=${root}>
    ${!model ? html`<p class="state">The record has no time, so nothing can be placed.</p>` : html`
    <div class="timeline-tools"><${Legend} model=${model} />
      <span class="timeline-zoom">${[["plus", "Zoom in", zoom.in], ["minus", "Zoom out", zoom.out], ["whole", "Show the whole request", zoom.reset]].map(([icon, label, action]) => html`
        <button type="button" class="icon-button" aria-label=${label} title=${label} onClick=${action}><${Icon} path=${ICONS[icon]} size=${14} /></button>`)}</span></div>
    <div class="timeline-plot" tabindex="0" role="group" aria-label=${summary(model)} onKeyDown=${zoom.keys}
      onPointerDown=${zoom.down} onPointerMove=${(event) => { setHover(event.clientX - root.current.getBoundingClientRect().left); zoom.move(event); }}
      onPointerUp=${zoom.up} onPointerLeave=${() => setHover(null)} onDblClick=${zoom.reset}>
      ${width > 0 && html`
        <${Axis} scale=${scale} />
        <${Parts} model=${model} scale=${scale} />
        <${Chunks} model=${model} scale=${scale} at=${at} />
        <${Gaps} model=${model} scale=${scale} />
        <${Marks} model=${model} scale=${scale} />
        <${Neighbours} model=${model} scale=${scale} onOpen=${onOpen} />
        <${Engine} model=${model} scale=${scale} at=${at} />`}
      ${at !== null && hover > labels && html`<div class="cursor" style=${{ left: `${hover}px` }}><span>${format(at, "s")}</span></div>`}
      ${zoom.selection && html`<div class="selection" style=${{ left: `${zoom.selection[0]}px`, width: `${zoom.selection[1] - zoom.selection[0]}px` }}></div>`}
    </div>
    <${Untimed} model=${model} />
    ${model.hasEngineTimes && html`<p class="timeline-note">The engine reports how long queue, prefill and decode took, not when: they are
      drawn one after the other, from the arrival on.</p>`}`}
  </div>`;
}

/** Return how seconds and pixels belong together. */
export function scaleOf([from, to], width, labels) {
  const begin = labels + 6;
  const end = Math.max(begin + 10, width - 12);
  const per = (end - begin) / (to - from);
  const x = (at) => begin + (at - from) * per;
  const inside = (at) => Math.max(begin, Math.min(end, x(at)));
  return { from, to, begin, end, width, labels, per, x, inside, time: (place) => from + (place - begin) / per };
}

function useZoom(root, scale, range, setRange, whole) {
  const [selection, setSelection] = useState(null);
  const start = useRef(null);
  const local = (event) => event.clientX - root.current.getBoundingClientRect().left;
  const clamp = ([from, to]) => {
    const most = whole[1] * 4;
    const length = Math.min(most, Math.max(1e-6, to - from));
    const begin = Math.max(-whole[1], Math.min(from, whole[1] * 3 - length));
    setRange([begin, begin + length]);
  };
  const by = (factor, center = (range[0] + range[1]) / 2) => clamp([center - (center - range[0]) * factor, center + (range[1] - center) * factor]);
  const shift = (share) => clamp(range.map((edge) => edge + (range[1] - range[0]) * share));
  const moves = { "+": () => by(0.5), "=": () => by(0.5), "-": () => by(2), ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2), Home: () => setRange(whole) };
  useWheel(root, (event) => by(event.deltaY > 0 ? 1.25 : 0.8, scale.time(local(event))));
  return {
    selection, in: () => by(0.5), out: () => by(2), reset: () => setRange(whole),
    keys: (event) => { if (moves[event.key]) { event.preventDefault(); event.stopPropagation(); moves[event.key](); } },
    down: (event) => { if (event.button === 0 && event.pointerType !== "touch") start.current = local(event); },
    move: (event) => { if (start.current !== null && Math.abs(local(event) - start.current) > 4) setSelection([start.current, local(event)].sort((a, b) => a - b)); },
    up: () => {
      if (selection) clamp(selection.map(scale.time));
      start.current = null;
      setSelection(null);
    },
  };
}

/** The wheel zooms with Ctrl or Command held; alone it scrolls the page, as everywhere. */
function useWheel(root, zoom) {
  const current = useRef(zoom);
  current.current = zoom;
  useEffect(() => {
    const wheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      current.current(event);
    };
    const element = root.current;
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);
}

function summary(model) {
  const parts = model.parts.filter(({ kind }) => kind !== "request").map(({ name, from, to }) => `${name} ${format(to - from, "s")}`);
  const chunks = model.chunks.length ? `, first chunk after ${format(model.chunks[0].at, "s")}, ${model.chunks.length} chunks drawn` : "";
  return `Timeline of ${format(model.duration, "s")}: ${parts.join(", ") || "no parts"}${chunks}. Plus and minus zoom, arrows move, Home shows the whole.`;
}

function Legend({ model }) {
  const kinds = [...new Set(model.parts.map(({ kind }) => kind))].filter((kind) => kind !== "request");
  return html`<ul class="legend" aria-label="Parts">${kinds.map((kind) => {
    const part = model.parts.find((one) => one.kind === kind);
    return html`<li key=${kind}><i class="swatch p-${kind}"></i>${part.name} <b>${format(part.length ?? part.to - part.from, "s")}</b></li>`;
  })}</ul>`;
}

function Axis({ scale }) {
  const most = Math.max(2, Math.floor((scale.end - scale.begin) / 90));
  return html`<svg class="axis" width=${scale.width} height="22" aria-hidden="true">
    ${ticks(scale.from, scale.to, most).map((at) => html`<g key=${at}>
      <line x1=${scale.x(at)} x2=${scale.x(at)} y1="16" y2="22" />
      <text x=${scale.x(at)} y="12" text-anchor="middle">${Math.abs(at) < 1e-12 ? "0" : format(at, "s")}</text></g>`)}
  </svg>
  <div class="gridlines" aria-hidden="true">${ticks(scale.from, scale.to, most).map((at) => html`<i key=${at} style=${{ left: `${scale.x(at)}px` }}></i>`)}</div>`;
}

function Parts({ model, scale }) {
  return [["Request", 0], ["Engine", 1]].map(([name, lane]) => {
    const parts = model.parts.filter((part) => part.lane === lane);
    if (!parts.length) return null;
    const title = lane === 1 && !model.hasEngineTimes ? "Answer" : name;
    return html`<${Lane} key=${name} name=${title} height=${26} scale=${scale}>${parts.map((part) => html`<${Part} key=${part.kind} part=${part} scale=${scale} />`)}<//>`;
  });
}

function Part({ part, scale }) {
  const x = scale.x(part.from);
  const width = Math.max(1, (part.to - part.from) * scale.per);
  const words = `${part.name} ${format(part.to - part.from, "s")}`;
  const inside = Math.max(x, scale.begin);
  const room = Math.min(x + width, scale.end) - inside;
  return html`<g class="part" data-part=${part.kind}>
    <rect class="p-${part.kind}" x=${x} y="3" width=${width} height="20" rx="2"><title>${words}, from ${format(part.from, "s")} to ${format(part.to, "s")}</title></rect>
    ${room > words.length * 6.4 + 10 && html`<text class="part-text t-${part.kind}" x=${inside + 6} y="17">${words}</text>`}
  </g>`;
}

function Marks({ model, scale }) {
  if (!model.marks.length) return null;
  return html`<${Lane} name="Records" height=${22} scale=${scale}>
    ${model.marks.map((mark, index) => html`<g key=${index} class="mark m-${mark.kind} s-${mark.severity}" data-mark=${mark.kind} transform="translate(${scale.x(mark.at)} 11)">
      ${mark.kind === "log" ? html`<circle r="4.5" />` : html`<path d="M-5 -5L5 5M5 -5L-5 5" />`}
      <title>${format(mark.at, "s")} ${mark.severity}: ${oneLine(String(mark.name), 200)}</title></g>`)}
  <//>`;
}

/** A lane: its name at the left, or above it where the window is narrow. */
function Lane({ name, height, scale, class: kind = "", children, title, note }) {
  return html`<div class="lane ${kind} ${scale.labels ? "" : "named"}" title=${title}>
    <span class="lane-name" style=${scale.labels ? { width: `${scale.labels}px` } : {}}>${name}${note && html`<b>${note}</b>`}</span>
    <svg width=${scale.width} height=${height} role="img" aria-label="${name}${note ? ` ${note}` : ""}">${children}</svg>
  </div>`;
}

const MOST_ELEMENTS = 2000;
const GAP_HEIGHT = 44;

/** A tick for each chunk. Beyond some thousand they are one path, since each element costs. */
function Chunks({ model, scale, at }) {
  const { chunks } = model;
  if (!chunks.length) return null;
  const near = nearest(chunks, at, 8 / scale.per);
  const line = ({ at: second }) => `M${scale.x(second).toFixed(2)} 4V20`;
  const rest = restOf(model);
  return html`<${Lane} name="Chunks" height=${24} scale=${scale} class="chunks">
    ${rest && html`<g><rect class="rest" x=${scale.x(rest.from)} y="4" width=${Math.max(0, (rest.to - rest.from) * scale.per)} height="16" />
      <title>${rest.count} more chunks, whose gaps are not on record (chunk_timeline_limit)</title></g>`}
    ${chunks.length > MOST_ELEMENTS
      ? html`<path class="tick" d=${chunks.map(line).join("")} />`
      : chunks.map((chunk, index) => html`<path key=${index} class="tick ${index ? "" : "first"}" data-chunk=${index} d=${line(chunk)} />`)}
    ${near && html`<${Reading} chunk=${near.chunk} index=${near.index} scale=${scale} />`}
  <//>`;
}

/** What is left of the answer behind the last chunk with a gap, if there were more. */
function restOf({ chunks, chunksWithoutGap, duration }) {
  const from = chunks[chunks.length - 1]?.at ?? 0;
  return chunksWithoutGap > 0 && duration > from ? { from, to: duration, count: chunksWithoutGap } : null;
}

function Reading({ chunk, index, scale }) {
  const words = `chunk ${index + 1} at ${format(chunk.at, "s")}${chunk.gap === null ? "" : `, gap ${format(chunk.gap, "s")}`}`;
  const x = scale.x(chunk.at);
  const isRight = x + words.length * 6.4 + 16 > scale.end;
  return html`<g class="reading"><path class="tick near" d="M${x} 2V22" />
    <rect x=${isRight ? x - words.length * 6.4 - 14 : x + 5} y="3" width=${words.length * 6.4 + 9} height="18" rx="3" />
    <text x=${isRight ? x - 9 : x + 9} y="16" text-anchor=${isRight ? "end" : "start"}>${words}</text></g>`;
}

/** Return the chunk next to a point in time, if it is within `reach` seconds. */
function nearest(chunks, at, reach) {
  if (at === null || !chunks.length) return null;
  let low = 0;
  let high = chunks.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (chunks[middle].at < at) low = middle + 1;
    else high = middle;
  }
  const index = low > 0 && at - chunks[low - 1].at < chunks[low].at - at ? low - 1 : low;
  return Math.abs(chunks[index].at - at) <= reach ? { chunk: chunks[index], index } : null;
}

/** Says why the ticks end before the answer does. */
function Untimed({ model }) {
  const count = model.chunksWithoutGap;
  return count > 0 && model.chunks.length > 0 && html`<p class="timeline-note">The record has the times of the first ${format(model.chunks.length, "1")} chunks; the
    ${count === 1 ? " last one has" : ` other ${format(count, "1")} have`} none (chunk_timeline_limit).</p>`;
}

/** The gaps as areas whose height is the gap: a stall stands out, wherever it is. */
function Gaps({ model, scale }) {
  const gaps = model.chunks.map((chunk, index) => ({ ...chunk, index })).filter(({ gap }) => gap !== null);
  if (gaps.length < 2) return null;
  // As recorded: that of a chunk without a point in time may be greater than all that are drawn.
  const micros = model.greatestGap ?? gaps.reduce((most, { gap }) => Math.max(most, gap), 0) * 1e6;
  const greatest = micros / 1e6;
  const usual = [...gaps].map(({ gap }) => gap).sort((a, b) => a - b)[gaps.length >> 1];
  const isStall = ({ gap }) => gap > Math.max(usual * 5, 0.05);
  const top = (gap) => (GAP_HEIGHT - Math.max(1, Math.min(1, gap / greatest) * (GAP_HEIGHT - 12))).toFixed(2);
  const area = ({ at, gap }) => {
    return `M${scale.x(at - gap).toFixed(2)} ${GAP_HEIGHT}V${top(gap)}H${scale.x(at).toFixed(2)}V${GAP_HEIGHT}Z`;
  };
  const stalls = gaps.filter(isStall);
  return html`<${Lane} name="Gaps" note="≤ ${format(micros, "us")}" height=${GAP_HEIGHT + 2} scale=${scale} title="The time before each chunk. Usual: ${format(usual, "s")}">
    ${[1, 0.5].map((share) => html`<line key=${share} class="gap-line" x1=${scale.begin} x2=${scale.end} y1=${top(greatest * share)} y2=${top(greatest * share)}><title>${format(greatest * share, "s")}</title></line>`)}
    <path class="gaps" d=${gaps.filter((gap) => !isStall(gap)).map(area).join("")} />
    <path class="gaps stall" d=${stalls.map(area).join("")} />
    ${stalls.slice(0, 6).map((gap) => html`<text key=${gap.index} class="stall-text" x=${scale.x(gap.at - gap.gap / 2)} y="10" text-anchor="middle">${format(gap.gap, "s")}</text>`)}
  <//>`;
}

const LANE = 11;
const MOST_LANES = 16;

/** The requests beside it; a click opens one. */
function Neighbours({ model, scale, onOpen }) {
  const { spans, count } = model.requests;
  if (!count) return null;
  const shown = Math.min(count, MOST_LANES);
  const seen = spans.filter(({ lane, from, to }) => lane < shown && to >= scale.from && from <= scale.to);
  const own = [0, model.duration].map(scale.inside);
  const hidden = spans.filter(({ lane }) => lane >= shown).length;
  return html`<${Lane} name="Beside it" height=${shown * LANE + 6} scale=${scale} class="beside" title="${spans.length} other requests of this process overlap">
    <rect class="own" x=${own[0]} y="0" width=${Math.max(1, own[1] - own[0])} height=${shown * LANE + 4} />
    ${seen.map(({ row, from, to, lane }) => {
      const [x, end] = [from, to].map(scale.inside);
      return html`<rect key=${row.key} class="neighbour ${kindOf(row.outcome)}" x=${x} y=${lane * LANE + 3} width=${Math.max(1.5, end - x)} height=${LANE - 3} rx="1.5"
        onClick=${() => onOpen?.(row.key)}><title>${words(row, from, to)}</title></rect>`;
    })}
  <//>
  ${hidden > 0 && html`<p class="timeline-note" style=${{ marginLeft: `${scale.begin}px` }}>${hidden} more ran beside it; the lanes end here.</p>`}`;
}

function words(row, from, to) {
  const route = row["http.route"] ?? row["url.path"] ?? row["triton.model_name"] ?? "request";
  const tokens = row["gen_ai.usage.output_tokens"];
  return [`${oneLine(textOf(route), 80)} — ${row.outcome ?? ""}`, `${format(from, "s")} to ${format(to, "s")}, ${format(to - from, "s")}`,
    tokens === undefined ? "" : format(tokens, "{token}"), row["tenant.id"] === undefined ? "" : oneLine(textOf(row["tenant.id"]), 60)].filter(Boolean).join("\n");
}

const HEIGHT = 34;

/** The engine's last reports: running and waiting requests as steps, and the share of the KV cache that is used. */
function Engine({ model, scale, at }) {
  const { stats } = model;
  if (!stats.length) return null;
  const rows = [["running", "Running", "1"], ["waiting", "Waiting", "1"], ["cache", "KV cache", "ratio"]];
  return rows.map(([key, name, unit]) => {
    const points = stats.filter((point) => point[key] !== null);
    if (!points.length) return null;
    const most = unit === "ratio" ? 1 : Math.max(1, ...points.map((point) => point[key]));
    const now = at === null ? null : points.filter((point) => point.at <= at).at(-1);
    const label = now ? format(now[key], unit) : `≤ ${format(most, unit)}`;
    return html`<${Lane} key=${key} name=${name} note=${label} height=${HEIGHT} scale=${scale} class="engine">
      <path class="state e-${key}" d=${steps(inView(points, scale), key, most, scale)} />
    <//>`;
  });
}

/** The reports that are in view, and the last one before: its state still holds at the left edge. */
function inView(points, scale) {
  const before = points.filter(({ at }) => at <= scale.from).slice(-1);
  return [...before, ...points.filter(({ at }) => at > scale.from && at <= scale.to)];
}

function steps(points, key, most, scale) {
  const y = (value) => (HEIGHT - 3 - (value / most) * (HEIGHT - 8)).toFixed(2);
  const x = (second) => scale.inside(second).toFixed(2);
  if (!points.length) return "";
  const first = points[0];
  let path = `M${x(first.at)} ${HEIGHT - 2}`;
  points.forEach((point, index) => { path += `V${y(point[key])}H${x(points[index + 1]?.at ?? scale.to)}`; });
  return `${path}V${HEIGHT - 2}Z`;
}
