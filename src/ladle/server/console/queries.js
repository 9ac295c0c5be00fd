// The standing queries, a page at a time: there may be a hundred thousand.

import { get, invoke, latencies, withParams } from "./api.js";
import { count, duration, percent } from "./format.js";
import { field, h, showError } from "./dom.js";

const PAGE = 50;
// The status lists every query; above so many it is not asked for.
const STATUS_MAX = 2_000;
const TYPING_MS = 250;
const AGAIN_MS = 5_000;
const HEADS = ["Name", "Window", "Mode", "Coverage", "Invocations", "Owner", "Latency"];

export function queriesView(root, _, signal) {
  const search = h("input", { type: "search", placeholder: "part of a name", maxlength: 255 });
  const told = h("p", { class: "hint", role: "status" });
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const body = h("tbody");
  const before = h("button", { type: "button", click: () => go(after - PAGE) }, "← Before");
  const next = h("button", { type: "button", click: () => go(after + PAGE) }, "Next →");
  root.append(
    h("div", { class: "row" }, h("h1", {}, "Queries"), field("Search", search),
      h("a", { class: "button main", href: "#/sql" }, "New query")),
    trouble,
    h("div", { class: "panel" },
      h("div", { class: "scroll whole", role: "region", tabindex: "0", "aria-label": "Standing queries" },
        h("table", { class: "queries" },
          h("thead", {}, h("tr", {}, HEADS.map((name) => h("th", { scope: "col", class: columnClass(name) }, name)))), body)),
      h("div", { class: "row pager" }, before, next, told)),
  );
  let after = 0;
  let all = null;
  let asked = 0;

  function go(to) {
    after = Math.max(0, to);
    load();
  }

  async function load() {
    const turn = ++asked;
    try {
      const params = { after, limit: PAGE, like: search.value.trim() };
      const page = await get(withParams("/v1/queries", params), { signal });
      if (!params.like) all = page.total;
      const states = await statuses(signal, all);
      // Whoever types on, or turns the page, is not shown what was asked before.
      if (turn !== asked) return;
      showError(trouble, null);
      show(page, states);
    } catch (error) {
      if (!signal.aborted && turn === asked) showError(trouble, error);
    }
  }

  function show({ queries, total }, states) {
    const focused = document.activeElement?.closest?.("tr")?.dataset.name;
    const kind = document.activeElement?.tagName;
    body.replaceChildren(...queries.map((query) => line(query, states?.get(query.name), signal)));
    // The list is renewed now and then; who is in it stays where they are.
    if (focused) [...body.children].find((row) => row.dataset.name === focused)?.querySelector(kind)?.focus();
    if (!queries.length) body.append(h("tr", {}, h("td", { colspan: HEADS.length, class: "none" }, "No queries.")));
    before.disabled = after === 0;
    next.disabled = after + PAGE >= total;
    const range = queries.length ? `${count(after + 1)}–${count(after + queries.length)} of ${count(total)}` : "";
    const less = states ? "" : ` Coverage and invocations are listed for up to ${count(STATUS_MAX)} queries.`;
    told.textContent = range + less;
  }

  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => go(0), TYPING_MS);
  });
  const again = setInterval(() => document.hidden || load(), AGAIN_MS);
  signal.addEventListener("abort", () => (clearInterval(again), clearTimeout(typing)));
  load();
}

/** By name; null when there are too many queries. How many there are is asked if it is not known. */
export async function statuses(signal, known = null) {
  const total = known ?? (await get("/v1/queries?limit=1", { signal })).total;
  if (total > STATUS_MAX) return null;
  const { status } = await get("/v1/status", { signal });
  return new Map(status.queries.map((query) => [query.name, query]));
}

const columnClass = (name) => `c-${name.toLowerCase()}`;

/** What was asked for, and what is kept now where that differs. */
export const modeOf = (query, state) =>
  state?.mode && state.mode !== query.materialize ? `${query.materialize} → ${state.mode}` : query.materialize;

export const coverageOf = ({ covered, segments }) => (segments ? covered / segments : 1);

function line(query, state, signal) {
  const cells = {
    Name: h("a", { href: `#/queries/${encodeURIComponent(query.name)}`, title: query.sql }, query.name),
    Window: query.window,
    Mode: modeOf(query, state),
    Coverage: state ? meter(coverageOf(state), state.error) : "–",
    Invocations: state ? count(state.invocations) : "–",
    Owner: query.owner ?? "–",
    Latency: latency(query.name, signal),
  };
  return h("tr", { "data-name": query.name }, HEADS.map((name) => h("td", { class: columnClass(name) }, cells[name])));
}

function meter(share, error) {
  const bar = h("span", { class: "meter", "aria-hidden": "true" }, h("span"));
  bar.firstChild.style.width = `${share * 100}%`;
  return h("span", { title: error ?? `${percent(share)} of the window's segments are covered` }, bar, percent(share));
}

/** Measured by invoking. */
function latency(name, signal) {
  const button = h("button", { type: "button", class: "quiet", title: "Invoke it and measure", click: measure });
  function say(text) {
    button.textContent = text;
    button.setAttribute("aria-label", `${text}: invoke ${name}`);
  }
  async function measure() {
    try {
      await invoke(name, { limit: 1 }, signal);
      say(duration(latencies.get(name)));
    } catch (error) {
      say("failed");
      button.title = error.message;
    }
  }
  say(latencies.has(name) ? duration(latencies.get(name)) : "measure");
  return button;
}
