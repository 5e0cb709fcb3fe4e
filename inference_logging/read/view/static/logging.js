// The logging itself: whether its account balances, what was lost and why, how its sinks are, and what it costs.

import { html } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { useAnswer } from "./api.js";
import { Failure, Loading } from "./parts.js";
import { LongText, oneLine, textOf } from "./text.js";
import { full, nanoseconds } from "./times.js";

export function LoggingPage() {
  // Where books are still being made, the page asks again soon.
  const answer = useAnswer("api/logging", (data) => (data?.books && !data.books_running ? 15_000 : 1500));
  const { data, error, reload } = answer;
  if (error && !data) return html`<${Failure} error=${error} what="The account of the logging" retry=${reload} />`;
  if (!data) return html`<${Loading} what="the account: it reads all segments once" />`;
  return html`<div class="logging-body">
    <${Lanes} lanes=${data.lanes ?? []} />
    <${Books} data=${data} />
    <div class="two"><${Cost} cost=${data.cost ?? {}} /><${Segments} of=${data.books?.segments} seconds=${data.books?.seconds} /></div>
    ${data.books && html`<${Gaps} processes=${data.processes ?? []} />`}
    <${Drops} drops=${data.drops ?? []} />
    ${data.books && html`<${Processes} processes=${data.processes ?? []} />`}
    <${Sinks} sinks=${data.sinks ?? []} />
    <${Health} health=${data.health ?? []} />
  </div>`;
}

const COUNTS = [["accepted", "accepted"], ["written", "written"], ["in_queue", "in the queue"], ["lost", "lost"], ["missing", "missing"], ["removed", "removed by retention"], ["doubled", "doubled"]];

/** How the logging of running processes is now, by queue directory. */
function Lanes({ lanes }) {
  if (!lanes.length) return null;
  return html`<section class="card-plot" aria-label="Now"><div class="card-head"><h2>Now</h2><span class="quiet-text">of the queue directories that the segments name and that still exist</span></div>
    <ul class="lanes">${lanes.map((lane) => html`<li key=${lane.queue_directory}>
      <span class="outcome ${LANE_KINDS[lane.state] ?? "bad"}">${oneLine(textOf(lane.state ?? "unknown"), 40)}</span> <code>${oneLine(lane.queue_directory, 120)}</code>
      ${lane.listener && html`<span class="quiet-text">heartbeat ${format(lane.listener.heartbeat_age_s, "s")} ago, ${format(lane.listener.records_written, "1")} records written</span>`}
      ${(lane.queues ?? []).map((queue) => html`<span key=${`${queue.boot_id}${queue.pid}`} class="fill"><i>pid ${oneLine(textOf(queue.pid), 12)}: ${format(queue.in_queue, "1")} waiting</i>
        <meter min="0" max=${queue.capacity_bytes || 1} value=${queue.used_bytes ?? 0} aria-label="Fill of the queue of pid ${queue.pid}"></meter></span>`)}
      ${[...(lane.reasons ?? []).map((one) => one.text), lane.error].filter(Boolean).map((text) => html`<p class="bad">${oneLine(textOf(text), 400)}</p>`)}</li>`)}</ul>
  </section>`;
}

const LANE_KINDS = { ok: "ok", ended: "ok", pressured: "abort" };

