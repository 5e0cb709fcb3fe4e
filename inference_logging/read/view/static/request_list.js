// The rows of the list: pages of an answer that grow downwards, and live rows that come in at the top.

import { address, fetchJson } from "./api.js";
import { WEBSOCKET } from "./columns.js";

const PAGE_ROWS = 200;
const MOST_ROWS = 20_000;
/** Live rows beyond that make the list forget its end; what waits while it is paused has the same bound. */

export class RequestList {
  rows = [];
  waiting = [];
  /** Live rows that are not in `rows` and not in `waiting`, since the stream or this page left them out. */
  skipped = 0;
  /** How many match; null while that is not known. `isLeast`: at least so many. */
  matched = null;
  isLeast = false;
  answer = null;
  error = null;
  isLoading = false;
  isConnected = null;
  /** The fields of which a row has a value. */
  filled = new Set();
  hasWebSockets = false;
  #keys = new Set();
  #next = null;
  #isHeld = false;
  #abort = null;
  #stream = null;
  #query = {};
  #changed;
  #timer = 0;

  constructor(changed) {
    this.#changed = changed;
  }

  /** Load the newest rows of `query`; with `isLive`, also take those that come. */
  start(query, isLive) {
    this.stop();
    Object.assign(this, { rows: [], waiting: [], skipped: 0, matched: null, isLeast: false, answer: null, error: null, filled: new Set() });
    this.#keys = new Set();
    this.#query = query;
    this.#next = null;
    // The stream is open before the rows are asked for, so that none falls between; doubles go by their keys.
    if (isLive) this.#listen();
    return this.#load();
  }

  stop() {
    this.#abort?.abort();
    this.#stream?.close();
    clearTimeout(this.#timer);
    this.#stream = null;
    this.isConnected = null;
  }

  get hasMore() {
    return this.#next !== null;
  }

  /** Load the next rows at the end. */
  async more() {
    if (!this.isLoading && this.#next !== null && !this.error) await this.#load();
  }

  /** Try again after an error. */
  retry() {
    this.error = null;
    return this.#load();
  }

  /** Hold live rows back, or let them in. */
  hold(isHeld) {
    if (this.#isHeld === isHeld) return;
    this.#isHeld = isHeld;
    if (!isHeld) this.release();
  }

  /** Let in what waits. */
  release() {
    const waiting = this.waiting;
    this.waiting = [];
    this.#prepend(waiting);
    this.#changed();
  }

  async #load() {
    const abort = (this.#abort = new AbortController());
    this.isLoading = true;
    this.#changed();
    try {
      const query = { ...this.#query, limit: PAGE_ROWS, ...this.#next };
      const answer = await fetchJson("rows", { q: query }, abort.signal);
      this.#append(answer);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error;
    }
    this.isLoading = false;
    this.#changed();
    if (!this.error && this.matched === null) this.#count(abort.signal);
  }

  /** Ask how many match, where the page of rows did not say: it ends when it is full. */
  async #count(signal) {
    if (!this.hasMore) {
      this.matched = this.rows.length;
      return;
    }
    const { order, fields, ...query } = this.#query;
    try {
      const answer = await fetchJson("aggregate", { q: { ...query, buckets: 1, fields: [] } }, signal);
      this.matched = answer.count.reduce((sum, value) => sum + value, 0);
      this.isLeast = answer.complete === false;
      this.#changed();
    } catch {
      // The list stands without its total; the next page asks again.
    }
  }

  #append(answer) {
    const fresh = answer.rows.filter((row) => !this.#keys.has(row.key));
    this.#note(fresh);
    this.rows = this.rows.concat(fresh);
    this.answer = answer;
    this.matched = answer.matched ?? this.matched;
    this.#next = answer.next === null || answer.next === undefined ? null : { after: answer.next };
  }

  #listen() {
    const stream = (this.#stream = new EventSource(address("live", { q: this.#query })));
    stream.addEventListener("open", () => this.#opened());
    stream.addEventListener("error", () => {
      if (stream !== this.#stream) return;
      this.isConnected = false;
      // After an answer that is an error, such as 503, the browser does not connect again by itself.
      if (stream.readyState === EventSource.CLOSED) this.#timer = setTimeout(() => this.#listen(), 3000);
      this.#changed();
    });
    stream.addEventListener("rows", (event) => this.#take(JSON.parse(event.data)));
  }

  #opened() {
    const isAgain = this.isConnected === false;
    this.isConnected = true;
    // What was written while the stream was away is not sent again.
    if (isAgain) this.start(this.#query, true);
    else this.#changed();
  }

  #take({ rows, skipped = 0 }) {
    const fresh = rows.filter((row) => !this.#keys.has(row.key));
    this.#note(fresh);
    this.skipped += skipped;
    // What a message leaves out matches as well.
    if (this.matched !== null) this.matched += fresh.length + skipped;
    if (this.#isHeld) {
      this.waiting = fresh.concat(this.waiting);
      this.skipped += Math.max(0, this.waiting.length - MOST_ROWS);
      this.waiting.length = Math.min(this.waiting.length, MOST_ROWS);
    } else this.#prepend(fresh);
    this.#changed();
  }

  #note(fresh) {
    for (const row of fresh) {
      this.#keys.add(row.key);
      this.hasWebSockets ||= row.event_name === WEBSOCKET;
      for (const name of Object.keys(row)) if (row[name] !== null) this.filled.add(name);
    }
  }

  #prepend(fresh) {
    this.rows = sorted(fresh).concat(this.rows);
    if (this.rows.length <= MOST_ROWS) return;
    for (const row of this.rows.splice(MOST_ROWS)) this.#keys.delete(row.key);
    // The cursor stands behind rows that are gone, so the next page begins at the time of the last row.
    const last = this.rows[this.rows.length - 1];
    this.#next = { to_ns: String(BigInt(last.timestamp_ns) + 1n) };
  }
}

function sorted(rows) {
  const isNewer = (a, b) => (a.timestamp_ns.length - b.timestamp_ns.length || (a.timestamp_ns < b.timestamp_ns ? -1 : 1));
  return rows.length > 1 ? [...rows].sort((a, b) => (a.timestamp_ns === b.timestamp_ns ? 0 : -isNewer(a, b))) : rows;
}
