// What every plot has: a legend whose entries switch series, a tip beside the pointer, the same words for the keyboard
// and screen readers, a size that follows the container, and colours that follow the page's tokens.

import { safe } from "./format.js";

/** Where plots lie below each other: the room beside each, so that one time is in one place in all of them. */
export const ROOM = { left: 74, right: 50 };
const PALETTE = ["first", "second", "third", "fourth", "fifth", "sixth"];
const painters = new Set();
let watching = false;

/** Return the colour of a token ("first"), or the colour itself where there is no such token. */
export function paint(colour) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${colour}`).trim() || colour;
}

/** Return the token of the series at `index`. */
export function colourOf(series, index) {
  return series.colour ?? PALETTE[index % PALETTE.length];
}

/** Return a stranger's text as an element: safe to show, and in its own direction. */
export function isolated(text) {
  const element = document.createElement("bdi");
  element.textContent = safe(text);
  return element;
}

/** Make an element with a class and children. */
export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Call `repaint` whenever light and dark change; return what ends that. */
export function onScheme(repaint) {
  painters.add(repaint);
  if (!watching) {
    watching = true;
    const all = () => painters.forEach((one) => one());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
    new MutationObserver(all).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }
  return () => painters.delete(repaint);
}

/** The parts of a plot within `element`, without what is drawn. */
export class Frame {
  constructor(element, kind, label) {
    this.root = make("div", "plot");
    this.root.dataset.kind = kind;
    this.legend = make("div", "plot-legend");
    this.area = make("div", "plot-area");
    this.area.tabIndex = 0;
    this.area.setAttribute("role", "group");
    this.area.setAttribute("aria-roledescription", "plot");
    this.tip = make("div", "plot-tip");
    this.tip.hidden = true;
    this.live = make("div", "unseen");
    this.live.setAttribute("role", "status");
    this.root.append(this.legend, this.area, this.tip, this.live);
    this.hidden = new Set();
    this.name(label);
    element.replaceChildren(this.root);
    this.area.addEventListener("blur", () => this.hideTip());
    this.area.addEventListener("mouseleave", () => this.hideTip());
  }

  /** Set what the plot is called. */
  name(label) {
    this.area.setAttribute("aria-label", `${safe(label || "Plot")}; arrow keys read the values`);
  }

  /** Show an entry for each series: pressed where it is drawn. `onToggle` is called after a change. */
  showLegend(series, onToggle, onHover = () => {}) {
    const key = JSON.stringify(series.map((one, index) => [one.name, colourOf(one, index)]));
    if (this.legendKey === key) return;
    this.legendKey = key;
    this.legend.hidden = series.length < 2;
    this.legend.replaceChildren(...(series.length < 2 ? [] : series.map((one, index) => {
      const button = make("button", "", this.swatch(colourOf(one, index)), isolated(one.name));
      button.type = "button";
      button.setAttribute("aria-pressed", String(!this.hidden.has(one.name)));
      button.addEventListener("click", () => {
        const shows = this.hidden.delete(one.name) || !this.hidden.add(one.name);
        button.setAttribute("aria-pressed", String(shows));
        onToggle();
      });
      button.addEventListener("mouseenter", () => onHover(index));
      button.addEventListener("mouseleave", () => onHover(null));
      return button;
    })));
  }

  /** Return a mark in the colour of a series, which stays right when light and dark change. */
  swatch(colour) {
    const mark = make("span", "plot-swatch");
    mark.style.background = `var(--${colour}, ${CSS.supports("color", colour) ? colour : "currentColor"})`;
    return mark;
  }

  /** Show a tip at a place in the area: a heading, and rows of name, value and colour. */
  showTip(left, top, head, rows, { spoken = false } = {}) {
    this.tip.replaceChildren(make("div", "plot-tip-head", isolated(head)), ...rows.map((row) =>
      make("div", "plot-tip-row", ...(row.colour ? [this.swatch(row.colour)] : []), isolated(row.name),
        make("b", "", row.value))));
    this.tip.hidden = false;
    const across = this.root.clientWidth - this.tip.offsetWidth;
    const beside = left + 14 > across ? left - this.tip.offsetWidth - 14 : left + 14;
    const below = this.area.offsetTop + Math.max(0, Math.min(top, this.area.clientHeight - this.tip.offsetHeight));
    this.tip.style.transform = `translate(${Math.max(0, Math.min(beside, across))}px, ${below}px)`;
    if (spoken) this.live.textContent = safe([head, ...rows.map((row) => `${row.name} ${row.value}`)].join("; "));
  }

  /** Hide the tip. */
  hideTip() {
    this.tip.hidden = true;
  }

  /** Say in words that there is nothing to draw, or that there is again. */
  showEmpty(isEmpty) {
    this.empty ??= make("p", "plot-empty", "No data.");
    if (isEmpty) this.root.insertBefore(this.empty, this.area);
    else this.empty.remove();
    this.area.hidden = isEmpty;
  }
}

/** Call `resize(width)` when the element's width changes; return what ends that. */
export function onResize(element, resize) {
  let width = element.clientWidth;
  const observer = new ResizeObserver(() => {
    if (element.clientWidth === width || !element.clientWidth) return;
    width = element.clientWidth;
    resize(width);
  });
  observer.observe(element);
  return () => observer.disconnect();
}
