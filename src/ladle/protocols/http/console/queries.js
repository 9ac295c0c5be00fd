// The standing queries: what each one is, and how it is.

import { invoke, latencies } from "./api.js";
import { count, duration, percent } from "./format.js";
import { h } from "./dom.js";
import { listing, queryPages } from "./listing.js";
import { only } from "./me.js";

const HEADS = ["Name", "Window", "Mode", "Coverage", "Invocations", "Owner", "Latency"];

export function queriesView(root, _, signal) {
  const list = listing("Standing queries", "queries", HEADS, "No queries.");
  const pages = queryPages(list, (query) => line(query, signal), { status: true }, signal);
  root.append(
    h("div", { class: "row" }, h("h1", {}, "Queries"), pages.search,
      only("writer", h("a", { class: "button main", href: "#/sql" }, "New query"))),
    pages.trouble,
    h("div", { class: "panel" }, pages.list),
  );
}

/** What was asked for, and what is kept now where that differs. */
export const modeOf = ({ materialize, status }) =>
  status?.mode && status.mode !== materialize ? `${materialize} → ${status.mode}` : materialize;

export const coverageOf = ({ covered, segments }) => (segments ? covered / segments : 1);

export const queryLink = (name, title) => h("a", { href: `#/queries/${encodeURIComponent(name)}`, title }, name);

function line(query, signal) {
  const { name, status } = query;
  return {
    name,
    Name: queryLink(name, query.sql),
    Window: query.window,
    Mode: modeOf(query),
    Coverage: status ? meter(coverageOf(status), status.error) : "…",
    Invocations: status ? count(status.invocations) : "…",
    Owner: query.owner ?? "–",
    Latency: latency(name, signal),
  };
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
