// The users' functions: what each one takes and gives, and its text.

import { get } from "./api.js";
import { alertPlace, catalogHead, noneYet } from "./catalog.js";
import { h } from "./dom.js";
import { polled } from "./polling.js";

export function functionsView(root, _, signal) {
  const trouble = alertPlace();
  const place = h("div", { class: "functions" }, h("p", { class: "none" }, "…"));
  root.append(...catalogHead("functions"), trouble, place);
  let shown = "";

  function show({ functions }) {
    // Whoever has opened a text goes on reading.
    const told = JSON.stringify(functions);
    if (told === shown) return;
    shown = told;
    const example = "CREATE FUNCTION name(x DOUBLE) RETURNS DOUBLE LANGUAGE PYTHON AS $$ … $$";
    const none = () => h("div", { class: "panel" }, noneYet("functions", example));
    place.replaceChildren(...(functions.length ? functions.map(described) : [none()]));
  }
  polled(() => get("/v1/functions", { signal }), show, trouble, signal);
}

function described({ name, signature, source }) {
  return h(
    "article",
    { class: "panel", "aria-label": `Function ${name}` },
    h("h2", {}, name, " ", h("span", { class: "hint" }, "Python")),
    h("code", {}, signature),
    h("details", {}, h("summary", {}, "Its text"), h("pre", { class: "sql", tabindex: "0" }, source)),
  );
}
