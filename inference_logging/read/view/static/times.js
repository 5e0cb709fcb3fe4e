// Points in time. Records have nanoseconds since 1970 as text, since a number of JavaScript would round them.

import { kept } from "./settings.js";

/** Return nanoseconds since 1970 (text or BigInt) as seconds; exact to a microsecond. */
export function seconds(ns) {
  return Number(BigInt(ns) / 1000n) / 1e6;
}

/** Return the nanoseconds (BigInt) of a time as records write it: `2026-11-21T05:00:00.123456789Z`. */
export function nanoseconds(stamp) {
  const match = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z$/.exec(stamp ?? "");
  if (!match) return null;
  return BigInt(Date.parse(`${match[1]}Z`)) * 1000000n + BigInt((match[2] ?? "").padEnd(9, "0"));
}

/** Return the nanoseconds (BigInt) of seconds since 1970. */
export function fromSeconds(value) {
  return BigInt(Math.round(value * 1e6)) * 1000n;
}

function parts(ns) {
  const at = new Date(Number(BigInt(ns) / 1000000n));
  const isUtc = kept("zone", "utc") === "utc";
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  const get = (name) => at[`get${isUtc ? "UTC" : ""}${name}`]();
  return {
    day: `${get("FullYear")}-${pad(get("Month") + 1)}-${pad(get("Date"))}`,
    clock: `${pad(get("Hours"))}:${pad(get("Minutes"))}:${pad(get("Seconds"))}`,
    rest: pad(Number(BigInt(ns) % 1000000000n), 9),
  };
}

/** Print the time of day to the millisecond. */
export function clock(ns) {
  const { clock: text, rest } = parts(ns);
  return `${text}.${rest.slice(0, 3)}`;
}

/** Print day and time to the microsecond. */
export function full(ns) {
  const { day, clock: text, rest } = parts(ns);
  return `${day} ${text}.${rest.slice(0, 6)}${zone()}`;
}

/** Print day and time to the second. */
export function brief(ns) {
  const { day, clock: text } = parts(ns);
  return `${day} ${text}`;
}

/** Print the zone in which times are shown. */
export function zone() {
  return kept("zone", "utc") === "utc" ? " UTC" : " local";
}

const RANGES = { "5m": 300, "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800 };
export const RANGE_WORDS = {
  "5m": "last 5 minutes", "15m": "last 15 minutes", "1h": "last hour", "6h": "last 6 hours", "24h": "last 24 hours",
  "7d": "last 7 days",
};

/** Return `{from_ns, to_ns}` (text, where bounded) of a route's params; a relative range ends at `nowNs`. */
export function bounds(params, nowNs, prefix = "") {
  const result = {};
  const range = RANGES[params[`${prefix}range`]];
  if (range) {
    result.from_ns = String(BigInt(nowNs) - BigInt(range) * 1000000000n);
    return result;
  }
  for (const end of ["from", "to"]) {
    const ns = nanoseconds(params[`${prefix}${end}`]);
    if (ns !== null) result[`${end}_ns`] = String(ns);
  }
  return result;
}

/** Print nanoseconds for the URL: a time of UTC to the millisecond. */
export function stampOf(ns) {
  return new Date(Number(BigInt(ns) / 1000000n)).toISOString();
}

/** Read what a person types as a time, in the zone that is shown; returns a stamp for the URL, or null. */
export function readTime(text) {
  const match = /^\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)(:\d\d(?:\.\d{1,3})?)?\s*(Z|UTC)?\s*$/i.exec(text);
  if (!match) return null;
  const isUtc = match[4] || kept("zone", "utc") === "utc";
  const ms = Date.parse(`${match[1]}T${match[2]}${match[3] ?? ":00"}${isUtc ? "Z" : ""}`);
  return Number.isNaN(ms) ? null : new Date(ms).toISOString();
}
