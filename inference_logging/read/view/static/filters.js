// The bar above the pages: conditions as chips, an input for more, a search in the text, and the range of time.

import { html, useEffect, useRef, useState } from "./pages/vendor/htm/standalone.module.js";
import { format } from "./pages/format.js";
import { fetchJson } from "./api.js";
import { Icon, ICONS, Menu } from "./parts.js";
import { change } from "./state.js";
import { oneLine, textOf } from "./text.js";
import { brief, nanoseconds, RANGE_WORDS, readTime, stampOf } from "./times.js";
import { inverted, MEANING, parse, withCondition } from "./where.js";

/** The bar for the page of now, which asks `query`. `children` are the page's own tools at its end. */
export function FilterBar({ params, meta, query, children }) {
  const conditions = params.where ?? [];
  return html`<form class="filters" role="search" aria-label="Filter" onSubmit=${(event) => event.preventDefault()}>
    <${ConditionInput} query=${query} meta=${meta} onAdd=${(where) => change({ where })} />
    <${TextSearch} text=${params.text ?? ""} />
    <${RangeMenu} params=${params} />
    ${children}
    <${Chips} conditions=${conditions} params=${params} />
  </form>`;
}

function Chips({ conditions, params }) {
  if (!conditions.length && !params.trace) return null;
  return html`<ul class="chips" aria-label="Conditions">
    ${conditions.map((text) => html`<${Chip} key=${text} text=${text} conditions=${conditions} />`)}
    ${params.trace && html`<li class="chip"><span>trace <b>${oneLine(params.trace, 40)}</b></span>
      <button type="button" aria-label="Remove the trace" onClick=${() => change({ trace: "" })}>
        <${Icon} path=${ICONS.close} size=${12} /></button></li>`}
    <li><button type="button" class="link" onClick=${() => change({ where: [], trace: "" })}>clear</button></li>
  </ul>`;
}

function Chip({ text, conditions }) {
  const without = conditions.filter((one) => one !== text);
  const { field, operator, value } = readOr(text);
  const turn = () => change({ where: conditions.map((one) => (one === text ? inverted(text) : one)) });
  return html`<li class="chip ${operator === "!=" ? "not" : ""}">
    <button type="button" class="chip-text" title="${field} ${MEANING[operator]} — click: the opposite" onClick=${turn}>
      <bdi>${oneLine(field, 60)}</bdi> <i>${operator}</i> <b><bdi>${oneLine(value, 80) || "empty"}</bdi></b></button>
    <button type="button" aria-label="Remove ${oneLine(text, 60)}" onClick=${() => change({ where: without })}>
      <${Icon} path=${ICONS.close} size=${12} /></button>
  </li>`;
}

/** A condition of the URL may be damaged: it stands as it is, and the server says what is wrong with it. */
function readOr(text) {
  try {
    return parse(text);
  } catch {
    return { field: text, operator: "", value: "is no condition" };
  }
}

/**
 * An input with the grammar of `--where`, which suggests fields, operators and values, with how many of `query` they find.
 * `onAdd` gets all conditions.
 */
export function ConditionInput({ query, meta, onAdd, id = "where" }) {
  const conditions = query.where;
  const [text, setText] = useState("");
  const [error, setError] = useState("");
  const [at, setAt] = useState(-1);
  const [isOpen, setOpen] = useState(false);
  const offers = useOffers(text, meta, query);
  const isShown = isOpen && offers.length > 0;
  const type = (value) => { setText(value); setError(""); setAt(-1); setOpen(true); };
  const add = async (given) => {
    try {
      parse(given);
      const { field, operator, value } = parse((await fetchJson("condition", { text: given })).text);
      onAdd(withCondition(conditions, field, value, operator));
      type("");
      setOpen(false);
    } catch (problem) {
      setError(problem.message);
    }
  };
  const take = (offer) => (offer.isWhole ? add(offer.text) : type(offer.text));
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); setOpen(true); setAt((offers.length + Math.max(at, step < 0 ? 0 : -1) + step) % (offers.length || 1)); }
    else if (event.key === "Enter" && text.trim()) { event.preventDefault(); at >= 0 && isShown ? take(offers[at]) : add(text.trim()); }
    else if (event.key === "Tab" && at >= 0 && isShown) { event.preventDefault(); take(offers[at]); }
    else if (event.key === "Escape") { event.stopPropagation(); isShown ? setOpen(false) : event.target.blur(); }
    else if (event.key === "Backspace" && !text && conditions.length) onAdd(conditions.slice(0, -1));
  };
  return html`<div class="combo">
    <${Icon} path=${ICONS.filter} />
    <input id=${id} type="text" role="combobox" aria-expanded=${isShown} aria-controls="${id}-offers" aria-autocomplete="list"
      aria-activedescendant=${at >= 0 ? `${id}-offer-${at}` : undefined} aria-invalid=${Boolean(error)}
      aria-describedby=${error ? `${id}-error` : undefined} aria-label="Add a condition" placeholder="Filter: outcome=error, duration_s>1, url.path~/v1/"
      autocomplete="off" spellcheck=${false} value=${text} onInput=${(event) => type(event.target.value)} onKeyDown=${keys}
      onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} />
    <ul id="${id}-offers" role="listbox" aria-label="Suggestions" class="offers" hidden=${!isShown}>
      ${offers.map((offer, index) => html`<li key=${offer.text} id="${id}-offer-${index}" role="option"
        aria-selected=${index === at} onPointerDown=${(event) => { event.preventDefault(); take(offer); }}>
        <bdi>${oneLine(offer.text, 90)}</bdi><span>${offer.note}</span></li>`)}
    </ul>
    ${error && html`<p id="${id}-error" class="input-error" role="alert">${error}</p>`}
  </div>`;
}

