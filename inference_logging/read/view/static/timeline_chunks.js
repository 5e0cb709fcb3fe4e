// The chunks of a stream: a tick for each, and below it the gap before it as a bar.

import { html } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { Lane } from "./timeline_lane.js";

const MOST_ELEMENTS = 2000;
const GAP_HEIGHT = 44;

/** A tick for each chunk. Beyond some thousand they are one path, since each element costs. */
export function Chunks({ model, scale, at }) {
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
export function nearest(chunks, at, reach) {
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
export function Untimed({ model }) {
  const count = model.chunksWithoutGap;
  return count > 0 && model.chunks.length > 0 && html`<p class="timeline-note">The record has the times of the first ${format(model.chunks.length, "1")} chunks; the
    ${count === 1 ? " last one has" : ` other ${format(count, "1")} have`} none (chunk_timeline_limit).</p>`;
}

/** The gaps as areas whose height is the gap: a stall stands out, wherever it is. */
export function Gaps({ model, scale }) {
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
