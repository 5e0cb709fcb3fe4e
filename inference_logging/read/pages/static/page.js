// What a page does where scripts run: draws its plots, sorts and filters its tables, switches between light and dark.

import { make } from "./plot_frame.js";
import { draw } from "./plots.js";

const LEAST_ROWS_TO_FILTER = 6;
const FACTORS = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, KiB: 2 ** 10, MiB: 2 ** 20,
  GiB: 2 ** 30, TiB: 2 ** 40 };

/** Return a number to sort a cell's text by; null for words. */
function sortable(text) {
  const [, sign, digits, unit] = /^[<>]? ?([-−]?)([\d,]+(?:\.\d+)?(?:e[-+]?\d+)?) ?([^\s\d/]*)/.exec(text.trim()) ?? [];
  if (digits === undefined) return null;
  return (sign ? -1 : 1) * Number(digits.replaceAll(",", "")) * (FACTORS[unit] ?? 1);
}

function show(figure) {
  const { kind, label, data, views } = JSON.parse(figure.querySelector("script").textContent);
  const names = Object.keys(views);
  let [shown, isLog] = [names[0], Boolean(data.log)];
  const current = () => ({ label, ...data, ...(views[shown] ?? {}),
    ...(kind === "distribution" || kind === "heatmap" ? {} : { log: isLog }) });
  const drawn = figure.querySelector(".drawn");
  const plot = draw(kind, drawn, current());
  const choices = make("div", "choices");
  if (names.length > 1) {
    choices.append(group("Views", names, () => shown, (name) => { shown = name; plot.update(current()); }));
  }
  if (data.log !== undefined && kind !== "distribution" && kind !== "heatmap") {
    choices.append(group("Axis", ["logarithmic", "linear"], () => (isLog ? "logarithmic" : "linear"),
      (name) => { isLog = name === "logarithmic"; plot.update(current()); }));
  }
  if (choices.children.length) figure.prepend(choices);
  figure.querySelector(".words").open = false;
}

function group(label, names, chosen, choose) {
  const buttons = names.map((name) => {
    const button = make("button", "", name);
    button.type = "button";
    button.addEventListener("click", () => { choose(name); press(); });
    return button;
  });
  const press = () => buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(names[at] === chosen())));
  press();
  const element = make("div", "", ...buttons);
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", label);
  return element;
}

function sorts(table) {
  const heads = [...table.querySelectorAll("thead th")];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = make("button", "", ...head.childNodes);
    button.type = "button";
    if (!button.textContent) button.setAttribute("aria-label", "Name");
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      // Figures are wanted from the greatest, names from A.
      const first = column ? "descending" : "ascending";
      const next = head.getAttribute("aria-sort") === first ? (column ? "ascending" : "descending") : first;
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", next);
      body.append(...ordered([...body.rows], column, next === "ascending" ? 1 : -1));
    });
  });
}

function ordered(rows, column, direction) {
  const keyed = rows.map((row) => {
    const text = row.cells[column]?.firstChild?.textContent ?? "";
    return { row, text, number: column ? sortable(text) : null };
  });
  return keyed.sort((a, b) => {
    if (a.number !== null && b.number !== null) return direction * (a.number - b.number);
    if (a.number !== null || b.number !== null) return a.number === null ? 1 : -1;
    return direction * a.text.localeCompare(b.text, "en", { numeric: true });
  }).map(({ row }) => row);
}

function filters(table) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < LEAST_ROWS_TO_FILTER) return;
  const input = make("input", "");
  input.type = "search";
  const count = make("span", "");
  count.setAttribute("role", "status");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase().split(/\s+/);
    rows.forEach((row) => { row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word)); });
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  });
  const label = make("label", "", "Filter rows: ", input);
  table.parentElement.before(make("div", "filter", label, count));
}

function themes() {
  const button = make("button", "", "");
  button.type = "button";
  button.id = "theme";
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; show(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  document.querySelector("main").prepend(button);
}

themes();
document.querySelectorAll("main table").forEach((table) => { sorts(table); filters(table); });
document.querySelectorAll("main figure").forEach(show);
document.documentElement.dataset.ready = "true";
