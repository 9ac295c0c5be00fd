// Who is let in, and who reads whose queries.

import { post } from "./api.js";
import { alertPlace, ticked } from "./catalog.js";
import { count } from "./format.js";
import { field, figures, h, section, select, showError } from "./dom.js";
import { listing, queryPages } from "./listing.js";
import { ROLES, may, whoAmI } from "./me.js";
import { polled } from "./polling.js";
import { queryLink } from "./queries.js";

const MAY = {
  reader: "Asks: SELECT, the queries that are theirs or shared with them, subscriptions.",
  writer: "Asks, pushes and inserts rows, changes tables, and registers queries.",
  admin: "Everything: streams, tables, functions, sources, tokens, and the queries of all.",
};
const LOCAL = "local";

export function accessView(root, _, signal) {
  const values = figures({ name: "name", role: "role" });
  const [trouble, what] = [alertPlace(), h("p", { class: "hint" })];
  const tokens = h("div", { class: "access", hidden: true });
  const who = section("You", values.element, what);
  root.append(h("h1", {}, "Access"), trouble, h("div", { class: "access" }, who), tokens, grants(signal));
  whoAmI().then(show, (error) => signal.aborted || showError(trouble, error));

  function show(me) {
    values.set("name", me.name);
    values.set("role", me.role);
    const where = me.name === LOCAL ? " On the server's own machine no token is needed." : "";
    what.textContent = `${MAY[me.role]}${where}`;
    if (signal.aborted || !may(me, "admin")) return;
    tokens.append(tokensPanel(me, signal));
    tokens.hidden = false;
  }
}

/** For admins: whom the server knows, with a way in for others, and out. */
function tokensPanel(me, signal) {
  const [trouble, refused, made] = [alertPlace(), alertPlace(), h("div", { role: "status" })];
  const heads = ["Name", "Role", "Created", "Queries", ""];
  const list = listing("Tokens", "tokens", heads, "No tokens: nobody is let in from elsewhere.");
  const name = h("input", { maxlength: 255, autocomplete: "off", spellcheck: "false", required: true });
  const role = select(Object.fromEntries(ROLES.map((each) => [each, each])), "reader");
  const replace = h("input", { type: "checkbox" });
  const form = h(
    "form",
    { class: "row", "aria-label": "Create a token", submit: create },
    field("Name", name),
    field("Role", role),
    h("label", { class: "check" }, replace, "replace"),
    h("button", { class: "main" }, "Create token"),
  );
  const dropping = (dropped) =>
    h("button", { type: "button", class: "quiet", "aria-label": `Drop ${dropped}`, click: () => drop(dropped) }, "Drop");
  const line = (token) => ({
    name: token.name,
    Name: token.name,
    Role: token.role,
    Created: token.created,
    Queries: count(token.queries),
    "": dropping(token.name),
  });
  const show = ({ answers: [found] }) => list.show(found.rows.map(line));
  const load = polled(() => post("/v1/sql", { sql: "SHOW TOKENS" }, { signal }), show, trouble, signal);

  /** What the server refuses is said; gives its answer otherwise. */
  async function attempt(sql) {
    try {
      showError(refused, null);
      const { answers: [answer] } = await post("/v1/sql", { sql });
      load();
      return answer;
    } catch (error) {
      showError(refused, error);
      return null;
    }
  }

  async function create(event) {
    event.preventDefault();
    made.replaceChildren();
    const wanted = name.value.trim();
    const answer = await attempt(`CREATE ${replace.checked ? "OR REPLACE " : ""}TOKEN ${ticked(wanted)} ROLE ${role.value}`);
    if (!answer) return;
    made.append(secretOf(wanted, role.value, answer.rows[0].token, () => made.replaceChildren()));
    form.reset();
  }

  async function drop(dropped) {
    const own = dropped.toLowerCase() === me.name.toLowerCase() ? " It is the one you came with." : "";
    if (!confirm(`Drop the token ${dropped}? Nobody is let in with it any more.${own}`)) return;
    if (await attempt(`DROP TOKEN ${ticked(dropped)}`)) made.replaceChildren();
  }

  return section("Tokens", trouble, list.element, h("h3", {}, "A new one"), form, refused, made);
}

/** The token itself, this once: the server keeps a digest of it. */
function secretOf(name, role, secret, done) {
  const text = h("input", { readonly: true, "aria-label": `Token of ${name}`, value: secret, focus: () => text.select() });
  const copy = h("button", { type: "button", click: copied }, "Copy");
  async function copied() {
    await navigator.clipboard.writeText(secret);
    copy.textContent = "Copied";
  }
  return h(
    "div",
    { class: "notice good secret" },
    h("p", {}, h("strong", {}, `The token of ${name}, a ${role}.`), " It is shown this once: keep it now."),
    // Browsers give pages a clipboard over TLS and on this machine alone.
    h("div", { class: "row" }, text, navigator.clipboard && copy,
      h("button", { type: "button", class: "quiet", click: done }, "Done")),
  );
}

/** Queries that have an owner, as far as one sees them. */
function grants(signal) {
  const none = "No queries that belong to somebody. Those without an owner are everybody's to read.";
  const list = listing("Who reads what", "grants", ["Query", "Owner", "Shared with"], none);
  const line = (query) => ({
    name: query.name,
    Query: queryLink(query.name, query.sql),
    Owner: query.owner,
    "Shared with": sharedWith(query),
  });
  const pages = queryPages(list, line, { owned: true }, signal);
  const hint = h("p", { class: "hint grow" }, "A query is shared on its own page, by its owner or an admin.");
  return section("Who reads what", h("div", { class: "row" }, hint, pages.search), pages.trouble, ...pages.list);
}

export const nameOf = (grantee) => (grantee === "public" ? "everybody" : grantee);

/** With whom else it is shared is for its owner to know. */
export const sharedWith = ({ shared_with }) => (shared_with ? shared_with.map(nameOf).join(", ") || "nobody" : "you");
