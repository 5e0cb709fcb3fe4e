// Where the parts of a request lie in time, in seconds after its arrival. Nothing here draws.

import { nanoseconds } from "./times.js";

/** Return a field of a record if it is a finite number. */
export function number(record, name) {
  const value = record[name];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** Return when a request arrived, nanoseconds (BigInt): its record is written when all its work has ended. */
export function arrival(record) {
  const ended = nanoseconds(record.timestamp);
  if (ended === null) return null;
  const spent = (number(record, "duration_s") ?? 0) + (number(record, "after_response_s") ?? 0);
  return ended - BigInt(Math.round(spent * 1e6)) * 1000n;
}

/** Return the seconds of a point (nanoseconds, BigInt) after another one. */
export function since(begin, at) {
  return Number((at - begin) / 1000n) / 1e6;
}

/**
 * Return what a timeline draws of the answer of `api/record`: `parts` (bars), `chunks` (seconds and gap of each), `greatestGap`
 * (µs, also of chunks that are not drawn), `marks` (points in time), `requests` (what ran beside it, in lanes) and `stats` (the engine around it).
 */
export function timelineOf({ record, logs = [], chunks = [], neighbours = {} }) {
  const begin = arrival(record);
  if (begin === null) return null;
  const duration = number(record, "duration_s") ?? 0;
  const after = number(record, "after_response_s") ?? 0;
  const first = number(record, "gen_ai.response.time_to_first_chunk");
  const sent = chunkTimes(record, chunks, first);
  return {
    begin, duration, after, first,
    total: duration + after || LEAST_S,
    parts: partsOf(record, duration, first, after),
    hasEngineTimes: ENGINE.some(([, field]) => number(record, field) !== null),
    chunks: sent,
    chunksWithoutGap: number(record, "chunk_gaps_truncated") ?? 0,
    greatestGap: number(record, "chunk_gap_max_us"),
    marks: marksOf(record, logs, begin, duration),
    requests: lanes(neighbours.requests ?? [], begin),
    stats: (neighbours.stats ?? []).map((one) => statsPoint(one, begin)).filter(Boolean).sort((a, b) => a.at - b.at),
  };
}

/** How much time is drawn of a request that took none. */
const LEAST_S = 1e-3;
const ENGINE = [["queue", "engine.queued_s"], ["prefill", "engine.prefill_s"], ["decode", "engine.decode_s"]];

/** The engine gives lengths and no points in time, so its parts lie one behind the other from the arrival. */
function partsOf(record, duration, first, after) {
  const parts = [{ name: record.event_name === "request" ? "request" : "connection", kind: "request", from: 0, to: duration, lane: 0 }];
  const hasEngine = ENGINE.some(([, field]) => number(record, field) !== null);
  const lengths = hasEngine ? ENGINE.map(([name, field]) => [name, number(record, field) ?? 0]) : answered(record, duration, first);
  let from = 0;
  for (const [name, length] of lengths) {
    const to = Math.min(duration, from + length);
    if (to > from) parts.push({ name, kind: name, from, to, lane: 1, length });
    from = to;
  }
  if (after > 0) parts.push({ name: "after the response", kind: "after", from: duration, to: duration + after, lane: 0 });
  return parts;
}

/** Return the wait for the answer and the answer; where none came, all is waiting. */
function answered(record, duration, first) {
  const begin = first ?? number(record, "time_to_first_byte_s");
  if (begin !== null) return [["waiting", begin], ["streaming", Math.max(0, duration - begin)]];
  const isWaiting = record.event_name === "request" && record["http.response.status_code"] === undefined;
  return isWaiting ? [["waiting", duration]] : [];
}

function chunkTimes(record, events, first) {
  const sent = events.map((event) => number(event, "since_start_s")).filter((at) => at !== null).sort((a, b) => a - b);
  if (sent.length) return sent.map((at, index) => ({ at, gap: index ? at - sent[index - 1] : null }));
  if (first === null) return [];
  const result = [{ at: first, gap: null }];
  let micros = 0;
  for (const gap of Array.isArray(record.chunk_gaps_us) ? record.chunk_gaps_us : []) {
    if (typeof gap !== "number") break;
    micros += gap;
    result.push({ at: first + micros / 1e6, gap: gap / 1e6 });
  }
  return result;
}

function marksOf(record, logs, begin, duration) {
  const marks = logs.map((log) => ({ log, at: nanoseconds(log.timestamp) })).filter(({ at }) => at !== null).map(({ log, at }) => ({
    kind: "log", at: since(begin, at), severity: log.severity_text ?? "INFO", record: log,
    name: log.message ?? log.event_name ?? "record",
  }));
  if (record["exception.type"]) {
    marks.push({ kind: "exception", at: duration, severity: "ERROR", name: record["exception.type"], record });
  } else if (record.outcome && record.outcome !== "ok") {
    marks.push({ kind: "end", at: duration, severity: "ERROR", name: record.outcome, record });
  }
  return marks.sort((a, b) => a.at - b.at);
}

/** Put requests into as few lanes as hold them without overlap; times are seconds after `begin`. */
export function lanes(rows, begin) {
  const spans = rows.map((row) => {
    const to = since(begin, BigInt(row.timestamp_ns));
    return { row, from: to - (row.duration_s ?? 0), to };
  }).sort((a, b) => a.from - b.from);
  const free = [];
  for (const span of spans) {
    const lane = free.findIndex((end) => end <= span.from);
    span.lane = lane < 0 ? free.length : lane;
    free[span.lane] = span.to;
  }
  return { spans, count: free.length };
}

function statsPoint(record, begin) {
  const at = record.timestamp_ns !== undefined ? BigInt(record.timestamp_ns) : nanoseconds(record.timestamp);
  if (at === null) return null;
  return {
    at: since(begin, at), running: number(record, "engine.running"), waiting: number(record, "engine.waiting"),
    cache: number(record, "engine.kv_cache_usage"),
  };
}

const STEPS = [1, 2, 5];

/** Return round points of an axis from `from` to `to`, at most `most` of them. */
export function ticks(from, to, most) {
  const least = (to - from) / Math.max(1, most);
  if (!(least > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [...STEPS, 10].map((factor) => factor * power).find((size) => size >= least * 0.999);
  const result = [];
  for (let index = Math.ceil(from / step - 1e-9); index * step <= to * (1 + 1e-12) + 1e-15; index++) result.push(index * step);
  return result;
}
