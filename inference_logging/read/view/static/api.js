// The server's answers. Every request is a GET below this page's own address, which holds the token.

import { useEffect, useRef, useState } from "./pages/vendor/htm/standalone.module.js";

/** An answer that is an error; `status` is 0 where no answer came. */
class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Print a query as JSON. Nanoseconds are text here and integers there, since a number of JavaScript would round them. */
function encodeQuery(query) {
  const given = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined && value !== ""));
  return JSON.stringify(given).replace(/"(from_ns|to_ns)":"(\d+)"/g, '"$1":$2');
}

/** Return the relative address of an answer; objects among `params` are queries. */
export function address(path, params = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null) continue;
    search.set(name, typeof value === "object" ? encodeQuery(value) : value);
  }
  const text = search.toString();
  return `api/${path}${text ? `?${text}` : ""}`;
}

/** Fetch an answer; throws an ApiError whose message can be shown. */
export async function fetchJson(path, params, signal) {
  return fetchAddress(address(path, params), signal);
}

async function fetchAddress(where, signal) {
  let answer;
  try {
    answer = await fetch(where, { signal, headers: { accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Does `inference-logging view` still run?", 0);
  }
  let body = null;
  try {
    body = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!answer.ok || body === null) {
    throw new ApiError(body?.error ?? `The server answered ${answer.status} without a reason.`, answer.status);
  }
  return body;
}

/**
 * Use an answer: `{data, error, isLoading, reload}`. The last answer stays while the next one comes. `where` null asks
 * nothing. `everyMs` asks again so long after each answer; a function of the answer may return 0 to stop.
 */
export function useAnswer(where, everyMs = 0) {
  const [state, set] = useState({ data: null, error: null, where: null });
  const [turn, setTurn] = useState(0);
  const timer = useRef(0);
  useEffect(() => {
    if (where === null) return undefined;
    const abort = new AbortController();
    const again = (data) => {
      const ms = typeof everyMs === "function" ? everyMs(data) : everyMs;
      // A page that nobody looks at does not ask.
      const tick = () => (document.hidden ? wait() : setTurn((number) => number + 1));
      const wait = () => { timer.current = setTimeout(tick, ms); };
      if (ms && !abort.signal.aborted) wait();
    };
    fetchAddress(where, abort.signal).then(
      (data) => { set({ data, error: null, where }); again(data); },
      (error) => {
        if (error.name === "AbortError") return;
        set((old) => ({ data: old.where === where ? old.data : null, error, where }));
        again(null);
      },
    );
    return () => { abort.abort(); clearTimeout(timer.current); };
  }, [where, turn]);
  const isLoading = where !== null && state.where !== where;
  return { data: state.data, error: isLoading ? null : state.error, isLoading, reload: () => setTurn(turn + 1) };
}
