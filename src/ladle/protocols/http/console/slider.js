// A slider over the past of a query: any NOW between what its streams keep and the last answer.

import { dayAndClock, duration, moment } from "./format.js";
import { field, h, select } from "./dom.js";

const STEPS = 1_000;
const SETTLE_MS = 120;
const RANGES = { 60: "minute", 600: "10 minutes", 3600: "hour", 86400: "day", 604800: "week", 2592000: "30 days" };

/** `past` is the moment chosen, in milliseconds, or null for now; `moved()` is called when that changes. */
export function timeSlider(moved) {
  const range = select(RANGES, "3600");
  const label = "The moment that the answer is of";
  const handle = h("input", { type: "range", min: 0, max: STEPS, step: 1, value: STEPS, "aria-label": label });
  const exact = h("input", { type: "datetime-local", step: 1 });
  const back = h("button", { type: "button", hidden: true, click: () => go(null) }, "Back to now");
  const shown = h("output", { class: "moment" }, "now");
  const element = h(
    "div",
    { class: "slider", role: "group", "aria-label": "The past" },
    field("The last", range),
    h("div", { class: "rail" }, handle, shown),
    field("At (UTC)", exact),
    back,
  );
  let now = Date.now();
  let past = null;
  let settling = 0;

  const span = () => Number(range.value) * 1000;
  const chosen = () => (Number(handle.value) >= STEPS ? null : Math.round(now - span() * (1 - handle.value / STEPS)));

  function show() {
    const text = past === null ? "now" : `${dayAndClock(past)}, ${duration(Math.round((now - past) / 1000))} before`;
    shown.textContent = text;
    handle.setAttribute("aria-valuetext", text);
    back.hidden = past === null;
    element.classList.toggle("is-past", past !== null);
    exact.value = new Date(past ?? now).toISOString().slice(0, 19);
  }

  function go(to) {
    past = to;
    handle.value = to === null ? STEPS : Math.max(0, STEPS * (1 - (now - to) / span()));
    show();
    moved();
  }

  handle.addEventListener("input", () => {
    past = chosen();
    show();
    // While the handle moves the server is asked a few times a second, not at every pixel.
    clearTimeout(settling);
    settling = setTimeout(moved, SETTLE_MS);
  });
  range.addEventListener("change", () => {
    if (past !== null) go(Math.max(past, now - span()));
  });
  exact.addEventListener("change", () => {
    const to = moment(exact.value);
    if (Number.isFinite(to)) go(to >= now ? null : to);
  });
  return {
    element,
    get past() {
      return past;
    },
    setNow(ms) {
      now = ms;
      if (past === null && document.activeElement !== exact) show();
    },
    /** Ranges beyond what is kept are taken away, all but the shortest of them; null is for ever. */
    limit(seconds) {
      if (seconds === null) return;
      const options = [...range.options];
      const enough = options.findIndex((option) => Number(option.value) >= seconds);
      if (enough < 0) return;
      const kept = h("option", { value: String(Math.round(seconds)) }, `${duration(seconds)}: all that is kept`);
      options.slice(enough).forEach((option) => option.remove());
      range.append(kept);
      if (!range.value) range.value = kept.value;
      if (past === null) show();
    },
  };
}
