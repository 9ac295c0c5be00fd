// The editor: run a script, see how a query would be answered, let it stand.

import { post } from "./api.js";
import { picture, summary, table } from "./answer.js";
import { duration } from "./format.js";
import { editor, keepText, keptText } from "./editor.js";
import { field, h, section, select, tabs } from "./dom.js";
import { only } from "./me.js";
import { explanation } from "./plan.js";

const EXAMPLE = "-- Ctrl+Enter runs this.\nSHOW STREAMS;\n";

export function sqlView(root, _, signal) {
  const written = editor("SQL", keptText() ?? EXAMPLE, { run, changed: keepText });
  const name = h("input", { name: "name", maxlength: 255, autocomplete: "off", spellcheck: "false", required: true });
  const mode = select({ auto: "auto", none: "none", partial: "partial", complete: "complete" }, "auto");
  const replace = h("input", { type: "checkbox" });
  const told = h("p", { class: "notice good", role: "status", hidden: true });
  const [answers, explained, drawn] = [h("div", { class: "answers" }), h("div"), h("div")];
  const results = tabs("Results", { Answer: answers, Explain: explained, Plan: drawn }, (tab) => {
    if (tab !== "Answer") explain();
  });
  answers.append(h("p", { class: "none" }, "Nothing was run yet."));
  const standing = h(
    "form",
    { class: "row register", "aria-label": "Register as a standing query", submit: register },
    field("Name", name),
    field("Materialize", mode),
    h("label", { class: "check" }, replace, "replace"),
    h("button", {}, "Register"),
  );
  root.append(
    h("h1", {}, "Editor"),
    h("section", { class: "panel", "aria-label": "Statement" },
      written.element,
      h("div", { class: "row" },
        h("button", { type: "button", class: "main", click: run, title: "Ctrl+Enter" }, "Run ", h("kbd", {}, "Ctrl+Enter")),
        h("button", { type: "button", click: () => results.pick("Explain") }, "Explain"),
        only("writer", standing)),
      told),
    section("Results", results.element),
  );
  let explainedText = null;
  let turn = 0;

  /** What fails is marked in the text; true if it went well. */
  async function attempt(work) {
    const mine = ++turn;
    written.mark(null);
    told.hidden = true;
    root.setAttribute("aria-busy", "true");
    try {
      await work(() => mine === turn);
      return true;
    } catch (error) {
      if (!signal.aborted && mine === turn) written.mark(error);
      return false;
    } finally {
      if (mine === turn) root.removeAttribute("aria-busy");
    }
  }

  async function run() {
    await attempt(async (current) => {
      const reply = await post("/v1/sql", { sql: written.text }, { signal });
      if (!current()) return;
      results.pick("Answer");
      answers.replaceChildren(...reply.answers.map(shownAnswer));
    });
  }

  async function register(event) {
    event.preventDefault();
    await attempt(async () => {
      const body = { name: name.value.trim(), sql: written.text, materialize: mode.value, replace: replace.checked };
      await post("/v1/queries", body, { signal });
      const link = h("a", { href: `#/queries/${encodeURIComponent(body.name)}` }, body.name);
      told.replaceChildren("The query ", link, " stands.");
      told.hidden = false;
    });
  }

  /** Once for each text: both forms are asked for together. */
  async function explain() {
    const text = written.text;
    if (text === explainedText || !text.trim()) return;
    const none = () => h("p", { class: "none" }, "A SELECT, or the name of a standing query, can be explained.");
    const well = await attempt(async () => {
      const { said, graph } = await explanation(text, signal);
      explained.replaceChildren(said);
      drawn.replaceChildren(graph);
      explainedText = text;
    });
    if (well || signal.aborted) return;
    explainedText = null;
    explained.replaceChildren(none());
    drawn.replaceChildren(none());
  }
}

function shownAnswer(answer, index) {
  const label = `Answer ${index + 1}`;
  const head = h("p", { class: "hint", role: "status" });
  if (!answer.columns.length) {
    head.textContent = `${answer.message || "Done."} · ${duration(answer.seconds)}`;
    return head;
  }
  head.textContent = `${summary(answer)} · answered in ${duration(answer.seconds)}`;
  const chart = picture(label);
  const rows = table(label, answer.columns, answer.rows);
  const forms = tabs(`${label} as`, { Table: rows, Chart: chart.element }, (tab) => {
    if (tab === "Chart") chart.draw(answer.columns, answer.rows);
  });
  return h("div", { class: "answer" }, head, forms.element);
}
