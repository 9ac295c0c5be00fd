// Elements from data. Text becomes text nodes, always: nothing that a stream brings can become markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

let labels = 0;

export function freshId(stem) {
  return `${stem}-${++labels}`;
}

/** A label above what it names. */
export function field(text, control, attributes = {}) {
  return h("label", { class: "field", ...attributes }, h("span", {}, text), control);
}

export function select(options, chosen, attributes = {}) {
  const made = h("select", attributes, Object.entries(options).map(([value, text]) => h("option", { value }, text)));
  made.value = chosen;
  return made;
}

/** A panel with a heading. */
export function section(title, ...children) {
  const id = freshId("section");
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

/** Names and values; each value is looked up again by `set`. */
export function figures(names) {
  const values = Object.fromEntries(Object.keys(names).map((key) => [key, h("dd", {}, "–")]));
  const element = h("dl", { class: "figures" });
  for (const [key, name] of Object.entries(names)) element.append(h("div", {}, h("dt", {}, name), values[key]));
  return {
    element,
    set(key, text, bad = false) {
      if (values[key].textContent !== text) values[key].textContent = text;
      values[key].classList.toggle("bad", bad);
    },
  };
}

/** An error of the server as people read it; null takes it away. */
export function showError(place, error) {
  place.replaceChildren();
  place.hidden = !error;
  if (!error) return;
  const where = error.position ? `Line ${error.position.line}, column ${error.position.column}: ` : "";
  place.append(h("strong", {}, `${where}${error.message}`));
  if (error.hint) place.append(" ", h("span", { class: "hint" }, `Hint: ${error.hint}`));
}

/** Tabs as the ARIA practices have them: one stop for the Tab key, arrows between them. */
export function tabs(label, panels, chosen = () => {}) {
  const names = Object.keys(panels);
  const buttons = {};
  const list = h("div", { role: "tablist", "aria-label": label, class: "tabs" });
  const element = h("div", {}, list);
  for (const name of names) {
    const [tab, panel] = [freshId("tab"), freshId("tabpanel")];
    buttons[name] = h(
      "button",
      { type: "button", role: "tab", id: tab, "aria-controls": panel, click: () => pick(name) },
      name,
    );
    list.append(buttons[name]);
    element.append(h("div", { role: "tabpanel", id: panel, "aria-labelledby": tab, hidden: true }, panels[name]));
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = names.findIndex((name) => buttons[name] === document.activeElement);
    const next = names[(at + step + names.length) % names.length];
    pick(next);
    buttons[next].focus();
    event.preventDefault();
  });
  function pick(name) {
    for (const [each, button] of Object.entries(buttons)) {
      button.setAttribute("aria-selected", each === name);
      button.tabIndex = each === name ? 0 : -1;
    }
    [...element.children].slice(1).forEach((panel, index) => (panel.hidden = names[index] !== name));
    chosen(name);
  }
  pick(names[0]);
  return { element, pick };
}
