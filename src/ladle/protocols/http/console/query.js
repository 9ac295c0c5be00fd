// One standing query: its text, its answer now, as it changes, and in the past.

import { sharedWith } from "./access.js";
import { at, follow, get, invoke, pause, remove } from "./api.js";
import { picture, summary, table } from "./answer.js";
import { count, dayAndClock, duration, moment, percent } from "./format.js";
import { field, h, section, select, showError, tabs } from "./dom.js";
import { coverageOf, modeOf } from "./queries.js";
import { explanation } from "./plan.js";
import { keepText } from "./editor.js";
import { liveCopy } from "./live.js";
import { owns, whoAmI } from "./me.js";
import { sharing } from "./sharing.js";
import { timeSlider } from "./slider.js";

const PAGE_ROWS = 2_000;
const FOLLOWED_MAX = 500;
const COPIED_MAX = 2_000;
const DRAWN_MS = 100;
const GONE_MS = 2_000;

export function queryView(root, name, signal) {
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const facts = h("dl", { class: "figures" });
  const text = h("pre", { class: "sql", tabindex: "0", "aria-label": "The query's text" });
  const dropping = h("button", { type: "button", hidden: true, click: () => drop(name, trouble) }, "Drop");
  root.append(
    h("div", { class: "row" }, h("h1", {}, name),
      h("a", { class: "button", href: "#/sql", click: () => keepText(text.textContent) }, "Edit a copy"), dropping),
    trouble,
    facts,
    text,
  );
  const shown = answerPanel(name, signal);
  const shared = sharing(name, describe, signal);
  root.append(shown.element, shared.element);
  describe();

  async function describe() {
    try {
      const [query, me] = await Promise.all([get(at("queries", name), { signal }), whoAmI()]);
      text.textContent = query.sql;
      dropping.hidden = !owns(me, query);
      shared.show(query, me);
      showFacts(query);
      shown.limitPast(await retained(query.streams, signal));
      // How it is takes longer to tell than what it is.
      showFacts(await get(at("queries", name, "?status=true"), { signal }));
    } catch (error) {
      if (!signal.aborted) showError(trouble, error);
    }
  }

  function showFacts(query) {
    const { status } = query;
    const all = {
      streams: query.streams.join(", ") || "–",
      window: query.window,
      mode: modeOf(query),
      coverage: status ? percent(coverageOf(status)) : "…",
      invocations: status ? count(status.invocations) : "…",
      owner: query.owner ?? "–",
      "shared with": query.owner === null ? "everybody" : sharedWith(query),
      created: dayAndClock(query.created_us / 1000),
    };
    facts.replaceChildren(...Object.entries(all).map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value))));
  }
}

async function drop(name, trouble) {
  if (!confirm(`Drop the query ${name}? Its answer can't be asked for any more.`)) return;
  try {
    await remove(at("queries", name));
    location.hash = "#/queries";
  } catch (error) {
    showError(trouble, error);
  }
}

/** Seconds that the shortest of the streams keeps, or null: for ever. */
async function retained(names, signal) {
  const { streams } = await get("/v1/streams", { signal });
  const kept = streams.filter((stream) => names.includes(stream.name) && stream.retain_us !== null);
  return kept.length ? Math.min(...kept.map((stream) => stream.retain_us)) / 1e6 : null;
}

/** Of an answer in pages, the last. */
async function lastRows(answer, signal) {
  if (!answer.next) return answer.rows;
  const page = new URL(answer.next, location.href);
  page.searchParams.set("start", answer.rows_total - FOLLOWED_MAX);
  page.searchParams.set("limit", FOLLOWED_MAX);
  return (await get(page.pathname + page.search, { signal })).rows;
}

