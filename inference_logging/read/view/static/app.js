// The application: header, pages by the URL, the keys that work everywhere.

import { html, render, useEffect, useErrorBoundary, useMemo, useReducer, useRef, useState } from "./pages/vendor/htm/standalone.module.js";
import { useAnswer } from "./api.js";
import { ComparePage } from "./compare.js";
import { Help, listen, useKeys } from "./keys.js";
import { LoggingPage } from "./logging.js";
import { OverviewPage } from "./overview.js";
import { Failure, Icon, ICONS, Loading, Notices } from "./parts.js";
import { RequestPage } from "./request.js";
import { RequestsPage } from "./requests.js";
import { keep, kept, nextTheme, onSettings, theme } from "./settings.js";
import { go, linkTo, PAGES, useRoute } from "./state.js";
import { oneLine } from "./text.js";
import { format } from "./pages/format.js";

const TITLES = { requests: "Requests", overview: "Overview", compare: "Compare", logging: "Logging", request: "Request" };
const VIEWS = { requests: RequestsPage, overview: OverviewPage, compare: ComparePage, logging: LoggingPage, request: RequestPage };

function App() {
  const { page, key, params } = useRoute();
  const [, draw] = useReducer((number) => number + 1, 0);
  const [isHelp, setHelp] = useState(false);
  const answer = useAnswer("api/meta");
  const progress = useProgress(answer.data?.progress);
  const meta = useMeta(answer.data, progress);
  const now = useServerTime(answer.data);
  useEffect(() => onSettings(draw), []);
  useEffect(() => { document.title = `${TITLES[page]} · inference-logging view`; }, [page]);
  useGlobalKeys(() => setHelp(true));
  const View = VIEWS[page];
  return html`<${Header} page=${page} progress=${progress} onHelp=${() => setHelp(true)} />
    <main id="main" class="page-${page}">
      <h1 class="unseen">${TITLES[page]}</h1>
      ${answer.error && !meta ? html`<${Failure} error=${answer.error} what="The description of this folder" retry=${answer.reload} />`
        : !meta ? html`<${Loading} what="the folder" />`
          : html`<${Guarded} key=${page + key}><${View} recordKey=${key} params=${params} meta=${meta} now=${now} /><//>`}
    </main>
    <${Notices} />
    ${isHelp && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

/** A page that cannot be drawn says so, and the others still work. */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  return error ? html`<${Failure} error=${error} what="This page" retry=${reset} />` : children;
}

function useMeta(data, progress) {
  const byName = useMemo(() => new Map((data?.fields ?? []).map((field) => [field.name, field])), [data]);
  return useMemo(() => data && { ...data, progress, byName }, [data, progress?.done]);
}

/** Use the clock of the server, by the difference at the first answer. */
function useServerTime(data) {
  const difference = useRef(0n);
  useEffect(() => { if (data?.now_ns) difference.current = BigInt(data.now_ns) - BigInt(Date.now()) * 1000000n; }, [data]);
  return () => String(BigInt(Date.now()) * 1000000n + difference.current);
}

/** Use how far the index is; asked for each second until it is done, then twice a minute. */
function useProgress(begin) {
  const { data } = useAnswer(begin ? "api/progress" : null, (now) => (now?.done === false ? 1000 : 30_000));
  return data ?? begin;
}

function useGlobalKeys(help) {
  const focus = (id) => () => {
    const field = document.getElementById(id);
    if (!field) return false;
    field.focus();
    field.select();
    return true;
  };
  useKeys({
    "/": focus("where"), t: focus("text"), "?": help,
    "g r": () => go(linkTo({ open: "" }, "requests", "")), "g o": () => go(linkTo({ open: "" }, "overview", "")),
    "g c": () => go(linkTo({ open: "" }, "compare", "")), "g l": () => go(linkTo({ open: "" }, "logging", "")),
  });
}

function Header({ page, progress, onHelp }) {
  const current = page === "request" ? "requests" : page;
  const zone = kept("zone", "utc");
  return html`<header class="top">
    <a class="skip" href="#main" onClick=${skip}>Skip to the page</a>
    <a class="brand" href=${linkTo({}, "requests", "")} title="inference-logging view"><svg width="20" height="20" viewBox="0 0 16 16" aria-hidden="true">
      <path d="M2 4h9M2 8h12M2 12h6" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" /></svg><span>inference-logging</span></a>
    <nav aria-label="Pages"><ul>${PAGES.map((name) => html`<li key=${name}><a href=${linkTo({ open: "" }, name, "")} aria-current=${name === current ? "page" : undefined}>${TITLES[name]}</a></li>`)}</ul></nav>
    <${Progress} progress=${progress} />
    <div class="top-tools">
      <button type="button" class="tool zone" title="Times in UTC or in this computer's zone" onClick=${() => keep("zone", zone === "utc" ? "local" : "utc")}>${zone === "utc" ? "UTC" : "local"}</button>
      <button type="button" class="tool" aria-label="Theme: ${theme()}" title="Theme: ${theme()}" onClick=${nextTheme}><${Icon} path=${ICONS[theme()]} /></button>
      <button type="button" class="tool" aria-label="Keyboard help" title="Keyboard (?)" onClick=${onHelp}><b aria-hidden="true">?</b></button>
    </div>
  </header>`;
}

function skip(event) {
  // The hash is the page's state, so the link moves the focus itself.
  event.preventDefault();
  const main = document.querySelector(".grid") ?? document.getElementById("main");
  main.tabIndex = Math.max(main.tabIndex, -1);
  main.focus();
}

function Progress({ progress }) {
  if (!progress) return null;
  const problems = progress.problems ?? [];
  const words = `${progress.indexed_segments} of ${progress.segments} segments, ${format(progress.indexed_bytes, "B")} of ${format(progress.bytes, "B")}`;
  return html`<div class="progress">
    ${!progress.done && html`<label class="progress-index" title=${words}><span>Indexing ${format(progress.indexed_bytes, "B")} of ${format(progress.bytes, "B")}</span>
      <progress max=${progress.bytes || 1} value=${progress.indexed_bytes}></progress></label>`}
    ${problems.length > 0 && html`<details class="problems"><summary>${problems.length} ${problems.length === 1 ? "problem" : "problems"}</summary>
      <ul>${problems.map((text) => html`<li>${oneLine(String(text), 600)}</li>`)}</ul></details>`}
  </div>`;
}

listen();
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
