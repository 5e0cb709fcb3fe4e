// The chooser of columns: those of the list in their order, and every other field by name.

import { html, useState } from "./pages/vendor/htm/standalone.module.js";
import { COLUMNS } from "./columns.js";
import { Icon, ICONS, Menu } from "./parts.js";
import { keep } from "./settings.js";
import { change } from "./state.js";
import { oneLine } from "./text.js";

export function ColumnMenu({ columns, meta }) {
  const ids = columns.map((column) => column.id);
  return html`<${Menu} label="Columns" icon="columns" title="Choose columns" align="right" class="optional">
    ${() => html`<${Chooser} ids=${ids} meta=${meta} />`}
  <//>`;
}

function set(ids) {
  keep("columns", ids);
  const isUsual = ids.join() === COLUMNS.map((column) => column.id).join();
  change({ columns: isUsual ? "" : ids.join(",") }, { replace: true });
}

function Chooser({ ids, meta }) {
  const [typed, setTyped] = useState("");
  const toggle = (id) => set(ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id]);
  const move = (id, step) => {
    const at = ids.indexOf(id);
    const to = at + step;
    if (to < 0 || to >= ids.length) return;
    const next = [...ids];
    [next[at], next[to]] = [next[to], next[at]];
    set(next);
  };
  const known = new Set(COLUMNS.flatMap((column) => [column.id, ...(column.fields.length === 1 ? column.fields : [])]));
  const more = meta.fields.map(({ name }) => name).filter((name) => !known.has(name) && !ids.includes(name) && name.includes(typed.trim()));
  const label = (id) => COLUMNS.find((column) => column.id === id)?.label ?? id;
  return html`<div class="chooser">
    <ul aria-label="Columns of the list">${ids.map((id) => html`<li key=${id}>
      <label><input type="checkbox" checked onChange=${() => toggle(id)} disabled=${ids.length === 1} />${oneLine(label(id), 60)}</label>
      <button type="button" class="icon-button" aria-label="Move ${label(id)} to the left" onClick=${() => move(id, -1)}><${Icon} path=${ICONS.up} size=${12} /></button>
      <button type="button" class="icon-button" aria-label="Move ${label(id)} to the right" onClick=${() => move(id, 1)}><${Icon} path=${ICONS.down} size=${12} /></button>
    </li>`)}</ul>
    <input type="search" aria-label="Find a field" placeholder="Find a field" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
    <ul class="chooser-more" aria-label="Other fields">
      ${COLUMNS.filter((column) => !ids.includes(column.id)).map((column) => html`<li key=${column.id}><label>
        <input type="checkbox" checked=${false} onChange=${() => toggle(column.id)} />${column.label}</label></li>`)}
      ${more.slice(0, 60).map((name) => html`<li key=${name}><label>
        <input type="checkbox" checked=${false} onChange=${() => toggle(name)} /><bdi>${oneLine(name, 60)}</bdi></label></li>`)}
    </ul>
    <button type="button" class="link" onClick=${() => set(COLUMNS.map((column) => column.id))}>The usual columns</button>
  </div>`;
}
