// One stream: its figures over time, the eddy's tickets, its columns, and what could not be taken in.

import { at, get, post } from "./api.js";
import { table } from "./answer.js";
import { chart } from "./charts.js";
import { bytes, compact, duration, percent, rate } from "./format.js";
import { keepText } from "./editor.js";
import { field, h, section, select, showError } from "./dom.js";
import { growth, points, watch } from "./history.js";
import { MINUTES_SHOWN, lastMinutes, rateChart, showFigures, streamFigures } from "./streams.js";

const OPERATORS_MAX = 7;

/** What is drawn beside the rate: a title, points from samples, and how values read. */
const SMALL = {
  "Epochs per second": [(samples, name) => growth(counted(samples, name, "epochs")), rate],
  "Pushes pending": [(samples, name) => counted(samples, name, "pending"), compact],
  "Rows quarantined": [(samples, name) => counted(samples, name, "quarantined"), compact],
  "Bytes on disk": [(samples, name) => counted(samples, name, "bytes"), bytes],
};
const counted = (samples, name, what) => points(samples, (sample) => sample.streams[name]?.[what]);

export function streamView(root, name, signal) {
  const values = streamFigures();
  const minutes = select({ 1: "1 minute", 5: "5 minutes", 15: "15 minutes" }, String(MINUTES_SHOWN));
  const speed = chart(180);
  const small = Object.fromEntries(Object.keys(SMALL).map((title) => [title, chart(110)]));
  const tickets = ticketsChart();
  const columns = h("div", {}, hint("Loading …"));
  const past = quarantine(name, signal);
  const text = `SELECT *\nFROM ${quoted(name)}\nBEGIN NOW - INTERVAL 1 MINUTE END NOW`;
  root.append(
    h("h1", {}, name),
    h("div", { class: "row" }, values.element, field("Shown", minutes),
      h("a", { class: "button", href: "#/sql", click: () => keepText(text) }, "Query it")),
    section("Rows per second", speed.element),
    h("div", { class: "cards small" }, Object.entries(small).map(([title, plot]) => section(title, plot.element))),
    section("The eddy's tickets", hint("Each operator's share: the more, the earlier tuples visit it."), tickets.element),
    h("div", { class: "beside" }, section("Columns", columns), past.element),
  );

  let newest = null;
  function draw() {
    if (!newest) return;
    const now = newest.at(-1).streams[name];
    if (!now) return;
    showFigures(values, now);
    const shown = Number(minutes.value);
    speed.draw(rateChart(name, newest, shown));
    for (const [title, plot] of Object.entries(small)) {
      const [of, format] = SMALL[title];
      const found = of(newest, name);
      const label = `${title} of ${name}, now ${format(found.at(-1)?.[1] ?? 0)}`;
      plot.draw({ kind: "area", label, series: [{ name: title, points: found }], x: lastMinutes(newest, shown), y: { format } });
    }
    tickets.draw(newest, name, shown);
    past.follow(now.quarantined);
  }
  watch((samples) => {
    newest = samples;
    draw();
  }, signal);
  minutes.addEventListener("change", draw);
  showColumns(columns, name, signal);
}

const hint = (text) => h("p", { class: "hint" }, text);

export const quoted = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : `\`${name.replaceAll("`", "``")}\``);

async function showColumns(place, name, signal) {
  try {
    const stream = await get(at("streams", name), { signal });
    const time = stream.timestamp;
    const typed = ({ name, type }) => ({ column: name, type: name === time ? `${type}, the tuples' time` : type });
    const heads = ["column", "type"].map((name) => ({ name, type: "STRING" }));
    const kept = stream.retain_us === null ? "Kept for ever." : `Kept for ${duration(stream.retain_us / 1e6)}.`;
    const late = stream.lateness_us === null ? "" : ` Tuples may be less than ${duration(stream.lateness_us / 1e6)} late.`;
    const idle = stream.idle ? " Idle: queries over several streams don't wait for it." : "";
    place.replaceChildren(table(`Columns of ${name}`, heads, stream.columns.map(typed)), hint(kept + late + idle));
  } catch (error) {
    if (!signal.aborted) showError(place, error);
  }
}

/** The operators with most tickets, and the others together. */
function ticketsChart() {
  const plot = chart(180);
  const none = h("p", { class: "none" }, "Nothing yet: the eddy gives tickets while rows pass standing queries.");
  const element = h("div", {}, none, plot.element);
  return {
    element,
    draw(samples, name, minutes) {
      const x = lastMinutes(samples, minutes);
      const given = samples.filter((sample) => sample.at * 1000 >= x.min && Object.keys(sample.tickets[name] ?? {}).length);
      const totals = new Map();
      for (const sample of given) {
        for (const [operator, share] of Object.entries(sample.tickets[name])) {
          totals.set(operator, (totals.get(operator) ?? 0) + share);
        }
      }
      none.hidden = totals.size > 0;
      plot.element.hidden = totals.size === 0;
      if (!totals.size) return;
      const first = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a)).slice(0, OPERATORS_MAX);
      const series = first.sort().map((operator) => ({
        name: operator,
        points: points(given, (sample) => sample.tickets[name][operator] ?? 0),
      }));
      if (totals.size > first.length) {
        const rest = (sample) =>
          Object.entries(sample.tickets[name]).reduce((sum, [each, share]) => sum + (first.includes(each) ? 0 : share), 0);
        series.push({ name: `${totals.size - first.length} others`, points: points(given, rest) });
      }
      const label = `Tickets on ${name} by operator: ${first.join(", ")}`;
      plot.draw({ kind: "stack", label, series, x, y: { max: 1, format: percent } });
    },
  };
}

/** Read again when the number of such rows changes. */
function quarantine(name, signal) {
  const place = h("div", { class: "quarantine" }, hint("Loading …"));
  const trouble = h("p", { class: "notice bad", hidden: true });
  const sql = `SELECT arrived, source, reason, row FROM ${quoted(name)}.quarantine ORDER BY arrived DESC LIMIT 100`;
  let known = null;
  return {
    element: section("Quarantine", hint("Rows that could not be taken in: the newest hundred, with the reason."), trouble, place),
    async follow(quarantined) {
      if (quarantined === known) return;
      known = quarantined;
      try {
        const { answers: [found] } = await post("/v1/sql", { sql }, { signal });
        showError(trouble, null);
        const none = "Empty: every row fits.";
        place.replaceChildren(table(`Quarantine of ${name}`, found.columns, found.rows, { none }));
      } catch (error) {
        if (!signal.aborted) showError(trouble, error);
      }
    },
  };
}
