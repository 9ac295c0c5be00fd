// Where an axis has its ticks, and what they say.

import { clock, compact, day, hour } from "./format.js";

const SECOND = 1000;
const DAY = 86_400 * SECOND;
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200]
  .map((seconds) => seconds * SECOND)
  .concat([1, 2, 7, 14, 30, 90, 365, 3650].map((days) => days * DAY));

/** 1, 2 or 5 times a power of ten. */
function niceStep(span, most) {
  const raw = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= raw * 0.999);
}

export function numberTicks(min, max, most) {
  if (!(max > min)) return [min];
  const step = niceStep(max - min, most);
  const ticks = [];
  // By multiplication: adding up steps would add up their errors.
  for (let n = Math.ceil(min / step - 1e-9); n * step <= max + step * 1e-9; n++) ticks.push(n * step || 0); // not -0
  return ticks;
}

/** The range of an axis of values, widened to its ticks. */
export function niceRange(min, max, most) {
  if (min === max) [min, max] = min === 0 ? [0, 1] : [Math.min(0, min), Math.max(0, max)];
  const step = niceStep(max - min, most);
  return [Math.floor(min / step + 1e-9) * step, Math.ceil(max / step - 1e-9) * step];
}

export function timeTicks(min, max, most) {
  const step = TIME_STEPS.find((each) => (max - min) / each <= most) ?? TIME_STEPS.at(-1);
  const ticks = [];
  for (let at = Math.ceil(min / step) * step; at <= max; at += step) ticks.push(at);
  const say = step >= DAY ? day : step >= 60 * SECOND ? hour : clock;
  return ticks.map((at) => [at, say(at)]);
}

export const numberLabels = (min, max, most) => numberTicks(min, max, most).map((value) => [value, compact(value)]);
