// Lists that are looked at for a while: asked for now, and again every few seconds.

import { pause } from "./api.js";
import { showError } from "./dom.js";

const AGAIN_SECONDS = { min: 5, max: 60 };
// What takes the server long is asked for less often: for about a twentieth of the time.
const RARELY = 20;

/**
 * Shows what `ask` brings, while somebody looks; says what fails in `trouble`. `ask` may show a part early. Returns what
 * asks at once: whoever turns the page is not shown what was asked before.
 */
export function polled(ask, show, trouble, signal) {
  let turn = 0;
  let took = 0;

  async function load() {
    const mine = ++turn;
    const current = () => mine === turn && !signal.aborted;
    const began = performance.now();
    try {
      const told = await ask((early) => current() && show(early));
      took = (performance.now() - began) / 1000;
      if (!current()) return;
      showError(trouble, null);
      show(told);
    } catch (error) {
      if (current()) showError(trouble, error);
    }
  }

  async function run() {
    await load();
    while (!signal.aborted) {
      await pause(Math.min(Math.max(AGAIN_SECONDS.min, RARELY * took), AGAIN_SECONDS.max), signal);
      if (!document.hidden && !signal.aborted) await load();
    }
  }
  run();
  return load;
}
