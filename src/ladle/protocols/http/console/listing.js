// Tables of what is defined, renewed now and then; and queries, of which there may be a hundred thousand, in pages.

import { get, withParams } from "./api.js";
import { count } from "./format.js";
import { field, h } from "./dom.js";
import { polled } from "./polling.js";

const PAGE = 50;
const TYPING_MS = 250;

/** Columns by their heads; `show` takes `{name, title: cell, ...}` for each line. */
export function listing(label, kind, heads, none) {
  const body = h("tbody");
  const classOf = (head) => `c-${head.toLowerCase().replaceAll(" ", "-")}`;
  // A head without words is that of buttons.
  const head = heads.map((each) => h("th", { scope: "col", class: classOf(each) }, each));
  const element = h(
    "div",
    { class: "scroll whole", role: "region", tabindex: "0", "aria-label": label },
    h("table", { class: `listing ${kind}` }, h("thead", {}, h("tr", {}, head)), body),
  );
  function show(lines) {
    const focused = document.activeElement?.closest?.("tr")?.dataset.name;
    const tag = document.activeElement?.tagName;
    body.replaceChildren(
      ...lines.map((line) =>
        h("tr", { "data-name": line.name }, heads.map((each) => h("td", { class: classOf(each) }, line[each]))),
      ),
    );
    // Who is in the list stays where they are.
    if (focused) [...body.children].find((row) => row.dataset.name === focused)?.querySelector(tag)?.focus();
    if (!lines.length) body.append(h("tr", {}, h("td", { colspan: heads.length, class: "none" }, none)));
  }
  body.append(h("tr", {}, h("td", { colspan: heads.length, class: "none" }, "…")));
  return { element, show };
}

/** The queries that the caller sees, with a search; `line(query)` gives the cells. With `status`, how each one is. */
export function queryPages(list, line, { status = false, owned = false }, signal) {
  const search = h("input", { type: "search", placeholder: "part of a name", maxlength: 255 });
  const told = h("p", { class: "hint", role: "status" });
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const before = h("button", { type: "button", disabled: true, click: () => go(after - PAGE) }, "← Before");
  const next = h("button", { type: "button", disabled: true, click: () => go(after + PAGE) }, "Next →");
  let after = 0;
  let shown = null;

  async function ask(early) {
    const params = { after, limit: PAGE, like: search.value.trim(), owned: owned || null };
    const path = withParams("/v1/queries", params);
    if (!status) return get(path, { signal });
    // How each one is takes longer to tell than which there are.
    if (shown !== path) early(await get(path, { signal }));
    shown = path;
    return get(withParams("/v1/queries", { ...params, status }), { signal });
  }

  function show({ queries, total }) {
    list.show(queries.map(line));
    before.disabled = after === 0;
    next.disabled = after + PAGE >= total;
    told.textContent = queries.length ? `${count(after + 1)}–${count(after + queries.length)} of ${count(total)}` : "";
  }

  const load = polled(ask, show, trouble, signal);
  function go(to) {
    after = Math.max(0, to);
    load();
  }
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => go(0), TYPING_MS);
  });
  signal.addEventListener("abort", () => clearTimeout(typing));
  return { search: field("Search", search), trouble, list: [list.element, h("div", { class: "row pager" }, before, next, told)] };
}
