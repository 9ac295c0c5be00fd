// The tables, and the first rows of one.

import { get, post } from "./api.js";
import { table as rowsTable } from "./answer.js";
import { alertPlace, catalogHead, noneYet, ticked } from "./catalog.js";
import { count } from "./format.js";
import { figures, h, section } from "./dom.js";
import { keepText } from "./editor.js";
import { listing } from "./listing.js";
import { polled } from "./polling.js";

const ROWS_SHOWN = 100;

const known = async (signal) => (await get("/v1/tables", { signal })).tables;

export function tablesView(root, _, signal) {
  const none = noneYet("tables", "CREATE TABLE name (column TYPE, …)");
  const list = listing("Tables", "tables", ["Name", "Columns", "Rows", "Changes"], none);
  const trouble = alertPlace();
  root.append(...catalogHead("tables"), trouble, h("div", { class: "panel" }, list.element));
  const line = ({ name, columns, rows, version }) => ({
    name,
    Name: h("a", { href: `#/tables/${encodeURIComponent(name)}` }, name),
    Columns: columns.map((column) => `${column.name} ${column.type}`).join(", "),
    Rows: count(rows),
    Changes: count(version),
  });
  polled(() => known(signal), (tables) => list.show(tables.map(line)), trouble, signal);
}

export function tableView(root, name, signal) {
  const values = figures({ rows: "rows", changes: "changes" });
  const trouble = alertPlace();
  const [columns, rows] = [h("div", {}, "…"), h("div", {}, "…")];
  const told = h("p", { class: "hint", role: "status" });
  const text = `SELECT * FROM ${ticked(name)}`;
  root.append(
    h("h1", {}, name),
    h("div", { class: "row" }, values.element,
      h("a", { class: "button", href: "#/sql", click: () => keepText(text) }, "Open in editor"),
      h("a", { class: "button", href: "#/tables" }, "All tables")),
    trouble,
    h("div", { class: "beside" }, section("Columns", columns), section("Rows", told, rows)),
  );
  let version = null;
  let first = null;

  /** The rows are read again when they changed. */
  async function ask() {
    const found = (await known(signal)).find((each) => each.name.toLowerCase() === name.toLowerCase());
    if (!found || found.version !== version) {
      // Of one that is not there, the server says what there is.
      const { answers } = await post("/v1/sql", { sql: `${text} LIMIT ${ROWS_SHOWN}` }, { signal });
      if (!found) throw new Error(`'${name}' is not a table.`);
      [version, first] = [found.version, answers[0]];
    }
    return found;
  }

  function show(found) {
    values.set("rows", count(found.rows));
    values.set("changes", count(found.version));
    const heads = ["column", "type"].map((each) => ({ name: each, type: "STRING" }));
    const typed = found.columns.map((column) => ({ column: column.name, type: column.type }));
    columns.replaceChildren(rowsTable(`Columns of ${name}`, heads, typed));
    if (rows.dataset.version === String(version)) return;
    rows.dataset.version = version;
    rows.replaceChildren(rowsTable(`Rows of ${name}`, first.columns, first.rows, { none: "Empty." }));
    const less = first.rows.length < found.rows;
    told.textContent = less ? `The first ${count(first.rows.length)} of ${count(found.rows)}; the editor shows more.` : "";
  }
  polled(ask, show, trouble, signal);
}
