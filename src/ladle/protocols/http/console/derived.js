// Derived state: what answers are made faster by, kind by kind, against its budgets of memory and disk.

import { get } from "./api.js";
import { alertPlace } from "./catalog.js";
import { bytes, count, dayAndClock, duration, moment, percent } from "./format.js";
import { h } from "./dom.js";
import { listing } from "./listing.js";
import { polled } from "./polling.js";

const HEADS = ["Kind", "Things", "Coverage", "Memory", "Disk", "Made anew in", "Last used", "Evictions"];
const WHAT = {
  cache: "decoded columns of segments",
  aggregates: "partial aggregates of segments",
  answers: "rows and answers of complete queries",
  recent: "last answers of queries that are followed",
  results: "which tuples satisfy which block",
  masks: "what functions have said so far",
  pairs: "which tuples are pairs of a join",
  "query sets": "blocks for tasks to look at",
};

export function derivedView(root, _, signal) {
  const trouble = alertPlace();
  const budgets = { memory: budget("Memory"), disk: budget("Disk") };
  const list = listing("Kinds of derived state", "derived", HEADS, "Nothing is kept.");
  root.append(
    h("h1", {}, "Derived state"),
    h("p", { class: "hint" }, "What makes answers fast. All of it may go at any moment, and is made anew; no answer depends on it. " +
      "What is cheapest to make anew per byte, and longest unused, goes first."),
    trouble,
    h("div", { class: "cards small" }, budgets.memory.element, budgets.disk.element),
    h("div", { class: "panel" }, list.element),
  );

  function show({ pulse: { derived, budgets: most } }) {
    const taken = (key) => derived.reduce((sum, each) => sum + each[key], 0);
    budgets.memory.show(taken("memory_bytes"), most.memory_bytes_max);
    budgets.disk.show(taken("disk_bytes"), most.disk_bytes_max);
    list.show(derived.map((kind) => line(kind, most)));
  }
  polled(() => get("/v1/pulse", { signal }), show, trouble, signal);
}

/** One budget, and how much of it is used. */
function budget(title) {
  const [bar, told] = [meter(0), h("b")];
  const element = h(
    "section",
    { class: "panel budget", "aria-label": `Budget of ${title.toLowerCase()}` },
    h("h2", {}, title),
    bar,
    h("p", {}, told),
  );
  return {
    element,
    show(used, most) {
      const share = most ? used / most : Number(used > 0);
      bar.firstChild.style.width = `${Math.min(share, 1) * 100}%`;
      told.textContent = `${bytes(used)} of ${bytes(most)} (${percent(share)})`;
    },
  };
}

function line(kind, most) {
  const used = kind.last_used === null ? null : moment(kind.last_used);
  const place = (key) => (kind.place === key ? sized(kind[`${key}_bytes`], most[`${key}_bytes_max`]) : "–");
  return {
    name: kind.kind,
    Kind: h("span", {}, h("b", {}, kind.kind), h("small", {}, WHAT[kind.kind] ?? "")),
    Things: count(kind.things),
    Coverage: kind.coverage === null ? "–" : h("span", { title: "of what standing queries demand" }, meter(kind.coverage), percent(kind.coverage)),
    Memory: place("memory"),
    Disk: place("disk"),
    "Made anew in": h("span", { title: kind.rebuilt }, kind.things ? duration(kind.rebuild_seconds) : "–"),
    "Last used": used === null ? "–" : dayAndClock(used),
    Evictions: count(kind.evictions),
  };
}

function sized(used, most) {
  const share = most ? used / most : 0;
  return h("span", { title: `${percent(share)} of the budget` }, meter(share), bytes(used));
}

function meter(share) {
  const bar = h("span", { class: "meter", "aria-hidden": "true" }, h("span"));
  bar.firstChild.style.width = `${Math.min(share, 1) * 100}%`;
  return bar;
}
