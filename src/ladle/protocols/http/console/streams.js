// All streams: how fast each one comes, and what it holds.

import { chart } from "./charts.js";
import { bytes, count, rate } from "./format.js";
import { figures, h } from "./dom.js";
import { growth, points, watch } from "./history.js";

export const MINUTES_SHOWN = 5;
const FIGURES = { rows: "rows", epochs: "epochs", pending: "pending", quarantined: "quarantined", bytes: "on disk" };

export function streamsView(root, _, signal) {
  const overall = figures({ epoch: "epoch", queries: "queries", invocations: "invocations / s", subscribers: "subscribers" });
  const cards = h("div", { class: "cards" });
  const none = h(
    "p",
    { class: "none", hidden: true },
    "No streams yet. ",
    h("a", { href: "#/sql" }, "The editor"),
    " runs CREATE STREAM name (column TYPE, …) TIMESTAMP BY column.",
  );
  root.append(h("h1", {}, "Streams"), overall.element, cards, none);
  const shown = new Map();

  watch((samples) => {
    const last = samples.at(-1);
    overall.set("epoch", count(last.epoch));
    overall.set("queries", count(last.queries));
    const asked = growth(points(samples.slice(-6), (sample) => sample.invocations));
    overall.set("invocations", rate(asked.reduce((sum, [, each]) => sum + each, 0) / (asked.length || 1)));
    overall.set("subscribers", count(last.subscribers));
    const names = Object.keys(last.streams).sort();
    none.hidden = names.length > 0;
    for (const [name, { element }] of shown) {
      if (!(name in last.streams)) {
        element.remove();
        shown.delete(name);
      }
    }
    names.forEach((name, index) => {
      if (!shown.has(name)) shown.set(name, card(name));
      const { element, show } = shown.get(name);
      if (cards.children[index] !== element) cards.insertBefore(element, cards.children[index] ?? null);
      show(samples);
    });
  }, signal);
}

function card(name) {
  const speed = h("span", { class: "speed" });
  const values = figures(FIGURES);
  const plot = chart(130);
  const trouble = h("p", { class: "notice bad", hidden: true });
  const element = h(
    "article",
    { class: "panel card", "aria-label": `Stream ${name}` },
    h("header", {}, h("h2", {}, h("a", { href: `#/streams/${encodeURIComponent(name)}` }, name)), speed),
    trouble,
    plot.element,
    values.element,
  );
  return {
    element,
    show(samples) {
      const now = showFigures(values, samples.at(-1).streams[name]);
      speed.replaceChildren(h("b", {}, rate(now.rows_per_second)), " rows/s");
      trouble.hidden = !now.error;
      trouble.textContent = now.error ?? "";
      plot.draw(rateChart(name, samples, MINUTES_SHOWN));
    },
  };
}

export function showFigures(values, now) {
  values.set("rows", count(now.rows));
  values.set("epochs", count(now.epochs));
  values.set("pending", count(now.pending));
  values.set("quarantined", count(now.quarantined), now.quarantined > 0);
  values.set("bytes", bytes(now.bytes));
  return now;
}

export const streamFigures = () => figures(FIGURES);

export function rateChart(name, samples, minutes) {
  const found = points(samples, (sample) => sample.streams[name]?.rows_per_second);
  const highest = found.reduce((high, [, value]) => Math.max(high, value), 0);
  const label = `Rows per second of ${name}, now ${rate(found.at(-1)?.[1] ?? 0)}, at most ${rate(highest)}`;
  const series = [{ name: "rows/s", points: found }];
  return { kind: "area", label, series, x: lastMinutes(samples, minutes), y: { format: rate } };
}

/** An axis that ends with the last sample: the server's clock, not the browser's. */
export function lastMinutes(samples, minutes) {
  const max = samples.at(-1).at * 1000;
  // A server that has just begun has a short past; it need not be drawn in a corner.
  const span = Math.min(minutes * 60_000, Math.max(max - samples[0].at * 1000, 30_000));
  return { time: true, min: max - span, max };
}
