// What the overview draws, made of the answers. Nothing here draws.

import { fetchJson } from "./api.js";
import { seconds } from "./times.js";

export const FIRST = "gen_ai.response.time_to_first_chunk";
export const FIELDS = ["duration_s", FIRST, "gen_ai.response.output_tokens_per_second", "gen_ai.response.time_per_output_token"];
const STATS_PAGES = 5;

/** Return the begins of the buckets of an aggregate, seconds since 1970, and their length. */
export function bucketsOf(answer) {
  const from = seconds(answer.from_ns ?? "0");
  const length = Number(answer.bucket_ns ?? 1) / 1e9;
  return { x: answer.count.map((_, index) => from + index * length), length, from };
}

/** Return the rates of an aggregate over time. */
export function rates(answer) {
  const { x, length } = bucketsOf(answer);
  const per = (values) => values.map((value) => value / length);
  return { x, requests: per(answer.weighted), errors: per(answer.errors), output: per(answer.output_tokens), input: per(answer.input_tokens) };
}

/** Fetch the engine's reports of a range, newest first, as many as some pages hold. */
export async function engineReports(query, signal) {
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
export function engineOverTime(rows, answer) {
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
export function lossesOverTime(rows, answer) {
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
