// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });

export const count = (value) => whole.format(value);

export const compact = (value) => (Math.abs(value) < 10_000 ? fine.format(value) : short.format(value));

export const rate = (value) => (value < 10 ? fine.format(Math.round(value * 10) / 10) : whole.format(value));

export const percent = (share) => `${fine.format(Math.round(share * 1000) / 10)} %`;

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${value < 10 && unit ? Math.round(value * 10) / 10 : Math.round(value)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(2))} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  for (const [size, name] of [[86_400, "days"], [3_600, "hours"], [60, "minutes"]]) {
    if (seconds >= 2 * size) return `${Number((seconds / size).toPrecision(3))} ${name}`;
  }
  return `${seconds} s`;
}

/** Milliseconds since 1970 of a time as the server writes it; one without a zone is UTC. NaN if it is none. */
export function moment(text) {
  const zoned = /(?:Z|[+-]\d\d:?\d\d)$/.test(text) || /^\d+-\d\d-\d\d$/.test(text);
  return Date.parse(zoned ? text : `${text}Z`);
}

export const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
export const hour = (ms) => new Date(ms).toISOString().slice(11, 16);
export const day = (ms) => new Date(ms).toISOString().slice(0, 10);
export const dayAndClock = (ms) => `${day(ms)} ${clock(ms)}`;
