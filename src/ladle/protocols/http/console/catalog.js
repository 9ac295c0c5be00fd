// What is defined beside streams and queries: three lists, each with an address of its own.

import { h } from "./dom.js";

const LISTS = { tables: "Tables", functions: "Functions", sources: "Sources" };

/** The heading of one of them, and the way to the others. */
export function catalogHead(kind) {
  const link = ([each, title]) => h("a", { href: `#/${each}`, "aria-current": each === kind && "page" }, title);
  return [h("h1", {}, LISTS[kind]), h("nav", { class: "tabs", "aria-label": "Catalog" }, Object.entries(LISTS).map(link))];
}

/** What is said where there is nothing yet: how to begin. */
export const noneYet = (what, statement) =>
  h("p", { class: "none" }, `No ${what} yet. `, h("a", { href: "#/sql" }, "The editor"), " runs ", h("code", {}, statement), ".");

export const alertPlace = () => h("p", { class: "notice bad", role: "alert", hidden: true });

/** A name as SQL has it, whatever is in it. */
export const ticked = (name) => `\`${name.replaceAll("`", "``")}\``;
