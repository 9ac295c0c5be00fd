// Which view is shown (by the address after #), who is looking, and what is asked when the server wants a token.

import { accessView } from "./access.js";
import { door, loading, token } from "./api.js";
import { h, showError } from "./dom.js";
import { derivedView } from "./derived.js";
import { functionsView } from "./functions.js";
import { connection } from "./history.js";
import { forget, whoAmI } from "./me.js";
import { queriesView } from "./queries.js";
import { queryView } from "./query.js";
import { sourcesView } from "./sources.js";
import { sqlView } from "./sql.js";
import { streamView } from "./stream.js";
import { streamsView } from "./streams.js";
import { tableView, tablesView } from "./tables.js";

const main = document.getElementById("main");
const VIEWS = {
  streams: [streamsView, streamView],
  queries: [queriesView, queryView],
  sql: [sqlView],
  tables: [tablesView, tableView],
  functions: [functionsView],
  sources: [sourcesView],
  derived: [derivedView],
  access: [accessView],
};
// Lists that one entry of the navigation leads to.
const CATALOG = ["tables", "functions", "sources"];
let leaving = new AbortController();
let first = true;

/** Somebody may have typed the address. */
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function route() {
  const [, kind = "", name] = location.hash.split("/");
  const [list, one] = VIEWS[kind] ?? VIEWS.streams;
  const shown = name && one ? decoded(name) : null;
  leaving.abort();
  leaving = new AbortController();
  for (const link of document.querySelectorAll(".bar nav a")) {
    const current = link.hash === `#/${CATALOG.includes(kind) ? CATALOG[0] : kind || "streams"}`;
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  (shown === null ? list : one)(main, shown, leaving.signal);
  const heading = main.querySelector("h1");
  document.title = `${heading.textContent} · Ladle`;
  // Those who don't see the page change are told by the focus; the first page begins at its top.
  heading.tabIndex = -1;
  if (!first) heading.focus();
  first = false;
}

const dialog = document.getElementById("token");
const who = document.getElementById("who");
let asking = null;
let declined = false;

/** Shows the dialog; promises whether there is a new token. Requests that fail together ask once. */
function ask(why) {
  asking ??= new Promise((resolve) => {
    const text = document.getElementById("token-text");
    showError(document.getElementById("token-why"), why);
    text.value = "";
    dialog.returnValue = "";
    dialog.showModal();
    text.focus();
    dialog.addEventListener("close", () => {
      asking = null;
      declined = dialog.returnValue !== "enter";
      if (!declined) {
        token.set(text.value.trim());
        forget();
      }
      resolve(!declined);
    }, { once: true });
  });
  return asking;
}

// Once declined, polling must not bring the dialog back; the button does.
door.ask = (why) => (declined ? Promise.resolve(false) : ask(why));

async function showMe() {
  try {
    const me = await whoAmI();
    who.replaceChildren(me.name, h("span", { class: "hint" }, ` ${me.role}`));
    who.setAttribute("aria-label", `You are ${me.name}, ${me.role}. Enter another token`);
  } catch {
    who.replaceChildren("Enter a token");
  }
}

who.addEventListener("click", async () => {
  if (!(await ask(null))) return;
  await showMe();
  route();
});

const notice = document.getElementById("connection");
connection.tell = (error) => {
  if (!error) notice.hidden = true;
  else if (notice.hidden || notice.dataset.said !== error.message) showError(notice, error);
  notice.dataset.said = error?.message ?? "";
};

const sign = document.getElementById("loading");
loading.tell = (busy) => {
  sign.textContent = busy ? "Loading …" : "";
  main.setAttribute("aria-busy", busy);
};

// By hand, because the address after # is the view's.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

addEventListener("hashchange", route);
route();
showMe();