const USUAL = ["outcome", "http.response.status_code", "http.route", "gen_ai.request.model", "tenant.id", "duration_s",
  "gen_ai.response.time_to_first_chunk", "k8s.pod.name", "error.type"];

/** Use what may follow a text: fields, then operators, then the most frequent values of the field. */
function useOffers(text, meta, query) {
  const [values, setValues] = useState({ of: "", list: [] });
  const match = /^([^=!<>~]+)(!=|<=|>=|=|<|>|~)(.*)$/s.exec(text);
  const [field, operator] = match ? [match[1].trim(), match[2]] : ["", ""];
  const of = field + operator;
  useEffect(() => {
    if (!field) return undefined;
    const abort = new AbortController();
    fetchJson("values", { q: { ...query, field, operator, limit: 50 } }, abort.signal).then(
      (list) => setValues({ of, list }),
      (error) => error.name === "AbortError" || setValues({ of, list: [] }),
    );
    return () => abort.abort();
  }, [of]);
  // A search in texts may end before all is read, so that nothing is promised of it.
  if (match) return values.of === of ? valueOffers(of, match[3], values.list, !query.text) : [];
  const typed = text.trim().toLowerCase();
  const all = meta?.fields ?? [];
  const named = typed ? all.filter(({ name }) => name.toLowerCase().includes(typed)) : all.filter(({ name }) => USUAL.includes(name));
  return named.slice(0, 12).map(({ name, meaning, type }) => ({ text: `${name}${isNumber(type) ? ">" : "="}`, note: meaning ?? "" }));
}

const isNumber = (type) => /^(BIGINT|DOUBLE|number|integer|float|int)$/i.test(type ?? "");

function valueOffers(of, value, list, isCounted) {
  const typed = value.trim().toLowerCase();
  return list.filter((one) => textOf(one.value).toLowerCase().includes(typed)).slice(0, 12).map((one) => ({
    text: `${of}${textOf(one.value)}`, note: isCounted && one.count !== null ? format(one.count, "1") : "", isWhole: true,
  }));
}

function TextSearch({ text }) {
  const [typed, setTyped] = useState(text);
  const timer = useRef(0);
  useEffect(() => setTyped(text), [text]);
  const type = (value) => {
    setTyped(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ text: value }, { replace: true }), 350);
  };
  return html`<div class="text-search"><${Icon} path=${ICONS.search} />
    <input id="text" type="search" aria-label="Search in the text of records" placeholder="Text in records and messages"
      autocomplete="off" value=${typed} onInput=${(event) => type(event.target.value)}
      onKeyDown=${(event) => event.key === "Escape" && event.target.blur()} /></div>`;
}

/** The choice of a range of time; `prefix` and `onChange` serve a second range on the same page. */
export function RangeMenu({ params, prefix = "", onChange = change }) {
  const names = ["range", "from", "to"].map((name) => `${prefix}${name}`);
  const set = (range, from, to) => onChange({ [names[0]]: range, [names[1]]: from, [names[2]]: to });
  return html`<${Menu} label=${rangeWords(params, prefix)} icon="clock" class="range" title="Range of time">
    ${(close) => html`<div class="range-panel">
      <div class="range-quick">
        ${Object.entries(RANGE_WORDS).map(([range, words]) => html`<button type="button" key=${range}
          aria-pressed=${params[names[0]] === range} onClick=${() => { set(range, "", ""); close(); }}>${words}</button>`)}
        <button type="button" aria-pressed=${names.every((name) => !params[name])} onClick=${() => { set("", "", ""); close(); }}>all time</button>
      </div>
      <${Exact} from=${params[names[1]]} to=${params[names[2]]} onSet=${(from, to) => { set("", from, to); close(); }} />
    </div>`}
  <//>`;
}

function rangeWords(params, prefix) {
  const [range, from, to] = ["range", "from", "to"].map((name) => params[`${prefix}${name}`]);
  if (RANGE_WORDS[range]) return RANGE_WORDS[range];
  const [begin, end] = [from, to].map((stamp) => { const ns = nanoseconds(stamp); return ns === null ? "" : brief(ns); });
  if (!begin && !end) return "all time";
  const isOneDay = begin && end && begin.slice(0, 10) === end.slice(0, 10);
  return `${begin || "begin"} – ${(isOneDay ? end.slice(11) : end) || "now"}`;
}

function Exact({ from, to, onSet }) {
  const show = (stamp) => { const ns = nanoseconds(stamp); return ns === null ? "" : brief(ns); };
  const [texts, setTexts] = useState([show(from), show(to)]);
  const [error, setError] = useState("");
  const apply = () => {
    const stamps = texts.map((text) => (text.trim() ? readTime(text) : ""));
    if (stamps.includes(null)) setError("A time looks like 2026-11-21 05:00:00.");
    else if (stamps[0] && stamps[1] && stamps[0] >= stamps[1]) setError("The begin must be before the end.");
    else onSet(...stamps);
  };
  return html`<div class="range-exact" onKeyDown=${(event) => { if (event.key === "Enter" && event.target.tagName === "INPUT") { event.preventDefault(); apply(); } }}>
    ${["From", "To"].map((label, at) => html`<label key=${label}>${label}
      <input type="text" placeholder=${stampOf(BigInt(Date.now()) * 1000000n).slice(0, 19).replace("T", " ")} value=${texts[at]}
        aria-invalid=${Boolean(error)} onInput=${(event) => setTexts(texts.map((text, index) => (index === at ? event.target.value : text)))} /></label>`)}
    ${error && html`<p class="input-error" role="alert">${error}</p>`}
    <button type="button" class="primary" onClick=${apply}>Apply</button>
  </div>`;
}
