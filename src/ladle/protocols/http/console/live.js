// A copy of an answer, kept up to date by what comes into it and what goes.

/** `rowsMax` bounds it: of a longer answer it has the last rows, and heeds no more of what goes than it has. */
export function liveCopy(rowsMax) {
  const keys = new WeakMap();
  let rows = [];
  let gone = [];
  let fresh = new Set();
  let [came, went, begun] = [0, 0, false];

  const keyOf = (row) => {
    if (!keys.has(row)) keys.set(row, JSON.stringify(row));
    return keys.get(row);
  };

  function retract(retracted) {
    const left = new Map();
    for (const row of retracted) left.set(keyOf(row), (left.get(keyOf(row)) ?? 0) + 1);
    const stays = (row) => {
      const times = left.get(keyOf(row)) ?? 0;
      if (times) left.set(keyOf(row), times - 1);
      if (times && !fresh.delete(row)) gone.push(row);
      return !times;
    };
    rows = rows.filter(stays);
  }

  return {
    /** The newest row first. */
    begin(some) {
      [rows, gone, fresh, came, went, begun] = [some, [], new Set(), 0, 0, some.length > 0];
    },

    apply({ inserted, retracted }) {
      if (retracted.length) retract(retracted);
      rows = [...inserted.toReversed(), ...rows].slice(0, rowsMax);
      // The answer that it begins with is no news.
      if (begun) {
        inserted.forEach((row) => fresh.add(row));
        came += inserted.length;
        went += retracted.length;
      }
      begun = true;
    },

    /** What to draw: what came or went since the last time is marked, and forgotten then. */
    shown() {
      const marks = [...[...fresh].map((row) => [row, "fresh"]), ...gone.map((row) => [row, "gone"])];
      const seen = { rows, gone, marked: new Map(marks) };
      [fresh, gone] = [new Set(), []];
      return seen;
    },

    changes: () => (came || went ? ` · +${came.toLocaleString("en")} −${went.toLocaleString("en")}` : ""),
  };
}
