// The last quarter of an hour, a sample a second, fetched once for all charts and only while somebody looks.

import { get, pause, withParams, ApiError } from "./api.js";

const SAMPLES_MAX = 900;
const samples = [];
const watchers = new Set();
let running = false;

/** Calls back with all samples, oldest first, now and whenever there are new ones. */
export function watch(callback, signal) {
  watchers.add(callback);
  signal.addEventListener("abort", () => watchers.delete(callback));
  if (samples.length) callback(samples);
  if (!running) run();
}

/** Told of the connection: an error, or null when all is well. Set by main.js. */
export const connection = { tell: () => {} };

async function run() {
  running = true;
  const never = new AbortController().signal;
  while (watchers.size) {
    if (!document.hidden) await poll();
    await pause(1, never);
  }
  running = false;
}

async function poll() {
  try {
    const path = withParams("/v1/history", { since: samples.at(-1)?.at ?? 0 });
    const { samples: fresh } = await get(path, { quietly: samples.length > 0 });
    connection.tell(null);
    samples.push(...fresh);
    samples.splice(0, samples.length - SAMPLES_MAX);
    if (fresh.length) for (const callback of watchers) callback(samples);
  } catch (error) {
    connection.tell(error instanceof ApiError ? error : new Error("No connection to the server; trying again."));
  }
}

/** Points for a chart: milliseconds and what `value(sample)` says; samples for which that is undefined have none. */
export function points(samples, value) {
  return samples.map((sample) => [sample.at * 1000, value(sample)]).filter(([, y]) => y !== undefined);
}

/** How fast a counter grows, per second. */
export function growth(counted) {
  return counted.slice(1).map(([at, value], index) => {
    const [before, last] = counted[index];
    return [at, Math.max(0, (value - last) / ((at - before) / 1000))];
  });
}