function Books({ data }) {
  const { books, books_error: problem, books_age_s: age } = data;
  if (!books) return html`<p class="banner" role="status">${problem ? oneLine(textOf(problem), 400) : "The books are being added up: all segments are read once."}</p>`;
  const totals = books.totals ?? {};
  const dropped = sumOf(totals.dropped);
  return html`<section class="card-plot books ${books.balanced ? "" : "unbalanced"}" aria-label="Books">
    <div class="card-head"><h2>${books.balanced ? "The books balance" : "The books do not balance"}</h2>
      <span class="quiet-text">${books.balanced ? "Every accepted record is written, or it is known where it went." : `${(books.problems ?? []).length} ${books.problems?.length === 1 ? "problem" : "problems"}`}</span>
      <span class="quiet-text card-link">${data.books_running ? "updating" : age !== undefined && age !== null ? `updated ${format(age, "s")} ago` : ""}</span></div>
    <dl class="tiles books-tiles">${COUNTS.map(([name, label]) => html`<div key=${name}><dt>${label}</dt><dd class=${["lost", "missing", "doubled"].includes(name) && totals[name] ? "bad" : ""}>${format(totals[name] ?? 0, "1")}</dd></div>`)}
      <div><dt>refused (dropped)</dt><dd class=${dropped ? "bad" : ""}>${format(dropped, "1")}</dd></div></dl>
    ${books.problems?.length > 0 && html`<ul class="problem-list">${books.problems.slice(0, 50).map((one, index) => html`<li key=${index}><${Problem} problem=${one} /></li>`)}</ul>`}
    ${books.notes?.length > 0 && html`<details><summary>${books.notes.length} notes</summary><ul class="problem-list">${books.notes.slice(0, 50).map((one, index) => html`<li key=${index}><${Problem} problem=${one} /></li>`)}</ul></details>`}
  </section>`;
}

function Problem({ problem }) {
  if (problem === null || typeof problem !== "object") return html`<${LongText} text=${textOf(problem)} limit=${400} />`;
  const { kind, text, ...rest } = problem;
  return html`${kind && html`<b>${oneLine(textOf(kind).replaceAll("_", " "), 120)}</b> `}${text && html`<bdi>${oneLine(textOf(text), 400)}</bdi>`}
    <p class="quiet-text">${Object.entries(rest).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => html`<span class="member"><i>${name}</i> <bdi>${oneLine(textOf(value), 300)}</bdi></span> `)}</p>`;
}

/** Add the numbers of nested counts: `{reason: {severity: count}}`. */
function sumOf(counts) {
  if (typeof counts === "number") return counts;
  return Object.values(counts ?? {}).reduce((total, one) => total + sumOf(one), 0);
}

function Cost({ cost }) {
  const perRequest = cost.hot_path_s_per_request;
  return html`<section class="card-plot" aria-label="Cost"><div class="card-head"><h2>Cost per request</h2></div>
    ${perRequest === null || perRequest === undefined ? html`<p class="quiet-text">${cost.requests ? `Not known yet: a process times every 64th request, and there are ${format(cost.requests, "1")} so far.` : "Not known: no process of this folder runs here now. A running one times every 64th request."}</p>`
      : html`<p class="big">${format(perRequest, "s")}</p><p class="quiet-text">in the middleware, as it measures itself at every 64th request; ${format(cost.requests, "1")} requests in running processes.</p>`}
  </section>`;
}

function Segments({ of, seconds }) {
  return html`<section class="card-plot" aria-label="Segments"><div class="card-head"><h2>Segments</h2></div>
    ${!of ? html`<p class="quiet-text">Not counted yet.</p>`
      : html`<p class="big">${format(of.files, "1")} <small>${of.files === 1 ? "file" : "files"}, ${format(of.disk_bytes, "B")} on disk</small></p>
        <p class="quiet-text">${format(of.lines, "1")} lines, ${format(of.bytes, "B")} of text · ${format(of.sealed, "1")} sealed, ${format(of.live, "1")} live, ${format(of.compressed, "1")} compressed${seconds ? ` · read in ${format(seconds, "s")}` : ""}</p>`}
  </section>`;
}

/** A table in a card; `rows` of cells, `empty` says why there are none. */
function Table({ title, note, head, rows, empty }) {
  const id = `table-${title.toLowerCase().replace(/\W+/g, "-")}`;
  return html`<section class="card-plot" aria-label=${title}><div class="card-head"><h2 id=${id}>${title}</h2>${note && html`<span class="quiet-text">${note}</span>`}</div>
    ${!rows.length ? html`<p class="quiet-text">${empty}</p>`
      : html`<div class="scroll-x" tabindex="0" role="group" aria-labelledby=${id}><table class="wide-table texts"><thead><tr>${head.map((one) => html`<th key=${one} scope="col">${one}</th>`)}</tr></thead>
        <tbody>${rows.map((cells, index) => html`<tr key=${index}>${cells.map((cell, at) => (at ? html`<td key=${at}>${cell}</td>` : html`<th key=${at} scope="row">${cell}</th>`))}</tr>`)}</tbody></table></div>`}
  </section>`;
}

