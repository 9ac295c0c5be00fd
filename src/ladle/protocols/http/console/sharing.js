// With whom a query is shared, for those who may change that.

import { at, post, remove } from "./api.js";
import { nameOf } from "./access.js";
import { alertPlace } from "./catalog.js";
import { field, freshId, h, section, showError } from "./dom.js";
import { may, owns } from "./me.js";

const PUBLIC = "public";

/** `changed` is called when it is shared with others than before. */
export function sharing(name, changed, signal) {
  const refused = alertPlace();
  const shared = h("ul", { class: "chips" });
  const known = h("datalist", { id: freshId("tokens") });
  const to = h("input", { maxlength: 255, autocomplete: "off", spellcheck: "false", required: true, list: known.id });
  const everybody = h("button", { type: "button", click: () => share(PUBLIC) }, "Share with everybody");
  const form = h(
    "form",
    { class: "row", submit: submitted },
    field("Name of a token", to),
    h("button", {}, "Share"),
    everybody,
    known,
  );
  const said = h("p", { class: "hint" });
  const element = section("Sharing", said, shared, refused, form);
  element.hidden = true;

  async function attempt(work) {
    try {
      showError(refused, null);
      await work();
      changed();
      return true;
    } catch (error) {
      showError(refused, error);
      return false;
    }
  }
  const share = (who) => attempt(() => post(at("queries", name, "/grants"), { to: who }));
  async function unshare(who) {
    // Its button goes with it.
    if (await attempt(() => remove(at("queries", name, `/grants/${encodeURIComponent(who)}`)))) to.focus();
  }

  async function submitted(event) {
    event.preventDefault();
    if (await share(to.value.trim())) form.reset();
  }

  /** Who has tokens is for admins to know. */
  async function suggest() {
    try {
      const { answers: [found] } = await post("/v1/sql", { sql: "SHOW TOKENS" }, { signal });
      known.replaceChildren(...found.rows.map((token) => h("option", { value: token.name })));
    } catch {
      // Then names are typed.
    }
  }

  function show(query, me) {
    element.hidden = !owns(me, query);
    if (element.hidden) return;
    form.hidden = query.owner === null;
    everybody.hidden = query.shared_with.includes(PUBLIC);
    const others = query.shared_with.length > 0;
    const readers = others ? "Its owner, admins and these may read it." : "Its owner and admins alone may read it.";
    said.textContent = query.owner === null ? "It was registered without a user, and is everybody's to read." : readers;
    const taking = (who) => ({ class: "quiet", "aria-label": `Unshare with ${nameOf(who)}`, click: () => unshare(who) });
    const chip = (who) => h("li", {}, nameOf(who), h("button", { type: "button", ...taking(who) }, "✕"));
    shared.replaceChildren(...query.shared_with.map(chip));
    if (may(me, "admin") && !known.children.length) suggest();
  }
  return { element, show };
}