function answerPanel(name, signal) {
  const label = `Answer of ${name}`;
  const how = select({ once: "when asked", every: "every", subscribe: "as it changes" }, "once");
  const seconds = h("input", { type: "number", min: 0.5, max: 3600, step: 0.5, value: 2, class: "narrow" });
  const secondsField = field("Seconds", seconds, { hidden: true });
  const ask = h("button", { type: "button", class: "main", click: () => restart() }, "Ask");
  const told = h("p", { class: "hint", role: "status" });
  const trouble = h("p", { class: "notice bad", role: "alert", hidden: true });
  const rowsPlace = h("div");
  const chartPlace = picture(label);
  const explained = h("div");
  const drawnPlan = h("div");
  const slider = timeSlider(() => restart());
  const panels = { Table: rowsPlace, Chart: chartPlace.element, Explain: explained, Plan: drawnPlan };
  const shown = tabs("The answer as", panels, (tab) => {
    if (tab === "Explain" || tab === "Plan") explain();
  });
  const controls = h("div", { class: "row" }, field("Refreshed", how), secondsField, ask);
  const element = section("Answer", controls, slider.element, trouble, told, shown.element);
  let turn = new AbortController();
  signal.addEventListener("abort", () => turn.abort());

  /** Begins anew with what the controls say now. */
  async function restart() {
    turn.abort();
    turn = new AbortController();
    const mine = turn.signal;
    secondsField.hidden = how.value !== "every";
    // What changes all the time is not read aloud all the time.
    told.setAttribute("aria-live", how.value === "once" ? "polite" : "off");
    showError(trouble, null);
    try {
      if (slider.past !== null) await showPast(mine);
      else if (how.value === "subscribe") await subscribe(mine);
      else await refresh(mine);
    } catch (error) {
      if (!mine.aborted) showError(trouble, error);
    }
  }

  async function showPast(mine) {
    const answer = await invoke(name, { now: new Date(slider.past).toISOString(), limit: PAGE_ROWS }, mine);
    show(answer, `As of ${dayAndClock(slider.past)}`);
  }

  async function refresh(mine) {
    await showNow(mine);
    while (how.value === "every" && !mine.aborted) {
      await pause(Math.max(0.5, Number(seconds.value) || 2), mine);
      if (document.hidden || mine.aborted) continue;
      try {
        await showNow(mine);
        showError(trouble, null);
      } catch (error) {
        // A server that is busy or away may be back next time.
        if (mine.aborted || error.final) throw error;
        showError(trouble, error);
      }
    }
  }

  async function showNow(mine) {
    const answer = await invoke(name, { limit: PAGE_ROWS }, mine);
    slider.setNow(moment(answer.now));
    show(answer, `As of ${dayAndClock(moment(answer.now))}`);
  }

  async function subscribe(mine) {
    for (;;) {
      try {
        return await followed(mine);
      } catch (error) {
        // What was missed is not known any more, or the query was replaced: the answer as it is now says it all.
        if (mine.aborted || error.code !== "gone") throw error;
        await pause(1, mine);
      }
    }
  }

  async function followed(mine) {
    const answer = await invoke(name, { limit: FOLLOWED_MAX }, mine);
    slider.setNow(moment(answer.now));
    // A small answer is copied whole, and stays what the answer is. Of a large one there are the last rows.
    const isWhole = answer.rows_total <= COPIED_MAX;
    const copy = liveCopy(isWhole ? Infinity : FOLLOWED_MAX);
    // The newest first: that is where eyes and scroll bars are.
    if (!isWhole) copy.begin((await lastRows(answer, mine)).toReversed());
    let [epoch, drawing] = [answer.epoch, 0];
    const draw = () => {
      drawing = 0;
      if (mine.aborted) return;
      const { rows, gone, marked } = copy.shown();
      showRows(answer.columns, rows, { marked, gone });
      const which = isWhole ? "" : "the last ";
      told.textContent = `Subscribed · epoch ${count(epoch)} · ${which}${count(rows.length)} rows${copy.changes()}`;
      // What went is seen going.
      if (gone.length) drawing = setTimeout(draw, GONE_MS);
    };
    if (!isWhole) draw();
    await follow(name, isWhole ? null : epoch, ({ kind, data, anew }) => {
      if (kind === "lost") told.textContent = "The connection broke; trying again.";
      if (anew) copy.begin([]);
      if (kind === "change") copy.apply(data);
      epoch = data?.epoch ?? epoch;
      // Changes that come close together are drawn together.
      if (kind !== "lost") drawing ||= setTimeout(draw, DRAWN_MS);
    }, mine);
  }

  function show(answer, when) {
    const fetchMore = answer.next && (() => more(answer));
    // Whoever went on to a further page has all before it in view.
    const step = answer.further ? answer.rows.length : undefined;
    showRows(answer.columns, answer.rows, { total: answer.rows_total, fetchMore, step });
    const way = `answered in ${duration(answer.seconds)}, ${duration(answer.roundTrip)} with the way here`;
    told.textContent = `${when} · ${summary(answer)} · ${way}`;
  }

  async function more(answer) {
    const mine = turn.signal;
    try {
      const page = await get(answer.next, { signal: mine });
      const longer = { ...answer, further: true, next: page.next, rows: [...answer.rows, ...page.rows] };
      show(longer, told.textContent.split(" · ")[0]);
    } catch (error) {
      if (!mine.aborted) showError(trouble, error);
    }
  }

  function showRows(columns, rows, { gone = [], ...options } = {}) {
    const scrolled = rowsPlace.querySelector(".scroll");
    const [top, left, focused] = [scrolled?.scrollTop, scrolled?.scrollLeft, scrolled && scrolled === document.activeElement];
    rowsPlace.replaceChildren(table(label, columns, [...gone, ...rows], options));
    const renewed = rowsPlace.querySelector(".scroll");
    // A refreshed answer must not throw its reader back to the top.
    if (scrolled && renewed) [renewed.scrollTop, renewed.scrollLeft] = [top, left];
    if (focused && renewed) renewed.focus();
    chartPlace.draw(columns, rows, options.total);
  }

  async function explain() {
    try {
      const { said, graph } = await explanation(name, signal);
      explained.replaceChildren(said);
      drawnPlan.replaceChildren(graph);
    } catch (error) {
      if (!signal.aborted) showError(trouble, error);
    }
  }

  how.addEventListener("change", restart);
  seconds.addEventListener("change", restart);
  restart();
  return { element, limitPast: slider.limit };
}
