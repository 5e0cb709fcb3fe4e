// Tables of the overview: percentiles by group, the slowest and the failed.

import { html, useState } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { address, useAnswer } from "./api.js";
import { kindOf, modelOf, routeOf } from "./columns.js";
import { FIELDS, FIRST } from "./overview_data.js";
import { Failure, Loading } from "./parts.js";
import { change, linkTo } from "./state.js";
import { NONE, oneLine, textOf } from "./text.js";
import { clock } from "./times.js";
import { parse, withCondition } from "./where.js";

const GROUPS = [["http.route", "route"], ["model", "model"], ["tenant.id", "tenant"], ["outcome", "outcome"],
  ["k8s.pod.name", "pod"], ["service.name", "service"], ["error.type", "error"], ["enduser.id", "user"]];

/** Percentiles by the field of `params.by`. */
export function Groups({ query, params, everyMs }) {
  const by = params.by || "http.route";
  const [sort, setSort] = useState("count");
  const answer = useAnswer(address("aggregate", { q: { ...query, buckets: 1, fields: FIELDS, group_by: by, groups_limit: 50 } }), everyMs);
  const groups = answer.data?.groups ?? [];
  return html`<section class="card-plot groups" aria-label="By group">
    <div class="card-head"><h2 id="groups-title">Percentiles by</h2>
      <select aria-label="Group by" value=${by} onChange=${(event) => change({ by: event.target.value === "http.route" ? "" : event.target.value })}>
        ${GROUPS.map(([field, name]) => html`<option key=${field} value=${field}>${name}</option>`)}
        ${!GROUPS.some(([field]) => field === by) && html`<option value=${by}>${oneLine(by, 60)}</option>`}
      </select><span class="quiet-text">click a value to filter</span></div>
    ${answer.error ? html`<${Failure} error=${answer.error} what="The groups" retry=${answer.reload} />`
      : !answer.data ? html`<${Loading} what="the groups" />`
        : html`<${GroupTable} groups=${sorted(groups, sort)} by=${by} params=${params} sort=${sort} setSort=${setSort} />`}
  </section>`;
}

const REST = { more: "(other values, or none)" };

const COLUMNS = [
  ["count", "Requests", (group) => group.count[0], "1"],
  ["errors", "Failed", (group) => group.errors && group.errors[0] / group.count[0], "ratio"],
  ["p50", "p50", (group) => group.fields?.duration_s?.p50, "s"], ["p95", "p95", (group) => group.fields?.duration_s?.p95, "s"],
  ["p99", "p99", (group) => group.fields?.duration_s?.p99, "s"],
  ["first50", "First chunk p50", (group) => group.fields?.[FIRST]?.p50, "s"], ["first99", "First chunk p99", (group) => group.fields?.[FIRST]?.p99, "s"],
  ["rate", "Tokens/s p50", (group) => group.fields?.["gen_ai.response.output_tokens_per_second"]?.p50, "1"],
];

function sorted(groups, name) {
  const value = COLUMNS.find(([id]) => id === name)[2];
  return [...groups].sort((a, b) => (value(b) ?? -1) - (value(a) ?? -1));
}

function GroupTable({ groups, by, params, sort, setSort }) {
  if (!groups.length) return html`<p class="quiet-text">No record has ${oneLine(by, 60)}.</p>`;
  const greatest = Math.max(...groups.map((group) => group.fields?.duration_s?.p99 ?? 0), 1e-9);
  const filter = (condition) => (event) => {
    const { field, value } = parse(condition);
    change({ where: withCondition(params.where ?? [], field, value, event.shiftKey ? "!=" : "=") });
  };
  return html`<div class="scroll-x" tabindex="0" role="group" aria-labelledby="groups-title"><table>
    <thead><tr><th scope="col">${oneLine(by, 60)}</th>${COLUMNS.map(([id, label]) => html`<th key=${id} scope="col" aria-sort=${id === sort ? "descending" : "none"}>
      <button type="button" class="sort" onClick=${() => setSort(id)}>${label}<span aria-hidden="true">${id === sort ? "↓" : ""}</span></button></th>`)}<th scope="col" class="spread-head">p50 · p95 · p99</th></tr></thead>
    <tbody>${groups.map((group) => html`<tr key=${String(group.value)}><th scope="row">${group.value === null ? html`<span class="quiet-text">${REST[group.rest] ?? NONE}</span>`
      : html`<button type="button" class="link plain" onClick=${filter(group.condition)} title="Only ${oneLine(group.condition, 120)} (Shift: all others)"><bdi>${oneLine(textOf(group.value), 80)}</bdi></button>`}</th>
      ${COLUMNS.map(([id, , value, unit]) => html`<td key=${id} class=${id === "errors" && value(group) > 0.05 ? "bad" : ""}>${format(value(group), unit)}</td>`)}
      <td class="spread"><${Spread} of=${group.fields?.duration_s} greatest=${greatest} /></td></tr>`)}</tbody></table></div>`;
}

/** The percentiles as points on one line, on a scale that all rows have. */
function Spread({ of, greatest }) {
  if (!of?.count) return null;
  const place = (value) => `${Math.min(100, (value / greatest) * 100).toFixed(2)}%`;
  return html`<span class="spread-line" aria-hidden="true"><i class="s-line" style=${{ left: place(of.p50), right: `calc(100% - ${place(of.p99)})` }}></i>
    ${["p50", "p95", "p99"].map((name) => html`<i key=${name} class="s-${name}" style=${{ left: place(of[name]) }}></i>`)}</span>`;
}

/** Ten requests of a query, each a link; of those that failed, `failed` is how many there are. */
export function ShortList({ title, query, href, failed, everyMs }) {
  const isFailed = failed !== undefined;
  const answer = useAnswer(address("rows", { q: { ...query, limit: 10 } }), everyMs);
  const rows = answer.data?.rows ?? [];
  return html`<section class="card-plot" aria-label=${title}>
    <div class="card-head"><h2>${title}</h2>${isFailed && html`<span class="quiet-text">${format(failed, "1")}</span>`}
      <a class="card-link" href=${href}>all of them</a></div>
    ${answer.error ? html`<${Failure} error=${answer.error} what="The list" retry=${answer.reload} />`
      : !answer.data ? html`<${Loading} what="the list" />`
        : !rows.length ? html`<p class="quiet-text">${isFailed ? "None failed." : "None."}</p>`
          : html`<ol class="short">${rows.map((row) => html`<li key=${row.key}><a href=${linkTo({}, "request", row.key)}>
              <span class="short-value">${isFailed ? clock(row.timestamp_ns) : format(row.duration_s, "s")}</span>
              <span class="outcome ${kindOf(row.outcome)}">${oneLine(textOf(row.outcome ?? ""), 24)}</span>
              <bdi class="short-what">${oneLine(words(row, isFailed), 120)}</bdi></a></li>`)}</ol>`}
  </section>`;
}

function words(row, isFailed) {
  const parts = [isFailed ? row["error.type"] : clock(row.timestamp_ns), row["tenant.id"], modelOf(row), routeOf(row), row["k8s.pod.name"]];
  return parts.filter((part) => part !== undefined && part !== null).map(textOf).join(" · ");
}
