// The timeline of one request, as SVG: bars, ticks and marks over one axis, which drag, wheel and keys zoom.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { Chunks, Engine, Gaps, Lane, Neighbours, Untimed } from "./timeline_lanes.js";
import { ticks, timelineOf } from "./timeline_model.js";
import { Icon, ICONS } from "./parts.js";
import { oneLine } from "./text.js";

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
