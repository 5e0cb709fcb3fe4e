// The state of the page is its URL: `#/requests?where=outcome%3Derror&open=KEY`. Sharing and the back button follow.

import { useEffect, useState } from "./pages/vendor/htm/standalone.module.js";

export const PAGES = ["requests", "overview", "compare", "logging"];
const LISTS = new Set(["where", "a.where", "b.where"]);

/** Read a hash: `{page, key, params}`; an unknown page is the list of requests. */
function parseHash(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [page, ...rest] = path.split("/");
  const params = {};
  for (const [name, value] of new URLSearchParams(search)) {
    if (LISTS.has(name)) (params[name] ??= []).push(value);
    else params[name] = value;
  }
  const key = page === "request" ? decoded(rest.join("/")) : "";
  return { page: key ? "request" : PAGES.includes(page) ? page : "requests", key, params };
}

/** Print a route as a hash. Empty values are left out. */
function printHash({ page, key, params }) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") search.append(name, one);
    }
  }
  const path = key && page === "request" ? `request/${encodeURIComponent(key)}` : page;
  const text = search.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return the route of now. */
export function route() {
  return parseHash(location.hash);
}

/** Return the hash of the route of now with other params, and with another page where one is given. */
export function linkTo(patch, page, key) {
  const now = route();
  return printHash({ page: page ?? now.page, key: key ?? now.key, params: { ...now.params, ...patch } });
}

/** Go there. `replace` leaves no entry in the history: for what is typed or dragged. */
export function go(hash, { replace = false } = {}) {
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
  dispatchEvent(new Event("view:route"));
}

/** Change params of the route of now. */
export function change(patch, options) {
  go(linkTo(patch), options);
}

/** Use the route: draws again when it changes. */
export function useRoute() {
  const [now, set] = useState(route);
  useEffect(() => {
    const update = () => set(route());
    const names = ["hashchange", "popstate", "view:route"];
    for (const name of names) addEventListener(name, update);
    update();
    return () => names.forEach((name) => removeEventListener(name, update));
  }, []);
  return now;
}
