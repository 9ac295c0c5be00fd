// Lines and stacked areas in SVG, drawn anew at each change in the pixels there are. Colours are those of style.css.

import { niceRange, numberLabels, numberTicks, timeTicks } from "./axes.js";
import { compact, dayAndClock } from "./format.js";
import { h, svg } from "./dom.js";

const SERIES_MAX = 8;
const MARGIN = { top: 8, right: 10, bottom: 22 };
const LETTER_WIDTH = 6.4;

/**
 * A place for a chart. `draw(spec)` shows {kind: "line" | "area" | "stack", label, series: [{name, points: [[x, y]]}],
 * x: {time: boolean, min, max}, y: {max, format}, named: whether a single series has a legend too}.
 */
export function chart(height = 150) {
  const picture = h("div", { class: "picture" });
  const tip = h("div", { class: "tip", hidden: true });
  const legend = h("ul", { class: "legend" });
  const element = h("figure", { class: "chart" }, picture, tip, legend);
  let spec = null;
  let scale = null;
  let pointer = null;

  function redraw() {
    if (!spec || !element.clientWidth) return;
    scale = scaled(spec, element.clientWidth, height);
    picture.replaceChildren(drawn(spec, scale));
    showLegend(legend, spec);
    point();
  }

  function point() {
    tip.hidden = pointer === null;
    if (pointer !== null) tip.hidden = !showTip(tip, picture.firstChild, spec, scale, pointer);
  }

  new ResizeObserver(redraw).observe(element);
  picture.addEventListener("pointermove", (event) => {
    pointer = event.clientX - picture.getBoundingClientRect().left;
    if (scale) redraw();
  });
  picture.addEventListener("pointerleave", () => {
    pointer = null;
    redraw();
  });
  return {
    element,
    draw(next) {
      spec = prepared(next);
      redraw();
    },
  };
}

/** With what a stack adds up to: the lower and the upper edge of each series. */
function prepared(spec) {
  const series = spec.series.slice(0, SERIES_MAX);
  if (spec.kind !== "stack") return { ...spec, series };
  const below = new Map();
  const stacked = series.map((each) => ({
    ...each,
    edges: each.points.map(([x, y]) => {
      const low = below.get(x) ?? 0;
      below.set(x, low + y);
      return [x, low, low + y];
    }),
  }));
  return { ...spec, series: stacked };
}

function scaled(spec, width, height) {
  const all = spec.series.flatMap((each) => each.edges?.map(([x, , high]) => [x, high]) ?? each.points);
  const xs = all.map(([x]) => x);
  const ys = all.map(([, y]) => y);
  const xMin = spec.x.min ?? least(xs);
  const xMax = spec.x.max ?? most(xs);
  // A line may begin anywhere; what is filled begins at zero.
  const floor = spec.kind === "line" ? least(ys) : 0;
  const [yMin, yMax] = niceRange(Math.min(floor, spec.y?.max ?? floor), spec.y?.max ?? Math.max(most(ys), floor), 4);
  const format = spec.y?.format ?? compact;
  const yTicks = numberTicks(yMin, yMax, 4).map((value) => [value, format(value)]);
  const left = 10 + LETTER_WIDTH * Math.max(...yTicks.map(([, text]) => text.length));
  const plot = { left, top: MARGIN.top, width: width - left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const ticksMost = Math.max(1, Math.floor(plot.width / 72));
  return {
    width,
    height,
    plot,
    yTicks,
    xTicks: (spec.x.time ? timeTicks : numberLabels)(xMin, xMax, ticksMost),
    x: (value) => plot.left + (xMax > xMin ? (value - xMin) / (xMax - xMin) : 0.5) * plot.width,
    y: (value) => plot.top + (1 - (value - yMin) / (yMax - yMin)) * plot.height,
    xMin,
    xMax,
  };
}

// Not Math.min(...values): an answer may have more points than a call may have arguments.
const least = (values) => values.reduce((low, value) => (value < low ? value : low), values[0] ?? 0);
const most = (values) => values.reduce((high, value) => (value > high ? value : high), values[0] ?? 0);

function drawn(spec, scale) {
  const { plot, width, height } = scale;
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.label });
  for (const [value, text] of scale.yTicks) {
    const y = scale.y(value);
    root.append(svg("line", { class: "grid", x1: plot.left, x2: plot.left + plot.width, y1: y, y2: y }));
    root.append(svg("text", { x: plot.left - 6, y: y + 4, "text-anchor": "end" }, text));
  }
  for (const [value, text] of scale.xTicks) {
    const x = scale.x(value);
    const half = (text.length * LETTER_WIDTH) / 2;
    // A label that would stick out is pushed back in.
    const inside = Math.min(Math.max(x, half), width - half);
    root.append(svg("line", { class: "tick", x1: x, x2: x, y1: plot.top + plot.height, y2: plot.top + plot.height + 4 }));
    root.append(svg("text", { x: inside, y: height - 4, "text-anchor": "middle" }, text));
  }
  spec.series.forEach((each, index) => root.append(...marks(spec, each, index, scale)));
  return root;
}

