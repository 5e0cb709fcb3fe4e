// Numbers as people read them: three significant digits and the unit that fits, the same on every page.
// Units are UCUM's, as OpenTelemetry writes them: "s", "us", "By" (or "B"), "1", "{token}", "{token}/s", "1/s", "%" (of hundred),
// and beside them "ratio" (of one, shown as a percentage) and "x" (how many times as much).

const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
const COUNTS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

// The core has the same rule (lines::terminal::safe); a page cannot ask it, and a test compares the two.
const UNSAFE = new RegExp("[\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb"
  + "\\ud800-\\udfff\\u{e0000}-\\u{e007f}]", "gu");

/** Return a stranger's text on one line, with each character that is unsafe to show as an escape of JSON. */
export function safe(text) {
  return String(text).replace(UNSAFE, (found) => Array.from({ length: found.length }, (_, at) =>
    `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));
}

/** Return a value with its unit; an en dash where there is none. */
export function format(value, unit = "1") {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return "–";
  const number = Number(value);
  if (unit === "s") return duration(number);
  if (unit === "ns") return duration(number * 1e-9);
  if (unit === "us") return duration(number * 1e-6);
  if (unit === "B" || unit === "By") return scaled(number, BYTES, "B");
  if (unit === "B/s") return `${scaled(number, BYTES, "B")}/s`;
  if (unit === "%") return `${digits(number)} %`;
  if (unit === "ratio") return `${digits(number * 100)} %`;
  if (unit === "x") return `${digits(number)}×`;
  if (unit === "1" || unit === "") return whole(number);
  if (unit === "1/s") return `${count(number)}/s`;
  const [, name, per] = /^\{([^{}]+)\}(.*)$/.exec(unit) ?? [];
  if (name === undefined) return `${count(number)} ${unit}`;
  const noun = number === 1 || name.endsWith("s") ? name : `${name}s`;
  return per ? `${count(number)} ${noun}${per}` : `${whole(number)} ${noun}`;
}

/** Return the label of a point on an axis: shorter than the value, whose unit stands beside the axis. */
export function formatTick(value, unit = "1") {
  if (value === null || value === undefined) return "";
  if (unit === "s" || unit === "ns" || unit === "B" || unit === "%" || unit === "ratio" || unit === "x") {
    return format(value, unit);
  }
  return short(value);
}

/** Return what an axis's labels leave out: the words for a unit, empty where each label has it. */
export function unitTitle(unit = "1") {
  if (["s", "ns", "B", "%", "ratio", "x", "1", ""].includes(unit)) return "";
  if (unit === "1/s") return "per second";
  const [, name, per] = /^\{([^{}]+)\}(.*)$/.exec(unit) ?? [];
  if (name === undefined) return unit;
  return `${name.endsWith("s") ? name : `${name}s`}${per === "/s" ? " per second" : per}`;
}

/** Return a point in time (seconds since 1970) in UTC, as finely as `step_s` between points needs. */
export function formatTime(unix_s, step_s = 1) {
  if (!Number.isFinite(unix_s)) return "–";
  const text = new Date(unix_s * 1000).toISOString();
  if (step_s >= 86400) return text.slice(0, 10);
  if (step_s >= 60) return text.slice(11, 16);
  return text.slice(11, step_s >= 1 ? 19 : 23);
}

function duration(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size >= 1000) return `${grouped(seconds, 0)} s`;
  const [factor, unit] = SECONDS.find(([factor]) => size >= factor * 0.9995) ?? SECONDS.at(-1);
  return `${digits(seconds / factor)} ${unit}`;
}

function scaled(number, units, smallest) {
  const [factor, unit] = units.find(([factor]) => Math.abs(number) >= factor) ?? [1, smallest];
  return `${factor === 1 && Number.isInteger(number) ? number : digits(number / factor)} ${unit}`;
}

function short(number) {
  const [factor, unit] = COUNTS.find(([factor]) => Math.abs(number) >= factor) ?? [1, ""];
  return unit ? `${digits(number / factor)} ${unit}` : digits(number);
}

function count(number) {
  const [factor, unit] = COUNTS.find(([factor]) => Math.abs(number) >= factor * 10) ?? [1, ""];
  if (factor === 1 && Math.abs(number) >= 1000) return grouped(number, 0);
  return unit ? `${digits(number / factor)} ${unit}` : digits(number);
}

function whole(number) {
  if (Number.isInteger(number)) return grouped(number, 0);
  return Math.abs(number) >= 1000 ? grouped(number, 1) : digits(number);
}

function digits(number) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 999.5) return grouped(number, 0);
  if (size < 1e-4) return number.toExponential(1);
  return String(Number(number.toPrecision(3)));
}

function grouped(number, places) {
  return number.toLocaleString("en-GB", { maximumFractionDigits: places });
}
