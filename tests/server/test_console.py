"""The console in a real browser: what is pushed and asked is seen, also with the keyboard alone and on a phone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect, sync_playwright
from tests.server.conftest import TICKS, Serve, as_user

from ladle.config import Settings
from ladle.engine import Database
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline

pytestmark = pytest.mark.browser

ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PHONE = {"width": 360, "height": 740}
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
VIEWS = (
    *("#/streams", "#/streams/ticks", "#/queries", "#/queries/positive", "#/sql", "docs.html"),
    *("#/tables", "#/tables/places", "#/functions", "#/sources", "#/derived", "#/access"),
)
HALF = "CREATE FUNCTION half(x DOUBLE) RETURNS DOUBLE LANGUAGE PYTHON AS $$\ndef half(x):\n    return x / 2\n$$"
FLOOR = "CREATE SOURCE floor FOR ticks FORMAT mqtt OPTIONS (host '127.0.0.1', port 1, topic 't', password 'hush')"

TIMEOUT_MS = 20_000
"""Only what is broken takes so long, also on a machine that does other things."""

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("No chromium or google-chrome on PATH: `make browser` installs one.")
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, str]]:
    """One database for most tests: a row a minute, two queries, something in quarantine, and one of all else."""
    db = connect_inline(Path(tmp_path_factory.mktemp("console")) / "warehouse", settings={})
    server = Server(db, Settings.load({"port": 0}))
    server.start()
    db.sql("CREATE STREAM ticks (n INT, word STRING, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT n, word, at FROM ticks WHERE n >= 0 AND word <> 'none'", name="positive")
    db.register(
        "SELECT word, count(*) AS times, sum(n) AS total FROM ticks GROUP BY word "
        "BEGIN NOW - INTERVAL 10 MINUTES END NOW",
        name="words",
    )
    push(db, *range(30))
    db.push("ticks", [{"n": "<img src=x>", "word": "<b>bold</b>", "at": START}], wait=True)
    db.execute(f"CREATE TABLE places (name STRING, height DECIMAL(6,2)); {HALF}; {FLOOR}")
    db.sql("INSERT INTO places VALUES " + ", ".join(f"('place {n}', {n}.5)" for n in range(120)))
    yield db, f"{server.url}/console/"
    server.stop()
    db.close()


def push(db: Database, *numbers: int) -> None:
    rows = [{"n": n, "word": f"w{n % 3}", "at": START + timedelta(minutes=n)} for n in numbers]
    db.push("ticks", rows, wait=True)


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Open]:
    """Opens pages, each in a profile of its own; at the end nothing may have gone wrong in any."""
    said: list[str] = []
    contexts = []

    def note(message: Any) -> None:
        # That a request was refused is logged by the browser itself; what the page makes of it is tested.
        refused = message.text.startswith("Failed to load resource: the server responded with a status of 4")
        if message.type in ("error", "warning") and not refused:
            said.append(message.text)

    def start(address: str, **how: Any) -> Page:
        context = chromium.new_context(viewport=how.pop("viewport", {"width": 1200, "height": 900}), **how)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        return page

    yield start
    for context in contexts:
        context.close()
    assert said == []


def enter(open_page: Open, url: str, token: str, view: str, **how: Any) -> Page:
    """A page for who comes with a token."""
    page = open_page(f"{url}/console/{view}", **how)
    page.locator("#token-text").fill(token)
    page.keyboard.press("Enter")
    return page


def write(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="SQL").fill(text)


def test_streams_and_their_charts(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(url)
    card = page.get_by_role("article", name="Stream ticks")
    expect(card.locator("svg path.line")).to_have_count(1)
    expect(card.locator("dl")).to_contain_text("rows30")
    expect(card.locator("dl")).to_contain_text("quarantined1")
    expect(page.locator("#who")).to_have_text("local admin")
    card.get_by_role("link", name="ticks").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ticks")
    for title in ("Rows per second", "Epochs per second", "Pushes pending", "Rows quarantined", "Bytes on disk"):
        expect(page.get_by_role("region", name=title, exact=True).locator("svg")).to_be_visible()


def test_tickets_and_quarantine(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(f"{url}#/streams/ticks")
    tickets = page.get_by_role("region", name="The eddy's tickets")
    expect(tickets.locator(".legend li")).to_have_text(["n", "word"])
    expect(tickets.locator("path.fill")).to_have_count(2)
    quarantine = page.get_by_role("region", name="Quarantine", exact=True)
    expect(quarantine.locator("tbody tr")).to_have_count(1)
    expect(quarantine).to_contain_text("n: '<img src=x>' is not a INT")
    # What a stream brings is text, whatever it looks like.
    expect(page.locator("main img, main b:text('bold')")).to_have_count(0)


def test_an_error_is_marked_where_it_is(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(f"{url}#/sql")
    write(page, "SELECT n,\n  m FROM ticks")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("Line 2, column 3: Column 'm' not found.")
    expect(page.locator(".marks mark")).to_have_text("m")
    expect(page.locator(".gutter .bad")).to_have_text("2")
    # The mark lies below the letter it marks.
    mark, letter = (
        page.evaluate(f"(() => {{ const r = {box}; return [r.left, r.top] }})()")
        for box in (
            "document.querySelector('.marks mark').getBoundingClientRect()",
            "(() => { const range = document.createRange(); const text = document.querySelector('.colours').childNodes;"
            "const node = [...text].find((each) => each.textContent.includes('m '));"
            "const at = node.textContent.indexOf('m '); range.setStart(node, at); range.setEnd(node, at + 1);"
            "return range.getBoundingClientRect() })()",
        )
    )
    assert mark == pytest.approx(letter, abs=1)
    page.get_by_role("button", name="Go there").click()
    selected = "[document.activeElement.selectionStart, document.activeElement.selectionEnd]"
    assert page.evaluate(selected) == [12, 13]
    write(page, "SELECT n FROM ticks")
    expect(page.locator(".marks mark")).to_have_count(0)


def test_a_script_its_answers_and_its_plan(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(f"{url}#/sql")
    write(page, "SHOW STREAMS; SELECT word, count(*) AS times FROM ticks GROUP BY word ORDER BY word")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".answer")).to_have_count(2)
    expect(page.locator(".answer").nth(1).locator("tbody tr")).to_have_text(["w010", "w110", "w210"])
    page.locator(".answer").nth(1).get_by_role("tab", name="Chart").click()
    expect(page.locator(".answer").nth(1).locator(".bars li")).to_have_count(3)
    # Of a condition that no other test's query has, nothing is covered, whichever come first.
    write(page, "SELECT word FROM ticks WHERE n <> 3 BEGIN NOW - INTERVAL 1 HOUR END NOW")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("pre.explain")).to_contain_text("ticks")
    page.get_by_role("tab", name="Plan").click()
    expect(page.locator(".plan g.node .kind")).to_have_text(["STREAMSCAN", "PROJECT", "ANSWER"])
    expect(page.locator(".plan g.edge")).to_have_count(2)
    expect(page.locator(".kind-streamscan .note")).to_have_text(["weakest", re.compile(r"0 of \d+ segments")])
    kinds = ("streamscan", "project", "answer")
    lefts = {kind: page.locator(f".kind-{kind} rect").first.bounding_box() for kind in kinds}
    assert lefts["streamscan"]["x"] < lefts["project"]["x"] < lefts["answer"]["x"]  # type: ignore[index]


def test_a_plan_says_what_is_kept_of_each_node(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    text = (
        "SELECT window.start AS w, word, count(*) AS c FROM ticks GROUP BY window(at, '10 minutes', '5 minutes'), word"
    )
    db.register(f"{text} HAVING c > 2 ORDER BY w, word", name="hopping", materialize="partial")
    db.invoke("hopping")
    page = open_page(f"{url}#/sql")
    write(page, "SELECT * FROM hopping")
    page.get_by_role("button", name="Explain").click()
    page.get_by_role("tab", name="Plan").click()
    kinds = ["STREAMSCAN", "TIMEWINDOWS", "GROUPBY", "FILTER", "PROJECT", "SORT", "ANSWER"]
    expect(page.locator(".plan g.node .kind")).to_have_text(kinds)
    notes = page.locator(".kind-groupby .note")
    expect(notes).to_contain_text(["weak, premature", re.compile(r"(\d) of \1 segments"), "partial", "bytes"])
    expect(page.locator(".kind-groupby .title")).to_have_text("tree of aggregates")
    expect(page.locator(".plan .note").filter(has_text="took")).to_have_count(0)
    page.get_by_role("button", name="Run and measure each step").click()
    expect(notes.filter(has_text="took")).to_contain_text(["rows"])
    page.get_by_role("tab", name="Explain").click()
    expect(page.get_by_label("EXPLAIN", exact=True)).to_contain_text("analyzed")
    db.unregister("hopping")


def test_an_answer_as_table_and_chart_and_in_the_past(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(f"{url}#/queries/words")
    rows = page.get_by_role("region", name="Answer of words")
    expect(rows.locator("tbody tr")).to_have_count(3)
    expect(page.get_by_text("answered in")).to_be_visible()
    page.get_by_role("tab", name="Chart").click()
    expect(page.locator(".bars figcaption")).to_have_text(["times", "total"])
    page.get_by_role("tab", name="Table").click()
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("Home")
    # An hour before the last row there was none.
    expect(page.get_by_text("No rows.").first).to_be_visible()
    expect(page.locator("output.moment")).to_contain_text("2026-01-01 11:29:00")
    page.get_by_label("At (UTC)").fill("2026-01-01T12:02:30")
    page.get_by_label("At (UTC)").blur()
    expect(rows.locator("tbody tr")).to_have_text(["w010", "w111", "w212"])
    page.get_by_role("button", name="Back to now").click()
    expect(page.locator("output.moment")).to_have_text("now")


def test_a_subscription_adds_rows(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    db.sql("CREATE STREAM beats (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT n, at FROM beats WHERE n >= 0", name="beating")
    page = open_page(f"{url}#/queries/beating")
    page.get_by_label("Refreshed").select_option("as it changes")
    expect(page.get_by_text("Subscribed")).to_be_visible()
    db.push("beats", [{"n": n, "at": START} for n in (-1, 7)], wait=True)
    rows = page.get_by_role("region", name="Answer of beating").locator("tbody tr")
    expect(rows).to_have_text(["72026-01-01 12:00:00Z"])
    expect(page.locator("tr.fresh")).to_have_count(1)
    db.push("beats", [{"n": 8, "at": START + timedelta(seconds=1)}], wait=True)
    expect(rows).to_have_text(["82026-01-01 12:00:01Z", "72026-01-01 12:00:00Z"])
    page.get_by_role("tab", name="Chart").click()
    expect(page.locator(".answer-chart path.line")).to_have_count(1)


def subscribed(open_page: Open, url: str, name: str, told: str) -> tuple[Page, Locator]:
    """A page that follows a query and says so, and the rows that it shows."""
    page = open_page(f"{url}#/queries/{name}")
    page.get_by_label("Refreshed").select_option("as it changes")
    expect(page.get_by_text("Subscribed")).to_contain_text(told)
    return page, page.get_by_role("region", name=f"Answer of {name}").locator("tbody tr")


def test_a_subscription_takes_rows_away(
    site: tuple[Database, str], open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page keeps a copy of the answer: what goes is seen going, and is gone then. Large deltas come in pieces."""
    monkeypatch.setattr("ladle.formats.deltas.PIECE_BYTES", 40)
    db, url = site
    db.sql("CREATE TABLE stock (item STRING, left INT)")
    db.sql("INSERT INTO stock VALUES ('nails', 7), ('glue', 2), ('wood', 9), ('wood', 9)")
    db.register("SELECT item, left FROM stock WHERE left > 0", name="in_stock")
    page, rows = subscribed(open_page, url, "in_stock", "4 rows")
    expect(rows).to_have_text(["wood9", "wood9", "glue2", "nails7"])
    expect(page.locator("tr.fresh")).to_have_count(0)
    db.sql("UPDATE stock SET left = left - 2 WHERE item <> 'wood'")
    expect(page.locator("tr.gone")).to_have_text(["glue2", "nails7"])
    expect(page.locator("tr.fresh")).to_have_text(["nails5"])
    expect(page.get_by_text("Subscribed")).to_contain_text("3 rows · +1 \N{MINUS SIGN}2")
    expect(rows).to_have_text(["nails5", "wood9", "wood9"])
    expect(page.locator("tr.gone")).to_have_count(0)


