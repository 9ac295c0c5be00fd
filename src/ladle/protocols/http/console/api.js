// The one way to the server: adds the token, asks for one when it is needed, and makes errors of error bodies.

const TOKEN = "ladle-token";
const RETRY_SECONDS_MAX = 30;

export class ApiError extends Error {
  constructor(status, { code, message, hint, position }) {
    super(message);
    Object.assign(this, { status, code, hint, position });
  }

  /** Whether it makes no sense to ask again. */
  get final() {
    return this.status >= 400 && this.status < 500 && this.status !== 429;
  }
}

/** Who asks people for a token: `ask(why)` promises whether there is a new one. Set by main.js. */
export const door = { ask: async () => false };

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => (text ? sessionStorage.setItem(TOKEN, text) : sessionStorage.removeItem(TOKEN)),
};

/** Told whether something takes longer than a moment to load. Set by main.js. */
export const loading = { tell: () => {} };
const MOMENT_MS = 250;
let underWay = 0;
let timer = null;

function begin() {
  if (underWay++ === 0) timer = setTimeout(() => loading.tell(true), MOMENT_MS);
}

function end() {
  if (--underWay > 0) return;
  clearTimeout(timer);
  loading.tell(false);
}

export const get = (path, how = {}) => call("GET", path, how);
export const post = (path, body, how = {}) => call("POST", path, { ...how, body });
export const remove = (path, how = {}) => call("DELETE", path, how);

/** The path of a query, a stream or what is below it; names may hold anything. */
export const at = (kind, name, rest = "") => `/v1/${kind}/${encodeURIComponent(name)}${rest}`;

export function withParams(path, params) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** What is asked for `quietly` is shown when it comes, and nobody waits for it. */
async function call(method, path, { body, signal, quietly = false } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (!quietly) begin();
  try {
    const reply = await send(path, { method, headers, signal, body: body && JSON.stringify(body) });
    return parsed(await reply.text());
  } finally {
    if (!quietly) end();
  }
}

async function send(path, request) {
  for (;;) {
    const used = token.get();
    const headers = used ? { ...request.headers, Authorization: `Bearer ${used}` } : request.headers;
    const reply = await fetch(path, { ...request, headers, cache: "no-store" });
    if (reply.ok) return reply;
    const error = new ApiError(reply.status, await trouble(reply));
    // Another request may have brought a token meanwhile.
    if (reply.status !== 401 || (token.get() === used && !(await door.ask(error)))) throw error;
    request.signal?.throwIfAborted();
  }
}

async function trouble(reply) {
  try {
    return (await reply.json()).error;
  } catch {
    return { code: "http", message: `The server answered ${reply.status} ${reply.statusText}.`, hint: null };
  }
}

/** JSON in which whole numbers too large for a double stay as they were written. */
function parsed(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && context ? context.source : value,
  );
}

/**
 * What comes into a query's answer and what goes, after a position, or without one the answer first: `heard({kind,
 * data})`, with kind `change`, `progress`, or `open` and `lost` when a connection is made or broke and will be made
 * again; an `open` with `anew` begins with the answer once more. Large deltas come in pieces, which are joined here.
 * fetch() rather than EventSource, which can't send a token.
 */
export async function follow(name, since, heard, signal) {
  let last = since;
  let wait = 1;
  while (!signal.aborted) {
    try {
      const from = last === null ? { snapshot: true } : { since: last };
      const path = withParams(at("queries", name, "/changes"), from);
      const reply = await send(path, { headers: { Accept: "text/event-stream" }, signal });
      heard({ kind: "open", anew: last === null });
      let pieces = [];
      for await (const event of events(reply.body.getReader())) {
        wait = 1;
        if (event.kind === "error") throw new ApiError(400, event.data.error);
        pieces.push(event.data);
        if (event.data.more) continue;
        last = event.data.position;
        const [inserted, retracted] = ["inserted", "retracted"].map((rows) => pieces.flatMap((piece) => piece[rows]));
        pieces = [];
        heard({ kind: event.kind, data: { ...event.data, inserted, retracted } });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.final) throw error;
    }
    heard({ kind: "lost" });
    await pause(wait, signal);
    wait = Math.min(2 * wait, RETRY_SECONDS_MAX);
  }
}

async function* events(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = { kind: "message", text: "" };
      for (const line of block.split("\n")) {
        const colon = line.indexOf(":");
        const [name, content] = [line.slice(0, colon), line.slice(colon + 1).trimStart()];
        if (name === "event") event.kind = content;
        else if (name === "data") event.text += content;
      }
      if (event.text) yield { kind: event.kind, data: parsed(event.text) };
    }
  }
}

/** Resolves after so many seconds, or at once when the signal says so. */
export function pause(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Seconds that the last invocation of a query took, as the server measured them, by name. */
export const latencies = new Map();

export async function invoke(name, params, signal) {
  const began = performance.now();
  const answer = await get(withParams(at("queries", name, "/answer"), params), { signal });
  answer.roundTrip = (performance.now() - began) / 1000;
  latencies.set(name, answer.seconds);
  return answer;
}
