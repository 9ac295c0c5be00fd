// A textarea with line numbers, colours and a mark where the server found an error.
//
// The text that is typed is the textarea's own, so that everything people and their tools expect of one works; its
// letters are transparent, and what is seen lies below it, in the same font at the same place.

import { freshId, h, showError } from "./dom.js";

const KEPT = "ladle-sql";
const COLOURED_MAX = 50_000;
const ROWS = { min: 8, max: 24 };
const KEYWORDS = new Set(
  `ADD ADVANCE AFTER AHEAD ALL ALTER ANALYZE AND AS ASC BEGIN BETWEEN BY CASE CAST COLUMN CREATE CROSS DAY DAYS DELETE DESC DESCRIBE
  DISTINCT DROP DSTREAM ELSE END EXCEPT EXISTS EXPLAIN FALSE FOREVER FROM FULL FUNCTION GRANT GROUP HAVING HOUR HOURS IDLE IF IN INNER
  INSERT INTERSECT INTERVAL INTO IS ISTREAM JOIN LANDMARK LATENESS LEFT LIKE LIMIT MAX MINUTE MINUTES NEVER NOT NOW NULL ON OR ORDER OUTER QUERY
  REPLACE RETAIN REVOKE RIGHT RSTREAM SECOND SECONDS SELECT SET SHOW SINCE STREAM STREAMS SUBSCRIBE TABLE TABLES THEN TIMESTAMP TO TRUE
  UNBOUNDED UNION UPDATE USING VALUES WHEN WHERE WITH QUERIES TOKEN ROLE`.split(/\s+/),
);
const TOKENS = /(--[^\n]*|\/\*[^]*?(?:\*\/|$))|('(?:[^']|'')*'?)|(`[^`]*`?)|(\b\d+(?:\.\d+)?\b)|([A-Za-z_]\w*)|([^])/g;

/** What is in the editor stays there while other views are looked at; these may also put something in. */
export const keptText = () => sessionStorage.getItem(KEPT);
export const keepText = (text) => sessionStorage.setItem(KEPT, text);

export function editor(label, text, { run, changed }) {
  const problem = h("p", { class: "notice bad", role: "alert", hidden: true, id: freshId("problem") });
  const area = h("textarea", {
    "aria-label": label,
    "aria-describedby": problem.id,
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    wrap: "off",
    rows: ROWS.min,
    value: text,
  });
  const numbers = h("pre", { class: "gutter", "aria-hidden": "true" });
  const colours = h("pre", { class: "colours" });
  const marks = h("pre", { class: "marks" });
  const below = h("div", { class: "below", "aria-hidden": "true" }, marks, colours);
  const element = h("div", {}, h("div", { class: "editor" }, numbers, h("div", { class: "page" }, below, area)), problem);
  let errorLine = 0;

  function show() {
    const lines = area.value.split("\n").length;
    area.rows = Math.min(Math.max(lines + 1, ROWS.min), ROWS.max);
    const each = Array.from({ length: lines }, (_, i) => h("span", { class: i + 1 === errorLine && "bad" }, `${i + 1}\n`));
    numbers.replaceChildren(...each);
    const plain = area.value.length > COLOURED_MAX;
    area.classList.toggle("plain", plain);
    colours.replaceChildren(...(plain ? [] : coloured(area.value)));
    scroll();
  }

  function scroll() {
    for (const layer of [colours, marks]) layer.style.transform = `translate(${-area.scrollLeft}px, ${-area.scrollTop}px)`;
    numbers.style.transform = `translateY(${-area.scrollTop}px)`;
  }

  function mark(error) {
    showError(problem, error);
    area.setAttribute("aria-invalid", Boolean(error));
    errorLine = error?.position?.line ?? 0;
    marks.replaceChildren();
    if (error?.position) {
      const [from, upto] = word(area.value, error.position);
      const found = h("mark", {}, area.value.slice(from, upto) || " ");
      marks.append(area.value.slice(0, from), found);
      const go = () => {
        area.focus();
        area.setSelectionRange(from, upto);
      };
      problem.append(" ", h("button", { type: "button", class: "quiet", click: go }, "Go there"));
    }
    show();
  }

  area.addEventListener("input", () => {
    if (errorLine || !problem.hidden) mark(null);
    show();
    changed(area.value);
  });
  area.addEventListener("scroll", scroll);
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run();
  });
  show();
  return { element, area, mark, get text() { return area.value; } };
}

function coloured(text) {
  const parts = [];
  let plain = "";
  for (const [token, comment, string, quoted, number, name] of text.matchAll(TOKENS)) {
    const kind =
      (comment && "comment") || (string && "string") || (quoted && "name") || (number && "digits") ||
      (name && KEYWORDS.has(name.toUpperCase()) && "keyword");
    if (!kind) {
      plain += token;
      continue;
    }
    if (plain) parts.push(plain);
    plain = "";
    parts.push(h("span", { class: `t-${kind}` }, token));
  }
  parts.push(`${plain}\n`);
  return parts;
}

/** Offsets of the word at a position. The server counts characters from one; JavaScript's strings count halves of some. */
function word(text, { line, column }) {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  const within = [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
  const from = Math.min(before + within, text.length);
  const found = /^(?:\w+|`[^`]*`|'[^'\n]*'|[^\s])/.exec(text.slice(from, from + 300));
  return [from, from + (found ? found[0].length : 0)];
}