def test_a_subscription_begins_anew_when_its_query_is_replaced(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    db.sql("CREATE TABLE shelf (item STRING, left INT)")
    db.sql("INSERT INTO shelf VALUES ('nails', 7), ('glue', 0)")
    db.register("SELECT item FROM shelf WHERE left > 0", name="on_shelf")
    _, rows = subscribed(open_page, url, "on_shelf", "1 rows")
    expect(rows).to_have_text(["nails"])
    db.sql("CREATE OR REPLACE QUERY on_shelf AS SELECT item, left FROM shelf WHERE left = 0")
    expect(rows).to_have_text(["glue0"])
    db.sql("INSERT INTO shelf VALUES ('wood', 0)")
    expect(rows).to_have_text(["wood0", "glue0"])


def test_a_refreshed_answer_follows(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    db.sql("CREATE TABLE IF NOT EXISTS notes (text STRING)")
    db.register("SELECT count(*) AS notes FROM notes", name="noted", if_not_exists=True)
    page = open_page(f"{url}#/queries/noted")
    page.get_by_label("Refreshed").select_option("every")
    page.get_by_label("Seconds").fill("0.5")
    expect(page.locator("tbody td")).to_have_text("0")
    db.sql("INSERT INTO notes VALUES ('a')")
    expect(page.locator("tbody td")).to_have_text("1")
    db.unregister("noted")
    expect(page.get_by_role("alert").filter(has_text="noted").first).to_be_visible()


def test_queries_are_listed_in_pages_and_found(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    texts = {f"many_{n:03d}": f"SELECT n FROM ticks WHERE n > {n}" for n in range(60)}
    db.register_many(texts, if_not_exists=True)
    page = open_page(f"{url}#/queries")
    lines = page.locator("table.queries tbody tr")
    expect(lines).to_have_count(50)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("status").filter(has_text="51")).to_be_visible()
    page.get_by_label("Search").fill("WORDS")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text("sliding")
    expect(lines).to_contain_text("100 %")
    lines.get_by_role("button").click()
    expect(lines.locator(".c-latency")).to_contain_text("ms")


def test_registering_with_the_keyboard_alone(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    page = open_page(f"{url}#/streams")
    expect(page.locator(".card svg").first).to_be_visible()
    press = page.keyboard.press
    press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for name in ("Ladle", "Streams", "Queries", "Editor"):
        press("Tab")
        expect(page.locator(".bar").get_by_role("link", name=name)).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("Enter")
    expect(page.get_by_role("heading", name="Editor")).to_be_focused()
    press("Tab")
    press("Control+a")
    page.keyboard.type("SELECT n FROM ticks WHERE n > 5")
    for _ in ("run", "explain", "name"):
        press("Tab")
    page.keyboard.type("typed")
    press("Enter")
    expect(page.get_by_role("status").filter(has_text="The query typed stands.")).to_be_visible()
    assert "typed" in [query.name for query in db.queries()]
    for _ in ("materialize", "replace", "register", "the link"):
        press("Tab")
    press("Enter")
    expect(page.get_by_role("heading", name="typed")).to_be_focused()
    expect(page.get_by_role("region", name="Answer of typed").locator("tbody tr").first).to_be_visible()
    page.get_by_role("tab", name="Table").focus()
    press("ArrowRight")
    expect(page.get_by_role("tab", name="Chart")).to_be_focused()
    expect(page.get_by_role("tab", name="Chart")).to_have_attribute("aria-selected", "true")


def test_nothing_is_wider_than_a_phone(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(url, viewport=PHONE)
    for view in VIEWS:
        page.goto(url + view)
        expect(page.locator("svg, tbody tr, textarea, article").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], view


def test_a_sign_while_something_loads(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(url)
    expect(page.get_by_role("article", name="Stream ticks")).to_be_visible()
    sign = page.locator("#loading")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/tables", hold)
    page.evaluate("location.hash = '#/tables'")
    expect(sign).to_have_text("Loading …")
    expect(page.locator("main")).to_have_attribute("aria-busy", "true")
    for route in held:
        route.continue_()
    page.unroute("**/v1/tables")
    expect(page.locator("table.tables tbody tr").filter(has_text="places")).to_be_visible()
    expect(sign).to_have_text("")
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")


def test_a_phone_shows_reasons_of_the_quarantine_whole(serve: Serve, open_page: Open) -> None:
    db, url = serve()
    db.sql(TICKS)
    db.push("ticks", [{"n": "a number that is none, in many words", "at": START}], wait=True)
    reason = str(db.sql("SELECT reason FROM ticks.quarantine")[0]["reason"])
    page = open_page(f"{url}/console/#/streams/ticks", viewport=PHONE)
    told = page.locator(".quarantine td:nth-child(3)")
    expect(told).to_have_text(reason)
    assert page.locator(".quarantine .scroll").evaluate("box => box.scrollWidth <= box.clientWidth")
    box = told.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]


def test_light_and_dark(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(url, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    light = page.evaluate(background)
    assert dark != light
    page.reload()
    assert page.evaluate(background) == light


def test_the_interface_is_documented(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(f"{url}docs.html")
    operation = page.locator(".operation").filter(has_text="Register standing queries")
    expect(operation.get_by_role("heading")).to_have_text("POST /v1/queries")
    expect(operation.locator(".curl pre")).to_contain_text("curl -H 'Authorization: Bearer TOKEN' -X POST")
    expect(operation).to_contain_text("materialize")


def test_a_token_is_asked_for(serve: Serve, open_page: Open) -> None:
    db, url = serve(anonymous="nobody")
    db.sql(TICKS)
    secret = db.create_token("ann", "reader")
    page = open_page(f"{url}/console/")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("A token is needed")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("That token is not known.")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Enter a token").click()
    page.keyboard.type(secret)
    page.keyboard.press("Enter")
    expect(page.locator("#who")).to_have_text("ann reader")
    expect(page.get_by_role("article", name="Stream ticks")).to_be_visible()
    assert page.evaluate("localStorage.length") == 0
    page.reload()
    expect(page.locator("#who")).to_have_text("ann reader")


def test_a_long_answer_is_shown_as_far_as_it_is_asked_for(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    db.sql("CREATE STREAM long (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.push("long", [{"n": n, "at": START} for n in range(2_100)], wait=True)
    db.register("SELECT n FROM long", name="all_of_it")
    page = open_page(f"{url}#/queries/all_of_it")
    rows = page.get_by_role("region", name="Answer of all_of_it").locator("tbody tr")
    more = page.get_by_role("button", name="Show more")
    expect(more).to_have_text("Show more: 1,600 left")
    for shown in (1_000, 1_500, 2_000, 2_100):
        more.click()
        expect(rows).to_have_count(shown)
    expect(more).to_be_hidden()
    page.get_by_label("Refreshed").select_option("as it changes")
    expect(rows).to_have_count(500)
    expect(rows.first).to_have_text("2099")


def test_tables_and_their_rows(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    page = open_page(f"{url}#/streams")
    page.get_by_role("link", name="Catalog").click()
    expect(page.locator(".bar a[aria-current]")).to_have_text("Catalog")
    line = page.locator("table.tables tbody tr").filter(has_text="places")
    expect(line).to_contain_text("name STRING, height DECIMAL(6,2)120")
    line.get_by_role("link").click()
    rows = page.get_by_role("region", name="Rows of places")
    expect(rows.locator("tbody tr")).to_have_count(100)
    expect(page.get_by_text("The first 100 of 120")).to_be_visible()
    db.sql("DELETE FROM places WHERE height > 9")
    expect(rows.locator("tbody tr")).to_have_count(9)
    page.get_by_role("link", name="Open in editor").click()
    expect(page.get_by_role("textbox", name="SQL")).to_have_value("SELECT * FROM `places`")
    page.goto(f"{url}#/tables/nowhere")
    expect(page.get_by_role("alert")).to_contain_text("nowhere")


def test_functions_with_their_text(site: tuple[Database, str], open_page: Open) -> None:
    _, url = site
    page = open_page(f"{url}#/tables")
    page.get_by_role("navigation", name="Catalog").get_by_role("link", name="Functions").press("Enter")
    half = page.get_by_role("article", name="Function half")
    expect(half).to_contain_text("half(x DOUBLE) RETURNS DOUBLE")
    half.get_by_text("Its text").click()
    expect(half.locator("pre")).to_contain_text("return x / 2")


def test_sources_and_dropping_one(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    db.sql(FLOOR.replace("floor", "cellar"))
    page = open_page(f"{url}#/sources")
    cellar = page.get_by_role("article", name="Source cellar")
    for text in ("restarting", "The broker at 127.0.0.1:1 does not answer", "password '***'"):
        expect(cellar).to_contain_text(text)
    for confirmed in (False, True):
        page.once("dialog", lambda dialog, yes=confirmed: dialog.accept() if yes else dialog.dismiss())  # type: ignore[misc]
        expect(cellar).to_be_visible()
        cellar.get_by_role("button", name="Drop").click()
    expect(cellar).to_have_count(0)
    assert "cellar" not in [source.name for source in db.sources()]


def test_derived_state_against_its_budgets(site: tuple[Database, str], open_page: Open) -> None:
    db, url = site
    db.backfill()
    db.invoke("positive")
    page = open_page(f"{url}#/derived")
    kinds = page.get_by_role("region", name="Kinds of derived state")
    results = kinds.locator("tr", has_text="results")
    expect(results).to_contain_text("100 %")
    expect(results.locator(".c-disk")).to_contain_text("B")
    expect(results.locator(".c-memory .meter")).to_have_count(0)
    (cache,) = (each for each in db.derived() if each.kind == "cache")
    assert cache.things > 0
    expect(kinds.locator("tr", has_text="cache").locator(".c-things")).to_have_text(str(cache.things))
    memory = page.get_by_role("region", name="Budget of memory")
    expect(memory).to_contain_text("of 1.9 GB")
    expect(page.get_by_role("region", name="Budget of disk")).to_contain_text("of 34 GB")
    page.get_by_role("link", name="State").click()
    expect(page).to_have_title("Derived state · Ladle")


def test_where_there_is_nothing_yet(serve: Serve, open_page: Open) -> None:
    page = open_page(url := f"{serve()[1]}/console/")
    said = {"tables": "CREATE TABLE", "functions": "CREATE FUNCTION", "sources": "CREATE SOURCE", "access": "No tokens"}
    for view, text in said.items():
        page.goto(f"{url}#/{view}")
        expect(page.locator(".none").first).to_contain_text(text)


def test_tokens_are_made_and_dropped(serve: Serve, open_page: Open) -> None:
    db, url = serve(anonymous="nobody")
    page = enter(open_page, url, db.create_token("ops", "admin"), "#/access")
    tokens = page.get_by_role("region", name="Tokens", exact=True).last
    page.get_by_label("Name").fill("ann")
    page.get_by_label("Role").select_option("writer")
    for key in ("Tab", "Tab", "Enter"):
        page.keyboard.press(key)
    secret = page.get_by_label("Token of ann").input_value()
    with as_user(url, secret) as ann:
        assert ann.get("/v1/me").json() == {"name": "ann", "role": "writer"}
    lines = tokens.locator("tbody tr")
    expect(lines.nth(1)).to_contain_text("annwriter")
    page.get_by_label("Name").fill("Ann")
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_role("alert")).to_contain_text("There is a token 'Ann'.")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Drop ann").click()
    expect(lines).to_have_count(1)


def test_sharing_is_for_owners_and_reading_for_readers(serve: Serve, open_page: Open) -> None:
    db, url = serve(anonymous="nobody")
    db.execute(f"{TICKS}; {FLOOR}")
    ann, bob = db.create_token("ann", "writer"), db.create_token("bob", "reader")
    with as_user(url, ann) as client:
        client.post("/v1/queries", json={"name": "mine", "sql": "SELECT n FROM ticks"}).raise_for_status()
    owner = enter(open_page, url, ann, "#/queries/mine")
    sharing = owner.get_by_role("region", name="Sharing")
    for name, said in (("nobody", "'nobody' not found"), ("bob", "bob✕")):
        sharing.get_by_label("Name of a token").fill(name)
        sharing.get_by_role("button", name="Share", exact=True).click()
        expect(sharing).to_contain_text(said)
    reader = enter(open_page, url, bob, "#/access", viewport=PHONE)
    grants = reader.get_by_role("region", name="Who reads what").last
    expect(grants.locator("tbody tr")).to_have_text(["mineannyou"])
    expect(reader.get_by_role("heading", level=2)).to_have_text(["You", "Who reads what"])
    grants.get_by_role("link", name="mine").click()
    expect(reader.locator(".figures")).to_contain_text("owner")
    for name in ("Drop", "Share"):
        expect(reader.get_by_role("button", name=name, exact=True)).to_be_hidden()
    reader.goto(f"{url}/console/#/sources")
    expect(reader.get_by_role("article")).to_contain_text("Its options are for admins to see.")
    expect(reader.get_by_role("button", name="Drop")).to_have_count(0)
    reader.goto(f"{url}/console/#/sql")
    expect(reader.get_by_role("button", name="Run")).to_be_visible()
    expect(reader.get_by_role("button", name="Register")).to_be_hidden()
    sharing.get_by_role("button", name="Unshare with bob").click()
    expect(sharing.locator(".chips li")).to_have_count(0)
    reader.goto(f"{url}/console/#/queries/mine")
    expect(reader.get_by_role("alert").first).to_contain_text("mine")


def test_what_the_server_refuses_is_said(serve: Serve, open_page: Open) -> None:
    db, url = serve(anonymous="nobody")
    db.execute(f"{TICKS}; {FLOOR}")
    page = open_page("about:blank")
    # As if the role had changed since the page asked.
    page.route("**/v1/me", lambda route: route.fulfill(json={"name": "bob", "role": "admin"}))
    page.goto(f"{url}/console/#/sources")
    page.locator("#token-text").fill(db.create_token("bob", "reader"))
    page.keyboard.press("Enter")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Drop floor").click()
    expect(page.get_by_role("alert")).to_contain_text("'bob' is a reader and may not drop sources.")


def test_coverage_however_many_queries(serve: Serve, open_page: Open) -> None:
    db, url = serve()
    db.sql(TICKS)
    db.register_many({f"many_{n:04d}": f"SELECT n FROM ticks WHERE n > {n}" for n in range(2_100)})
    db.push("ticks", [{"n": 5, "at": START}], wait=True)
    page = open_page(f"{url}/console/#/queries")
    covered = page.locator("table.queries td.c-coverage")
    expect(covered).to_have_text(["100 %"] * 50)
    page.get_by_role("button", name="Next").click()
    page.get_by_role("link", name="many_0099").click()
    expect(page.locator(".figures").first).to_contain_text("coverage100 %")