function marks(spec, series, index, scale) {
  const seen = (point) => point[0] >= scale.xMin && point[0] <= scale.xMax;
  if (spec.kind === "stack") {
    const edges = series.edges.filter(seen);
    const upper = edges.map(([x, , high]) => [x, high]);
    const lower = edges.map(([x, low]) => [x, low]).reverse();
    return edges.length ? [svg("path", { class: `fill s${index}`, d: `${path([...upper, ...lower], scale)}Z` })] : [];
  }
  const points = series.points.filter(seen);
  if (points.length === 1) {
    return [svg("circle", { class: `dot s${index}`, cx: scale.x(points[0][0]), cy: scale.y(points[0][1]), r: 3 })];
  }
  const line = svg("path", { class: `line s${index}`, d: path(points, scale) });
  if (spec.kind !== "area" || !points.length) return [line];
  const closed = [[points[0][0], 0], ...points, [points.at(-1)[0], 0]];
  return [svg("path", { class: `shade s${index}`, d: `${path(closed, scale)}Z` }), line];
}

function path(points, scale) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${scale.x(x).toFixed(1)} ${scale.y(y).toFixed(1)}`).join("");
}

function showLegend(legend, spec) {
  legend.hidden = spec.series.length < 2 && !spec.named;
  if (legend.hidden) return;
  const items = spec.series.map(({ name }, index) =>
    h("li", { title: name }, h("span", { class: `key s${index}` }), h("span", {}, name)),
  );
  legend.replaceChildren(...items);
}

/** The values at the x nearest to the pointer; false if there are none. */
function showTip(tip, picture, spec, scale, pointer) {
  let nearest = null;
  for (const { points } of spec.series) {
    for (const [x] of points) {
      if (x < scale.xMin || x > scale.xMax) continue;
      if (nearest === null || Math.abs(scale.x(x) - pointer) < Math.abs(scale.x(nearest) - pointer)) nearest = x;
    }
  }
  if (nearest === null) return false;
  const at = scale.x(nearest);
  const { top, height } = scale.plot;
  picture.append(svg("line", { class: "cross", x1: at, x2: at, y1: top, y2: top + height }));
  const format = spec.y?.format ?? compact;
  const rows = spec.series.flatMap(({ name, points }, index) => {
    const found = points.find(([x]) => x === nearest);
    if (!found) return [];
    return [h("div", {}, h("span", { class: `key s${index}` }), `${name} `, h("b", {}, format(found[1])))];
  });
  tip.replaceChildren(h("div", { class: "hint" }, spec.x.time ? dayAndClock(nearest) : compact(nearest)), ...rows);
  tip.style.top = `${top}px`;
  tip.style.left = at < scale.width / 2 ? `${at + 10}px` : "auto";
  tip.style.right = at < scale.width / 2 ? "auto" : `${scale.width - at + 10}px`;
  return true;
}

/** Horizontal bars, one for each name; a value that is no finite number has none. */
export function bars(title, names, values, colour) {
  const finite = values.filter(Number.isFinite);
  const [low, high] = [Math.min(0, least(finite)), Math.max(0, most(finite))];
  const share = (value) => `${(value / (high - low || 1)) * 100}%`;
  const items = names.map((name, index) => {
    const value = values[index];
    const known = Number.isFinite(value);
    const length = h("span", { class: `length s${colour}` });
    length.style.width = share(known ? Math.abs(value) : 0);
    length.style.marginLeft = share(known ? Math.min(0, value) - low : 0);
    const lane = h("span", { class: "lane" }, length);
    return h("li", {}, h("span", { class: "name", title: name }, name), lane, h("b", {}, known ? compact(value) : "–"));
  });
  return h("figure", { class: "bars" }, h("figcaption", { class: "hint" }, title), h("ul", {}, items));
}
