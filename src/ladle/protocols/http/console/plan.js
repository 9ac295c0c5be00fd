// A plan's tree from left to right: streams and tables first, the answer last.

import { post } from "./api.js";
import { h, showError, svg } from "./dom.js";

const BOX = { width: 190, gapX: 46, gapY: 18, pad: 10, line: 15 };
const LETTERS = 27;
const LINES_MAX = 4;

/** How a text, or a standing query, is answered: as EXPLAIN says it, and drawn. Whoever asks has each step measured. */
export async function explanation(text, signal) {
  const said = h("pre", { class: "explain", tabindex: "0", "aria-label": "EXPLAIN" });
  const drawn = h("div");
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const measure = h("button", { type: "button", click: () => measured() }, "Run and measure each step");

  async function show(analyze) {
    const ask = (path) => post(path, { text, analyze }, { signal });
    const [explained, picture] = await Promise.all([ask("/v1/explain"), ask("/v1/plan")]);
    said.textContent = explained.text;
    drawn.replaceChildren(planGraph(picture));
  }

  async function measured() {
    showError(trouble, null);
    try {
      await show(true);
    } catch (error) {
      if (!signal.aborted) showError(trouble, error);
    }
  }

  await show(false);
  return { said, graph: h("div", { class: "plan" }, h("div", { class: "row" }, measure), trouble, drawn) };
}

/** {nodes: [{id, kind, title, detail, pattern, shared, coverage, kept, held, took}], edges: [[from, to]]}, as POST /v1/plan says. */
function planGraph({ nodes, edges }) {
  const boxes = nodes.map((node) => {
    const lines = wrapped(node.detail);
    const notes = [node.pattern, node.shared, node.coverage, node.kept, node.held, node.took].flatMap((note) => (note ? wrapped(note) : []));
    return { ...node, lines, notes, height: BOX.pad * 2 + BOX.line * (2 + notes.length + lines.length) };
  });
  const layers = inOrder(layered(boxes, edges), edges);
  const size = placed(layers);
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const label = `Plan: ${boxes.map((box) => `${box.kind} ${box.title}`).join(", ")}`;
  const root = svg("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "img", "aria-label": label });
  for (const [from, to] of edges) root.append(arrow(byId.get(from), byId.get(to)));
  root.append(...boxes.map(box));
  const detailed = boxes.filter((each) => each.detail);
  const heading = (each) => [`${each.kind}: ${each.title}`, ...each.notes].join("; ");
  const texts = detailed.map((each) => [h("dt", {}, heading(each)), h("dd", {}, each.detail)]);
  return h(
    "div",
    { class: "plan" },
    h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Plan" }, root),
    texts.length > 0 && h("details", {}, h("summary", {}, "The steps in full"), h("dl", {}, texts)),
  );
}

/** Counted from the answer: a node is one layer left of the leftmost that reads it, so no edge runs below a box. */
function layered(boxes, edges) {
  const distance = new Map(boxes.map(({ id }) => [id, 0]));
  // As many rounds as there are nodes are enough for a graph without circles, and end also for one with.
  for (let round = 0, changed = true; changed && round < boxes.length; round++) {
    changed = false;
    for (const [from, to] of edges) {
      if (distance.get(from) <= distance.get(to)) {
        distance.set(from, distance.get(to) + 1);
        changed = true;
      }
    }
  }
  const layers = [];
  for (const each of boxes) (layers[distance.get(each.id)] ??= []).push(each);
  return layers.filter(Boolean).reverse();
}

/** Sorted by the middle of what each node reads, so that few edges cross. */
function inOrder(layers, edges) {
  const rank = new Map();
  layers.forEach((layer) => {
    const middle = ({ id }, otherwise) => {
      const read = edges.filter(([, to]) => to === id).map(([from]) => rank.get(from) ?? 0);
      return read.length ? read.reduce((a, b) => a + b) / read.length : otherwise;
    };
    const keys = new Map(layer.map((box, at) => [box, middle(box, at)]));
    layer.sort((a, b) => keys.get(a) - keys.get(b));
    layer.forEach((box, at) => rank.set(box.id, at));
  });
  return layers;
}

function placed(layers) {
  const heights = layers.map((layer) => layer.reduce((sum, box) => sum + box.height + BOX.gapY, -BOX.gapY));
  const height = Math.max(...heights) + 4;
  layers.forEach((layer, column) => {
    let y = 2 + (height - 4 - heights[column]) / 2;
    for (const box of layer) {
      Object.assign(box, { x: 2 + column * (BOX.width + BOX.gapX), y });
      y += box.height + BOX.gapY;
    }
  });
  return { width: layers.length * (BOX.width + BOX.gapX) - BOX.gapX + 4, height };
}

function arrow(from, to) {
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + from.height / 2, to.x, to.y + to.height / 2];
  const bend = (x2 - x1) / 2;
  const d = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 7} ${y2}`;
  const head = `M${x2} ${y2}l-8 -4v8z`;
  return svg("g", { class: "edge" }, svg("path", { d }), svg("path", { d: head, class: "head" }));
}

function box({ kind, title, detail, lines, notes, x, y, height }) {
  const below = [...notes.map((note) => ["note", note]), ...lines.map((line) => ["detail", line])];
  const texts = [
    svg("text", { class: "kind", x: x + BOX.pad, y: y + BOX.pad + 9 }, kind.toUpperCase()),
    svg("text", { class: "title", x: x + BOX.pad, y: y + BOX.pad + 25 }, cut(title, LETTERS - 3)),
    ...below.map(([name, text], i) => svg("text", { class: name, x: x + BOX.pad, y: y + BOX.pad + 41 + i * BOX.line }, text)),
  ];
  const frame = svg("rect", { x, y, width: BOX.width, height, rx: 8 });
  const edge = svg("rect", { class: "edgebar", x, y: y + 8, width: 3, height: height - 16, rx: 1.5 });
  return svg("g", { class: `node kind-${kind}` }, svg("title", {}, [title, ...notes, detail].join("\n")), frame, edge, texts);
}

function wrapped(text) {
  const lines = [];
  let line = "";
  for (const word of text.split(/\s+/).filter(Boolean)) {
    if (line && line.length + 1 + word.length > LETTERS) {
      lines.push(line);
      line = "";
    }
    line = line ? `${line} ${word}` : word;
  }
  if (line) lines.push(line);
  const shown = lines.slice(0, LINES_MAX).map((each) => cut(each, LETTERS));
  if (lines.length > LINES_MAX) shown[LINES_MAX - 1] = `${shown[LINES_MAX - 1].slice(0, LETTERS - 2)} …`;
  return shown;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
