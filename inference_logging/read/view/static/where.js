// Conditions on records, in the grammar of `--where`: `outcome=error`, `duration_s>1`, `url.path~/v1/`.

const FORM = /^([^=!<>~]+)(!=|<=|>=|=|<|>|~)(.*)$/s;

export const MEANING = {
  "=": "equal", "!=": "not equal or absent", "<": "less", "<=": "less or equal", ">": "more", ">=": "more or equal",
  "~": "contains",
};

/** Read `FIELD OPERATOR VALUE`; throws an Error whose message names what is wrong. */
export function parse(text) {
  const match = FORM.exec(text);
  if (!match || !match[1].trim()) {
    throw new Error(`“${text.slice(0, 80)}”: must be FIELD, one of = != < <= > >= ~, and VALUE`);
  }
  return { field: match[1].trim(), operator: match[2], value: match[3].trim() };
}

/** Print a condition; a value that begins with =, > or ~ has a space before it, since ==, => and =~ are refused as mistakes. */
export function print({ field, operator, value }) {
  return `${field}${operator}${/^[=>~]/.test(value) ? " " : ""}${value}`;
}

/** Return the conditions with one more; what it contradicts or repeats goes. */
export function withCondition(conditions, field, value, operator = "=") {
  const other = operator === "=" ? "!=" : "=";
  const added = print({ field, operator, value });
  const kept = conditions.filter((one) => one !== added && one !== print({ field, operator: other, value }));
  return [...kept, added];
}

/** Return the condition with the opposite meaning, where there is one. */
export function inverted(text) {
  if (!FORM.test(text)) return text;
  const { field, operator, value } = parse(text);
  const opposite = { "=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">" }[operator];
  return opposite ? print({ field, operator: opposite, value }) : text;
}

/** Return whether a value can stand in a condition as it is. */
export function canFilter(value) {
  const isPlain = ["string", "number", "boolean"].includes(typeof value);
  const text = String(value);
  return isPlain && text.length <= 500 && text === text.trim() && !/[\u0000-\u001f]/.test(text);
}

/** Print a command of the shell that shows the same records. */
export function asCommand(conditions, directory = "logs", trace = "") {
  const quoted = (text) => (/^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
  const parts = conditions.map((one) => `--where ${quoted(one)}`);
  if (trace) parts.push(`--trace ${quoted(trace)}`);
  return ["inference-logging tail", quoted(directory), ...parts].join(" ");
}
