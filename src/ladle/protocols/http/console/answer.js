// An answer as a table and as a chart.

import { bars, chart } from "./charts.js";
import { count, moment } from "./format.js";
import { h } from "./dom.js";

const ROWS_SHOWN = 500;
const SERIES_MAX = 6;
const BARS_MAX = 40;
const POINTS_MAX = 5_000;
const NUMERIC = /^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)/;
const TIME = /^(TIMESTAMP|DATE)/;
const isNumber = ({ type }) => NUMERIC.test(type);
const isTime = ({ type }) => TIME.test(type);

/**
 * A scrolling table; `marked` has a class for rows that came or went just now. More rows are shown when they are asked
 * for: first those that are here, then, of an answer with more than these, what `fetchMore` brings.
 */
export function table(label, columns, rows, { marked = new Map(), none = "No rows.", step = ROWS_SHOWN, total, fetchMore } = {}) {
  if (!rows.length) return h("p", { class: "none" }, none);
  const head = columns.map((column) =>
    h("th", { scope: "col", class: isNumber(column) && "number", title: column.type }, column.name),
  );
  const body = h("tbody");
  const more = h("button", { type: "button", click: () => (shown < rows.length ? fill() : fetchMore()) });
  const element = h(
    "div",
    {},
    // Focusable, because what scrolls must scroll from the keyboard too.
    h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label },
      h("table", {}, h("thead", {}, h("tr", {}, head)), body)),
    more,
  );
  let shown = 0;
  function fill() {
    const upto = Math.min(shown + step, rows.length);
    for (; shown < upto; shown++) {
      const cells = columns.map((column) => cell(column, rows[shown][column.name]));
      body.append(h("tr", { class: marked.get(rows[shown]) }, cells));
    }
    more.hidden = shown >= rows.length && !fetchMore;
    more.textContent = `Show more: ${count((total ?? rows.length) - shown)} left`;
  }
  fill();
  return element;
}

function cell(column, value) {
  if (value === null || value === undefined) return h("td", { class: "null" }, "NULL");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (!isTime(column)) return h("td", { class: isNumber(column) && "number" }, text);
  return h("td", { class: "time" }, text.replace("T", " ").replace(/\.0+(?=Z|$)/, ""));
}

/** The first numeric columns against time, as lines, or against a category, as bars. */
export function picture(label) {
  const place = h("div", { class: "answer-chart" });
  const lines = chart(260);
  const rest = h("p", { class: "hint" });
  return {
    element: place,
    draw(columns, rows, total = rows.length) {
      const time = columns.find(isTime);
      const numbers = columns.filter(isNumber);
      if (!rows.length || !numbers.length) {
        const why = rows.length ? "A chart needs a column of numbers." : "No rows.";
        place.replaceChildren(h("p", { class: "none" }, why));
      } else if (time) {
        const category = columns.find((column) => !isTime(column) && !isNumber(column));
        const series = overTime(rows.slice(0, POINTS_MAX), time, category, numbers);
        lines.draw({ kind: "line", label, series, x: { time: true }, named: true });
        if (lines.element.parentNode !== place) place.replaceChildren(lines.element, rest);
        rest.textContent = firstOf(Math.min(POINTS_MAX, rows.length), total);
      } else {
        place.replaceChildren(...byCategory(label, columns, rows, numbers, total));
      }
    },
  };
}

/** A line for each number; or, where a time comes more than once, one for each category with the first number. */
function overTime(rows, time, category, numbers) {
  const at = (row) => moment(row[time.name]);
  const line = (name, some, number) => ({
    name,
    points: some
      .filter((row) => row[time.name] !== null && row[number.name] !== null)
      .map((row) => [at(row), Number(row[number.name])])
      .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y))
      .sort((a, b) => a[0] - b[0]),
  });
  const repeated = new Set(rows.map((row) => row[time.name])).size < rows.length;
  if (!category || !repeated) return numbers.slice(0, SERIES_MAX).map((number) => line(number.name, rows, number));
  const groups = Map.groupBy(rows, (row) => String(row[category.name]));
  // In the order of names: a colour stays with its category when the next answer comes in another order.
  const names = [...groups.keys()].sort().slice(0, SERIES_MAX);
  return names.map((name) => line(name, groups.get(name), numbers[0]));
}

function byCategory(label, columns, rows, numbers, total) {
  const category = columns.find((column) => !isNumber(column)) ?? (numbers.length > 1 ? numbers[0] : null);
  const values = numbers.filter((number) => number !== category).slice(0, 4);
  const some = rows.slice(0, BARS_MAX);
  const names = some.map((row, index) => (category ? String(row[category.name]) : `row ${index + 1}`));
  // Each with a scale of its own: a count and a price have none in common.
  const drawn = values.map(({ name }, index) => bars(name, names, some.map((row) => Number(row[name] ?? NaN)), index));
  const rest = h("p", { class: "hint" }, firstOf(some.length, total));
  return [h("div", { class: "cards small", role: "group", "aria-label": label }, drawn), rest];
}

const firstOf = (drawn, total) => (drawn < total ? `The first ${count(drawn)} of ${count(total)} rows.` : "");

/** What an answer says about itself. */
export function summary(answer) {
  const total = answer.rows_total ?? answer.rows.length;
  return `${count(total)} ${total === 1 ? "row" : "rows"} · epoch ${count(answer.epoch)}`;
}
