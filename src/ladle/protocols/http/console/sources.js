// Where rows come from by themselves: sources that are defined, and what programs have attached.

import { get, post } from "./api.js";
import { alertPlace, catalogHead, noneYet, ticked } from "./catalog.js";
import { count, rate } from "./format.js";
import { figures, h, showError } from "./dom.js";
import { may, whoAmI } from "./me.js";
import { polled } from "./polling.js";

const FIGURES = { format: "format", rate: "stream's rows / s", batch: "last batch", restarts: "restarts" };
const WELL = new Set(["running", "starting", "drained"]);

export function sourcesView(root, _, signal) {
  const [trouble, refused] = [alertPlace(), alertPlace()];
  const cards = h("div", { class: "cards" }, h("p", { class: "none" }, "…"));
  root.append(...catalogHead("sources"), trouble, refused, cards);
  const shown = new Map();

  /** What is defined, with what is going on; what is only attached is in the pulse alone. */
  async function ask() {
    const asked = [post("/v1/sql", { sql: "SHOW SOURCES" }, { signal }), get("/v1/pulse", { signal }), whoAmI()];
    const [{ answers: [defined] }, { pulse }, me] = await Promise.all(asked);
    const known = new Map(defined.rows.map((source) => [source.name, source]));
    const rates = new Map(pulse.streams.map((stream) => [stream.name.toLowerCase(), stream.rows_per_second]));
    const sources = pulse.sources.map((running) => {
      const speed = rates.get(running.stream.toLowerCase()) ?? 0;
      const source = known.get(running.name);
      return { ...running, rate: speed, ...(source?.stream === running.stream ? source : {}) };
    });
    return { sources, me };
  }

  function show({ sources, me }) {
    const elements = sources.map((source) => {
      const key = JSON.stringify([source.name, source.stream, source.format]);
      if (!shown.has(key)) shown.set(key, card(source, may(me, "admin"), drop));
      shown.get(key).show(source);
      return shown.get(key).element;
    });
    const example = "CREATE SOURCE name FOR stream FORMAT csv OPTIONS (path '…')";
    const wanted = elements.length ? elements : [h("div", { class: "panel" }, noneYet("sources", example))];
    // Cards stay where they are, and so does who is in one.
    const same = cards.children.length === elements.length && elements.every((each, index) => cards.children[index] === each);
    if (!same) cards.replaceChildren(...wanted);
  }

  const load = polled(ask, show, trouble, signal);

  async function drop(name) {
    if (!confirm(`Drop the source ${name}? What it brought stays; how far it was is forgotten.`)) return;
    try {
      showError(refused, null);
      await post("/v1/sql", { sql: `DROP SOURCE ${ticked(name)}` });
      load();
    } catch (error) {
      showError(refused, error);
    }
  }
}

function card({ name, stream, format }, admin, drop) {
  const values = figures(FIGURES);
  const state = h("b");
  const options = h("p", { class: "options" });
  const trouble = h("p", { class: "notice bad", hidden: true });
  const button = h("button", { type: "button", "aria-label": `Drop ${name}`, click: () => drop(name) }, "Drop");
  const element = h(
    "article",
    { class: "panel card", "aria-label": `Source ${name}` },
    h("header", {}, h("h2", {}, name), h("span", { class: "state" }, state)),
    h("p", { class: "hint" }, "for ", h("a", { href: `#/streams/${encodeURIComponent(stream)}` }, stream)),
    trouble,
    values.element,
    options,
    format && admin && h("div", {}, button),
  );
  return {
    element,
    show(source) {
      state.textContent = source.state;
      state.className = WELL.has(source.state) ? "good" : source.error ? "bad" : "";
      values.set("format", source.format ?? "attached by a program");
      values.set("rate", rate(source.rate));
      values.set("batch", source.batch === null ? "–" : count(source.batch));
      values.set("restarts", count(source.restarts), source.restarts > 0);
      // Passwords and the like are hidden by the server, and all of it from those who are no admins.
      const hidden = format && !admin ? "Its options are for admins to see." : "";
      options.replaceChildren(source.options ? h("code", {}, source.options) : h("span", { class: "hint" }, hidden));
      trouble.hidden = !source.error;
      trouble.textContent = source.error ?? "";
    },
  };
}