const short = (value, most = 60) => html`<bdi>${oneLine(textOf(value ?? "–"), most)}</bdi>`;
const when = (stamp) => { const ns = nanoseconds(stamp); return ns === null ? "–" : full(ns); };
const processName = (one) => html`<code>${oneLine(textOf(one.boot_id ?? ""), 20)}</code> pid ${oneLine(textOf(one.pid ?? "?"), 12)}`;

function Gaps({ processes }) {
  const gaps = processes.flatMap((one) => (one.gaps ?? []).map((gap) => ({ one, gap })));
  const rows = gaps.slice(0, 200).map(({ one, gap }) => [processName(one), `${format(gap.first, "1")} – ${format(gap.last, "1")}`, format(gap.records ?? gap.last - gap.first + 1, "1"), short(gap.reason ?? "not known", 80), short(gap.detail ?? "", 200), when(gap.from), when(gap.to)]);
  return html`<${Table} title="Gaps by name" note=${gaps.length ? `${gaps.length}` : ""} head=${["Process", "Numbers", "Records", "Why", "What is known", "After", "Before"]} rows=${rows} empty="No number is missing in any process." />`;
}

function Drops({ drops }) {
  const rows = drops.slice(0, 200).map((one) => [when(one.timestamp), processName(one), format(one.dropped, "1"), short(reasons(one.reasons), 160)]);
  return html`<${Table} title="Losses" note="each reported where it happened (log.dropped)" head=${["When", "Process", "Records", "Reasons"]} rows=${rows} empty="No record was refused or lost." />`;
}

function reasons(counts) {
  return Object.entries(counts ?? {}).map(([reason, of]) => `${reason}: ${format(sumOf(of), "1")}`).join(", ");
}

function Processes({ processes }) {
  const rows = processes.slice(0, 500).map((one) => [processName(one), short(one.state), format(one.accepted, "1"), format(one.written, "1"), format(one.in_queue, "1"), format(sumOf(one.dropped), "1"), format(one.missing, "1"), when(one.first_time), when(one.last_time)]);
  return html`<${Table} title="Processes" note=${processes.length ? `${processes.length}` : ""} head=${["Process", "State", "Accepted", "Written", "In queue", "Refused", "Missing", "First record", "Last record"]} rows=${rows} empty="No process has left a record." />`;
}

function Sinks({ sinks }) {
  const rows = sinks.map((one) => [short(one.name), short(one.role), html`<span class="outcome ${one.state === "ok" ? "ok" : "bad"}">${short(one.state)}</span>`, format(one.records_written, "1"), format(one.bytes_written, "B"),
    html`<span class=${one.records_dropped ? "bad" : ""}>${format(one.records_dropped ?? 0, "1")}</span>`, format(sumOf(one.errors), "1"), one.write_seconds?.count ? format(one.write_seconds.sum / one.write_seconds.count, "s") : "–", short(one.last_error ?? "", 160)]);
  return html`<${Table} title="Sinks" head=${["Sink", "Role", "State", "Records", "Bytes", "Dropped", "Errors", "Mean write", "Last error"]} rows=${rows} empty="No listener of this folder runs here now, so no sink has a state." />`;
}

const HEAD = new Set(["timestamp", "severity_text", "event_name", "boot_id", "pid", "seq", "key"]);

function Health({ health }) {
  const rows = health.slice(0, 200).map((one) => [when(one.timestamp), html`<span class="s-${/^\w+$/.test(one.severity_text ?? "") ? one.severity_text : "INFO"}"><span class="severity">${short(one.event_name)}</span></span>`, processName(one),
    short(Object.entries(one).filter(([name]) => !HEAD.has(name)).map(([name, value]) => `${name}=${textOf(value)}`).join(" "), 240)]);
  return html`<${Table} title="History" note="starts, ends, sinks that failed and recovered" head=${["When", "Event", "Process", "What"]} rows=${rows} empty="No event of the logging itself is on record." />`;
}
