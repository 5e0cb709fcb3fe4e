// What ran beside a request: other requests of its process in lanes, and the state of the engine.

import { html } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { kindOf } from "./columns.js";
import { oneLine, textOf } from "./text.js";
import { Lane } from "./timeline_lane.js";

const LANE = 11;
const MOST_LANES = 16;

/** The requests beside it; a click opens one. */
export function Neighbours({ model, scale, onOpen }) {
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
export function Engine({ model, scale, at }) {
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
