// The interface's documentation, made in the browser from /openapi.json: what the server checks is what it says.

import { h, section, showError } from "./dom.js";

const main = document.getElementById("main");

function show(api) {
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push({ path, method: method.toUpperCase(), ...operation });
    }
  }
  const names = [...groups.keys()];
  main.append(prose(api.info.description));
  main.append(h("nav", { "aria-label": "Parts", class: "row parts" }, names.map((name) => h("a", { href: `#${name}` }, name))));
  for (const name of names) {
    const part = section(name === "sql" ? "SQL" : name, ...groups.get(name).map((operation) => described(operation, api)));
    part.id = name;
    main.append(part);
  }
}

function described(operation, api) {
  const { method, path, summary, description, parameters = [], requestBody } = operation;
  return h(
    "article",
    { class: "operation" },
    h("h3", {}, h("span", { class: `method m-${method.toLowerCase()}` }, method), " ", h("code", {}, path)),
    h("p", {}, summary),
    description && prose(description),
    parameters.length > 0 && fields("Parameters", parameters.map((each) => ({ ...each, type: typeName(each.schema) }))),
    requestBody && body(requestBody, api),
    example(operation, api),
  );
}

/** Text in which `backticks` are code. */
function prose(text) {
  return h("p", {}, text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part)));
}

function fields(title, rows) {
  const head = ["Name", "Type", "Meaning"].map((name) => h("th", { scope: "col" }, name));
  const lines = rows.map(({ name, type, in: where, required, description, schema }) => {
    const otherwise = schema?.default ?? null;
    const about = [where, required && "required", otherwise !== null && `default ${JSON.stringify(otherwise)}`];
    const notes = about.filter(Boolean).join(", ");
    return h("tr", {}, h("td", {}, h("code", {}, name)), h("td", {}, type),
      h("td", {}, description || schema?.description || "", notes && h("span", { class: "hint" }, ` ${notes}`)));
  });
  const made = h("table", {}, h("caption", {}, title), h("thead", {}, h("tr", {}, head)), h("tbody", {}, lines));
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": title }, made);
}

function body(requestBody, api) {
  const kinds = Object.keys(requestBody.content);
  const schema = resolved(requestBody.content["application/json"]?.schema, api);
  if (!schema?.properties) return prose(`Body: ${kinds.map((kind) => `\`${kind}\``).join(", ")}`);
  const rows = Object.entries(schema.properties).map(([name, each]) => ({
    name,
    type: typeName(each),
    required: schema.required?.includes(name),
    schema: resolved(each, api),
  }));
  return fields("Body (application/json)", rows);
}

function resolved(schema, api) {
  const name = schema?.$ref?.split("/").at(-1);
  return name ? api.components.schemas[name] : schema;
}

function typeName(schema = {}) {
  if (schema.anyOf) return schema.anyOf.map(typeName).join(" or ");
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.type === "array") return `list of ${typeName(schema.items)}`;
  if (schema.type === "object" && schema.additionalProperties?.type) return `object of ${typeName(schema.additionalProperties)}`;
  return schema.type ?? "any";
}

const SAMPLES = {
  "/v1/sql": { sql: "SELECT * FROM trades LIMIT 10" },
  "/v1/explain": { text: "SELECT * FROM trades" },
  "/v1/plan": { text: "SELECT * FROM trades" },
  "/v1/queries": { name: "large", sql: "SELECT * FROM trades WHERE size > 100" },
  "/v1/streams": { name: "trades", columns: { symbol: "STRING", size: "INT", at: "TIMESTAMP" }, timestamp_by: "at" },
  "/v1/tables": { name: "companies", columns: { symbol: "STRING", country: "STRING" } },
};

const ROW = { symbol: "IBM", size: 10, at: "2026-01-01T00:00:00Z" };
const NAMES = { streams: "trades", tables: "companies", queries: "large" };

/** A line to paste into a shell. Single quotes keep everything as it is, but for single quotes. */
function example({ method, path, requestBody }, api) {
  const known = NAMES[path.split("/")[2]];
  const address = path.replace(/\{(\w+)\}/g, (_, name) => (name === "name" && known) || name.toUpperCase());
  const parts = ["curl", "-H", quoted("Authorization: Bearer TOKEN")];
  if (method !== "GET") parts.push("-X", method);
  if (requestBody) {
    const json = requestBody.content["application/json"];
    const kind = json ? "application/json" : Object.keys(requestBody.content)[0];
    const schema = resolved(json?.schema, api);
    const filler = (name) => [name, typeName(schema.properties[name]) === "object" ? {} : "…"];
    const required = Object.fromEntries((schema?.required ?? []).map(filler));
    parts.push("-H", quoted(`Content-Type: ${kind}`));
    parts.push("-d", quoted(JSON.stringify(json ? (SAMPLES[path] ?? required) : ROW)));
  }
  parts.push(quoted(location.origin + address));
  const text = parts.join(" ");
  const copy = h("button", { type: "button", class: "quiet", click: () => navigator.clipboard.writeText(text) }, "Copy");
  // Browsers give pages a clipboard over TLS and on this machine alone.
  return h("div", { class: "curl" }, h("pre", { tabindex: "0", "aria-label": "Example" }, text), navigator.clipboard && copy);
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

try {
  const api = await (await fetch("/openapi.json")).json();
  show(api);
} catch (error) {
  const place = h("p", { class: "notice bad" });
  main.append(place);
  showError(place, error);
}
