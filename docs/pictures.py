"""Draws the pictures of concepts.md and ARCHITECTURE.md: `python docs/pictures.py` writes them to docs/images."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent / "images"
INK, SOFT, FAINT, TEAL, PALE, RED = "#263238", "#607d8b", "#cfd8dc", "#00796b", "#b2dfdb", "#c62828"
TUPLES = (0.6, 1.5, 2.2, 4.7, 5.4, 7.2, 8.3)  # minutes after 10:00
NOW = 9.0


class Picture:
    """An SVG on white, so that it can be read on a dark page too."""

    def __init__(self, width: int, height: int, says: str) -> None:
        self.width, self.height = width, height
        self.parts = [f"<title>{says}</title>", f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>']

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = SOFT, *, dash: str = "") -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        ends = f'x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"'
        self.parts.append(f'<line {ends} stroke="{color}" stroke-width="1.5"{dashed}/>')

    def box(self, x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> None:
        where = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
        self.parts.append(f'<rect {where} rx="4" fill="{fill}" stroke="{stroke}"/>')

    def dot(self, x: float, y: float, color: str = TEAL) -> None:
        self.parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" fill="{color}"/>')

    def text(
        self, x: float, y: float, said: str, *, color: str = INK, anchor: str = "start", code: bool = False
    ) -> None:
        family = ' font-family="monospace"' if code else ""
        said = said.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}" text-anchor="{anchor}"{family}>{said}</text>')

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'font-family="sans-serif" font-size="13">'
        )
        return "\n".join([head, *self.parts, "</svg>", ""])


def windows() -> Picture:
    """Which tuples each kind of window has, at one NOW."""
    picture = Picture(880, 372, "Which of seven tuples each window holds at NOW")
    left, minute = 300, 56

    def at(minutes: float) -> float:
        return left + minutes * minute

    for number in range(10):
        picture.line(at(number), 34, at(number), 350, FAINT)
        picture.text(at(number), 24, f"10:0{number}", color=SOFT, anchor="middle")
    picture.line(at(NOW), 34, at(NOW), 350, RED, dash="5 3")
    picture.text(at(NOW), 366, "NOW", color=RED, anchor="middle")
    rows: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = (
        ("no window: all that is kept", ((0, NOW),)),
        ("[RANGE 4 MINUTES]", ((NOW - 4, NOW),)),
        ("[ROWS 3]", ((5.2, NOW),)),
        ("BEGIN TIMESTAMP '... 10:02' END NOW", ((2, NOW),)),
        ("... END NOW - INTERVAL 2 MINUTES", ((NOW - 6, NOW - 2),)),
        ("window(at, '3 minutes')", ((0, 3), (3, 6), (6, 9))),
        ("window(at, '4 minutes', '2 minutes')", ((0, 4), (4, 8), (-2, 2), (2, 6), (6, 10))),
        ("session_window(at, '1 minute')", ((0.6, 3.2), (4.7, 6.4), (7.2, 8.2), (8.3, 9.3))),
    )  # fmt: skip
    for row, (name, spans) in enumerate(rows):
        y = 56 + row * 38
        picture.text(12, y + 4, name, code=name[0] in "[Bws.")
        for number, (begin, end) in enumerate(spans):
            halves = name.startswith("window(at, '4")
            top, height = (y - 15 + 15 * (number >= 2), 14) if halves else (y - 12, 24)
            begin_x, end_x = at(max(begin, 0)), at(min(end, 10))
            picture.box(begin_x, top, end_x - begin_x - 2, height, PALE, TEAL)
        for minutes in TUPLES:
            inside = any(begin <= minutes <= end for begin, end in spans)
            picture.dot(at(minutes), y, TEAL if inside else FAINT)
    return picture


def lifetimes() -> Picture:
    """When each row of a sliding window is in the answer, on the axis of NOW."""
    picture = Picture(880, 300, "The lifetimes of four rows in a window of four minutes")
    left, minute = 130, 64

    def at(minutes: float) -> float:
        return left + minutes * minute

    for number in range(11):
        picture.line(at(number), 40, at(number), 226, FAINT)
        picture.text(at(number), 30, f"10:{number:02}", color=SOFT, anchor="middle")
    picture.text(12, 30, "NOW is", color=SOFT)
    for row, (name, ts) in enumerate((("a", 0.5), ("b", 2.0), ("c", 3.5), ("d", 5.5))):
        y = 62 + row * 40
        picture.text(12, y + 4, f"{name}, ts 10:{int(ts):02}:{int(ts % 1 * 60):02}")
        picture.box(at(ts), y - 12, 4 * minute, 24, PALE, TEAL)
        picture.dot(at(ts), y)
        picture.text(at(ts) + 12, y + 5, "comes")
        picture.text(at(ts + 4) - 6, y + 5, "goes", anchor="end")
    for now, rows in ((3.75, "a, b, c"), (5.0, "b, c"), (7.0, "c, d")):
        picture.line(at(now), 40, at(now), 240, RED, dash="5 3")
        picture.text(at(now), 256, "answer", color=RED, anchor="middle")
        picture.text(at(now), 274, rows, color=RED, anchor="middle")
    picture.text(12, 256, "[RANGE 4 MINUTES]", code=True)
    return picture


def epochs() -> Picture:
    """The one log: batches, queries and tables in one order, and what an answer reflects."""
    picture = Picture(880, 290, "The log orders epochs, queries and changes of tables")
    entries = (
        ("stream trades", "made", INK),
        ("epoch 1", "3 trades", TEAL),
        ("query dear", "stands", INK),
        ("epoch 2", "2 trades", TEAL),
        ("epoch 3", "a table changed", TEAL),
        ("epoch 4", "4 trades", TEAL),
    )
    picture.text(20, 30, "pushes and sources: each batch becomes one epoch, wholly or not at all", color=SOFT)
    picture.text(20, 100, "the log", color=SOFT)
    for number, (first, second, color) in enumerate(entries):
        x = 20 + number * 142
        picture.box(x, 112, 134, 62, PALE if color == TEAL else "#eceff1", color)
        picture.text(x + 67, 130, f"entry {number + 1}", color=SOFT, anchor="middle")
        picture.text(x + 67, 148, first, color=color, anchor="middle")
        picture.text(x + 67, 165, second, color=color, anchor="middle")
        if color == TEAL:
            for dot in range(3):
                picture.dot(x + 49 + dot * 18, 52)
            picture.line(x + 67, 62, x + 67, 106)
            picture.line(x + 62, 100, x + 67, 108)
            picture.line(x + 72, 100, x + 67, 108)
    pinned = 20 + 4 * 142 - 4
    picture.line(pinned, 84, pinned, 214, RED, dash="5 3")
    picture.text(pinned, 232, "an answer asked here: entry 4, epoch 2", color=RED, anchor="middle")
    picture.text(pinned, 250, "it has all of epochs 1 and 2, and nothing of epoch 3", color=RED, anchor="middle")
    picture.text(20, 276, "The query came after epoch 1, and its answer covers epoch 1 all the same.", color=SOFT)
    return picture


def arrow(picture: Picture, x1: float, y1: float, x2: float, y2: float, color: str = SOFT) -> None:
    """A line that ends in a point, straight across or straight down."""
    picture.line(x1, y1, x2, y2, color)
    across, down = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    for side in (-5, 5):
        picture.line(x2 - 7 * across + side * abs(down), y2 - 7 * down + side * abs(across), x2, y2, color)


def step(
    picture: Picture, x: float, y: float, width: float, name: str, *said: str, file: str = "", durable: bool = False
) -> None:
    """One step of a way: what happens, in a few lines, and in which file to read it."""
    height = 30 + 17 * len(said) + (18 if file else 0)
    picture.box(x, y, width, height, PALE if durable else "#eceff1", TEAL if durable else SOFT)
    picture.text(x + 12, y + 21, name, color=TEAL if durable else INK)
    for number, line in enumerate(said):
        picture.text(x + 12, y + 40 + 17 * number, line, color=SOFT)
    if file:
        picture.text(x + 12, y + 41 + 17 * len(said), file, code=True)


def way_of_a_tuple() -> Picture:
    """From a push or a source to the log: what is durable is green."""
    picture = Picture(980, 520, "The way of a tuple, from a push or a source to an answer")
    step(picture, 20, 20, 290, "push", "rows as one Arrow file, fsynced", file="archive/inbox.py", durable=True)
    step(picture, 20, 130, 290, "source", "a micro-batch that Spark reads", file="pipeline/attached.py")
    step(picture, 350, 75, 290, "epoch: one Spark job", "schema, bounds on time, query set", file="ingest/epochs.py")
    arrow(picture, 310, 60, 344, 95)
    arrow(picture, 310, 165, 344, 130)
    picture.box(20, 230, 620, 190, "none", SOFT)
    picture.text(32, 252, "the task: no tuple passes through the driver", color=SOFT)
    arrow(picture, 495, 140, 495, 226)
    step(picture, 40, 266, 180, "cast and sort out", "misfits: quarantine", file="stem/intake.py")
    step(picture, 240, 266, 180, "probe the Query SteM", "in the eddy's order", file="stem/query_stem.py")
    step(picture, 440, 266, 180, "probe the Data SteMs", "pairs of joins", file="stem/join_kernel.py")
    arrow(picture, 220, 300, 234, 300)
    arrow(picture, 420, 300, 434, 300)
    picture.text(40, 366, "files, named by this attempt:", color=SOFT)
    picture.text(240, 366, "data", color=TEAL)
    picture.text(300, 366, "quarantine", color=TEAL)
    picture.text(400, 366, "results", color=SOFT)
    picture.text(470, 366, "pairs", color=SOFT)
    picture.text(40, 402, "to the driver: one row, the manifest", color=SOFT)
    picture.text(300, 402, "stem/epoch_kernel.py", code=True)
    step(
        picture,
        680,
        300,
        280,
        "commit: one entry of the log",
        "the files count from here on",
        file="catalog/store.py",
        durable=True,
    )
    arrow(picture, 640, 340, 674, 340)
    step(picture, 680, 170, 280, "snapshot", "immutable; readers pin one", file="catalog/snapshot.py")
    arrow(picture, 820, 300, 820, 241)
    step(picture, 680, 20, 280, "answers and subscribers", "read the files that it names", file="execute/executor.py")
    arrow(picture, 820, 170, 820, 91)
    picture.text(680, 420, "later: merged with its neighbours,", color=SOFT)
    picture.text(680, 437, "followed by the Delta table", color=SOFT)
    picture.text(680, 456, "housekeeping/maintenance.py", code=True)
    picture.box(20, 466, 16, 16, PALE, TEAL)
    picture.text(44, 479, "durable truth", color=TEAL)
    picture.box(160, 466, 16, 16, "#eceff1", SOFT)
    picture.text(184, 479, "everything else may be lost at any moment, and is made anew", color=SOFT)
    return picture


def way_of_a_query() -> Picture:
    """From a text to a standing query, and from there to its first answer."""
    picture = Picture(980, 500, "The way of a query, from its text to its answers")
    step(picture, 20, 20, 290, "text", "Spark's SQL, with windows", file="sql/grammar.py")
    step(picture, 345, 20, 290, "bind", "names, types, what DuckDB may run", file="sql/binder.py")
    step(
        picture,
        670,
        20,
        290,
        "plan",
        "scans: a block through a window",
        "residual: SQL over their rows",
        file="plan/query.py",
    )
    arrow(picture, 310, 60, 339, 60)
    arrow(picture, 635, 60, 664, 60)
    step(
        picture,
        670,
        160,
        290,
        "entry of the log",
        "the text, and what its names mean",
        file="catalog/meaning.py",
        durable=True,
    )
    arrow(picture, 815, 102, 815, 154)
    step(picture, 345, 160, 290, "tree of nodes", "rules peel; the rest is a Fragment", file="sql/peel/, plan/nodes.py")
    picture.line(730, 102, 730, 128)
    picture.line(560, 128, 730, 128)
    arrow(picture, 560, 128, 560, 154)
    step(picture, 20, 160, 290, "EXPLAIN", "patterns, who answers, coverage", file="execute/plan_tree.py")
    arrow(picture, 345, 195, 316, 195)
    step(picture, 670, 280, 290, "Query SteM", "its blocks meet every new tuple", file="stem/query_stem.py")
    step(picture, 345, 280, 290, "backfill", "its blocks meet the old tuples", file="ingest/backfill.py")
    arrow(picture, 815, 225, 815, 274)
    arrow(picture, 670, 315, 641, 315)
    step(picture, 345, 390, 290, "results, pairs, aggregates", "derived: covered, or computed", file="stem/results.py")
    arrow(picture, 490, 345, 490, 384)
    picture.line(760, 345, 760, 425)
    arrow(picture, 760, 425, 641, 425)
    step(picture, 20, 390, 290, "answer", "covered rows + what is computed", file="execute/invoke.py")
    arrow(picture, 345, 425, 316, 425)
    step(picture, 20, 280, 290, "invoke", "pin a snapshot; windows at NOW", file="execute/reader.py")
    arrow(picture, 165, 345, 165, 384)
    picture.text(670, 450, "Green is durable. All else is derived", color=SOFT)
    picture.text(670, 468, "from it, and may be thrown away.", color=SOFT)
    return picture


def way_of_a_delta() -> Picture:
    """From a commit, or a tick of the clock, to whoever follows a query."""
    picture = Picture(980, 470, "The way of a delta, from a commit to a subscriber")
    step(picture, 20, 20, 290, "commit, or a tick", "an entry; or time, where it tells", file="execute/following.py")
    step(
        picture, 345, 20, 290, "two moments: (entry, NOW)", "what is known, and what is now", file="execute/moments.py"
    )
    step(picture, 670, 20, 290, "between", "at(m1) + between(m1, m2) = at(m2)", file="execute/executor.py")
    arrow(picture, 310, 60, 339, 60)
    arrow(picture, 635, 60, 664, 60)
    step(
        picture,
        345,
        140,
        290,
        "extents at both moments",
        "intervals of time and of tuple ids",
        file="execute/moments.py",
    )
    picture.line(815, 85, 815, 175)
    arrow(picture, 815, 175, 641, 175)
    step(
        picture, 20, 255, 290, "the same: nothing moved", "NOW is carried on, with no rows", file="execute/following.py"
    )
    step(picture, 345, 255, 290, "rows picked from a stream", "come and go as extents do", file="execute/reader.py")
    step(picture, 670, 255, 290, "any other answer", "both answers, column by column", file="execute/difference.py")
    arrow(picture, 490, 205, 490, 249)
    picture.line(165, 228, 815, 228)
    arrow(picture, 165, 228, 165, 249)
    arrow(picture, 815, 228, 815, 249)
    step(picture, 345, 370, 290, "delta", "inserted, retracted, out, position", file="delta.py")
    picture.line(165, 320, 165, 345)
    picture.line(815, 320, 815, 345)
    picture.line(165, 345, 815, 345)
    arrow(picture, 490, 320, 490, 364)
    step(
        picture, 670, 370, 290, "a channel for all who follow", "encoded once, in pieces", file="protocols/http/hub.py"
    )
    arrow(picture, 635, 405, 664, 405)
    step(picture, 20, 370, 290, "here: q.subscribe(), a callback", "an iterator in this process", file="handles.py")
    arrow(picture, 345, 405, 316, 405)
    return picture


PICTURES = {
    "windows": windows,
    "lifetimes": lifetimes,
    "epochs": epochs,
    "way-of-a-tuple": way_of_a_tuple,
    "way-of-a-query": way_of_a_query,
    "way-of-a-delta": way_of_a_delta,
}

if __name__ == "__main__":
    for name, drawn in PICTURES.items():
        (HERE / f"{name}.svg").write_text(drawn().svg(), encoding="utf-8")
