// What a person prefers, kept in this browser: theme, time zone, columns.

const listeners = new Set();

/** Return a kept value, or `otherwise`. */
export function kept(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`view.${name}.v1`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Keep a value, and let the page draw itself again. */
export function keep(name, value) {
  try {
    localStorage.setItem(`view.${name}.v1`, JSON.stringify(value));
  } catch {
    // A browser without storage forgets it at the next visit.
  }
  for (const listener of listeners) listener();
}

/** Call `listener` after each change; returns the function that ends it. */
export function onSettings(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Return `light`, `dark` or `auto`. */
export function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

/** Take the next of auto, light and dark. */
export function nextTheme() {
  const next = { auto: "light", light: "dark", dark: "auto" }[theme()];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("view.theme", next);
  } catch {
    // As above.
  }
  for (const listener of listeners) listener();
}
