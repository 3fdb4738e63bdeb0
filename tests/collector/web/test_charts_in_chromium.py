"""Test the use of the charts in a real browser.

Every step is a mouse, a key or a click.
"""

import csv
import io
import time

import pytest

from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.web.events import TrendEvents
from tests.fixtures.axe import axe_script, serious
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import make_environment, make_record
from tests.fixtures.served_page import served

pytestmark = pytest.mark.chromium

VIEWS = (
    "",
    "compare",
    "trend?device=simulated-pi5-01",
    "device?device=simulated-pi5-07",
    "run?id=simulated-pi5-07-0088",
)
FIRST = "document.querySelector('figure.chart-figure.is-drawn')"
# One for all charts of the comparison.
LEGEND = "document.querySelector('#against-accuracy > .legend')"
PLOT = f"{FIRST}.querySelector('.chart svg')"
TOOL = (
    f"[...{FIRST}.querySelectorAll('.figure-tools button')].find(one => one.textContent === '{{}}')"
)
VISIBLE = (
    "[...document.querySelectorAll('#runs tr[data-at]')].filter(one => one.offsetParent !== null)"
)
DOMAIN = "drawn[0].view.scale('x').domain().map(Number)"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Serve a simulated fleet of 45 days with its findings."""
    runs = simulated_fleet.records_of(make_record(), end_ns=time.time_ns(), days=45)
    ledger = fill(tmp_path_factory.mktemp("lab") / "ledger.sqlite", runs)
    events = TrendEvents(LedgerStore(ledger))
    events.refresh()
    with served(ledger, events) as server:
        yield server


@pytest.fixture
def charted(tab, lab):
    """Return what opens a view with its charts drawn."""

    def open_tab(address="", **how):
        page = tab(lab.url + address, **how)
        page.drawn()
        return page

    return open_tab


@pytest.mark.nightly
@pytest.mark.needs("npm")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(charted, dark):
    """The rules of axe-core find nothing in either colour.

    The views have their charts, the tools of these, and an open table behind one.
    """
    for address in (*VIEWS, "compare?require=ap>=.3,+p50<=40ms"):
        page = charted(address, dark=dark)
        page.run(f"({FIRST} && {TOOL.format('Table')})?.click()")
        page.run(axe_script())
        assert serious(page.run("axe.run(document, {resultTypes: ['violations']})")) == [], address
        regions = page.run(
            "axe.run(document, {runOnly: ['region', 'landmark-unique', 'landmark-one-main']})"
        )
        assert [violation["id"] for violation in regions["violations"]] == [], address
        assert page.complaints() == [], address


def test_a_chart_is_zoomed_and_moved_by_wheel_buttons_and_drag(charted):
    """The wheel without Control scrolls the page, and a drag to the right brings smaller values.

    The buttons work by the keyboard.
    """
    page = charted("trend?device=simulated-pi5-01")
    x, top, width, height = page.place_of(PLOT)
    before = page.run(DOMAIN)
    page.mouse("mouseWheel", x + width / 2, top + height / 2, wheel=-240, ctrl=True)
    page.until(f"{DOMAIN}[1] - {DOMAIN}[0] < {(before[1] - before[0]) * 0.95}")
    zoomed = page.run(DOMAIN)
    page.mouse("mouseWheel", x + width / 2, top + height / 2, wheel=200)
    page.until("scrollY > 0")
    assert page.run(DOMAIN) == zoomed
    assert page.complaints() == []
    page = charted("compare")
    before = page.run(DOMAIN)
    page.run(f"{TOOL.format('+')}.focus()")
    page.press("Enter")
    page.until(f"{DOMAIN}[0] > {before[0]} && {DOMAIN}[1] < {before[1]}")
    zoomed = page.run(DOMAIN)
    page.run(f"{TOOL.format('→')}.click()")
    page.until(f"{DOMAIN}[0] > {zoomed[0]}")
    page.run(f"{TOOL.format('Whole')}.click()")
    page.until(f"Math.abs({DOMAIN}[1] / {before[1]} - 1) < 1e-6")
    x, top, width, height = page.place_of(PLOT)
    page.drag((x + width * 0.6, top + height * 0.4), (x + width * 0.75, top + height * 0.4))
    page.until(f"{DOMAIN}[0] < {before[0]}")


def test_no_day_of_an_axis_is_cut_off(charted):
    """The last label is within the drawing, however far the axis is moved."""
    page = charted("trend?device=simulated-pi5-01", width=1400)
    cut = f"""(() => {{ const plot = {PLOT}.getBoundingClientRect();
        const days = [...{PLOT}.querySelectorAll('.role-axis-label text')]
          .filter(one => /[a-z]/.test(one.textContent));
        return [days.length, ...days.map(one => one.getBoundingClientRect())
          .filter(one => one.right > plot.right || one.left < plot.left)];
    }})()"""
    for _ in range(25):
        number, *outside = page.run(cut)
        assert number > 1
        assert outside == []
        before = page.run(DOMAIN)
        page.run("void zoomed(drawn[0], 1, 0.01)")
        page.until(f"{DOMAIN}[0] > {before[0]}")


def test_labels_of_a_front_cover_neither_marks_nor_each_other(charted):
    """The name of a case is beside its mark, clear of all others.

    Numbers of marks that are near each other are one.
    """
    for address, width in (
        ("compare", 390),
        ("compare?board=simulated+Jetson+Orin+Nano", 1000),
        ("compare?device=simulated-pi5-01", 1400),
    ):
        plots = charted(address, width=width).run("""[
            ...document.querySelectorAll('#against-accuracy .chart svg')].map(plot => {
            const boxes = (what) => [...plot.querySelectorAll(what)]
              .map(one => [one.textContent, one.getBoundingClientRect()]);
            const meet = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
              && one.top < other.bottom - 2 && other.top < one.bottom - 2;
            const texts = boxes('.mark-text.role-mark text').filter(([text]) => text);
            const marks = boxes('.mark-symbol.role-mark path');
            const names = texts.filter(([text]) => !text.startsWith('\u00d7'));
            return [texts.length,
              texts.flatMap(([one, box], at) => texts.slice(at + 1)
                .filter(([, other]) => meet(box, other)).map(([other]) => [one, other])),
              names.filter(([, box]) => marks.some(([, mark]) => meet(box, mark)))
                .map(([text]) => text)];
        })""")
        assert sum(count for count, _, _ in plots) > 0
        assert [(texts, marks) for _, texts, marks in plots if texts or marks] == [], address


def test_a_dot_has_a_tooltip_and_leads_to_its_run(charted):
    """The tooltip has value, interval, verdict and run, and the table has the same runs.

    The back button returns to the chart.
    """
    page = charted("trend?metric=energy_gross_mj&device=simulated-pi5-01")
    x, top, width, height = page.place_of(f"{PLOT}.querySelector('.mark-symbol path')")
    page.mouse("mouseMoved", x + width / 2 - 1, top + height / 2)
    page.mouse("mouseMoved", x + width / 2, top + height / 2)
    page.until("document.querySelector('#vg-tooltip-element.visible') !== null")
    text = page.run("document.querySelector('#vg-tooltip-element').innerText")
    for word in ("energy mJ", "interval", " to ", "verdict", "ok", "simulated-pi5-01-"):
        assert word in text
    page.run(f"{TOOL.format('Table')}.click()")
    table = f"{FIRST}.querySelector('.behind table')"
    assert page.run(f"{table}.tBodies[0].rows.length") == page.run("drawn[0].rows.length")
    assert page.run(f"{table}.querySelector('a').getAttribute('href')").startswith(
        "/run?id=simulated-pi5-01-"
    )
    page.click(f"{PLOT}.querySelector('.mark-symbol path')")
    page.until("location.pathname === '/run' && document.readyState === 'complete'")
    assert page.run("document.title").startswith("Run simulated-pi5-01-")
    page.run("history.back()")
    page.until("location.pathname === '/trend' && document.readyState === 'complete'")


def test_labels_of_an_axis_cover_none_and_no_column_is_lost_without_a_word(charted):
    """A phone has the least room for labels.

    At 1000 pixels a table that is wider than its place can be scrolled, and says so.
    """
    for address in VIEWS:
        page = charted(address, width=390)
        covered = page.run("""[
            ...document.querySelectorAll('.mark-text.role-axis-label')].filter(group => {
            const boxes = [...group.querySelectorAll('text')]
              .filter(one => one.textContent && getComputedStyle(one).opacity !== '0'
                && !one.getAttribute('transform').includes('rotate'))
              .map(one => one.getBoundingClientRect());
            return boxes.some((one, place) => boxes.slice(place + 1).some(other =>
              one.left < other.right - 1 && other.left < one.right - 1
              && one.top < other.bottom - 2 && other.top < one.bottom - 2));
        }).length""")
        assert (covered, page.fits()) == (0, True), address
        page = charted(address, width=1000)
        lost = page.run("""[...document.querySelectorAll('main .scroll')]
            .filter(one => one.offsetParent !== null && one.scrollWidth > one.clientWidth + 1
            && !one.previousElementSibling?.classList.contains('cue')).length""")
        assert (lost, page.fits()) == (0, True), address


def test_zoom_and_hidden_series_are_in_the_permalink(charted):
    """The opened address shows the same chart, and has no field once all is shown again."""
    page = charted("compare")
    name = page.run(f"{LEGEND}.querySelector('button').dataset.series")
    page.run(f"{LEGEND}.querySelector('button').click()")
    page.run("void zoomed(drawn[0], 0.5)")
    page.until("location.search.includes('c1=') && location.search.includes('x')")
    page.until(
        f"JSON.parse(new URLSearchParams(location.search).get('c1')).x && {DOMAIN}.length === 2"
    )
    domain, address = page.run(DOMAIN), page.run("location.pathname.slice(1) + location.search")
    reopened = charted(address)
    assert reopened.run(DOMAIN) == pytest.approx(domain)
    assert reopened.run("[...drawn[0].hidden]") == [name]
    assert reopened.run(f"{LEGEND}.querySelector('button').getAttribute('aria-pressed')") == "false"
    reopened.run("void zoomed(drawn[0], null)")
    reopened.run(f"{LEGEND}.querySelector('button').click()")
    reopened.until("!location.search.includes('c1=')")
    assert reopened.complaints() == []


def test_covering_marks_are_one_as_they_are_drawn(browser):
    """Boards of different types, a little apart, are more marks when zoomed in.

    Each has one interval at most each way.
    """
    boards = [make_environment(board=f"board {number}") for number in range(12)]
    runs = [
        make_run(f"b-{n}", p50_ms=10 + 0.01 * n, environment=board, id=f"run-{n}")
        for n, board in enumerate(boards)
    ]
    counts = "drawn[0].view.data('marks').map(one => one.boards)"
    with served((make_reference(), *runs)) as server:
        page = browser.open(f"{server.url}compare")
        page.drawn()
        before, rows = page.run(counts), page.run("drawn[0].rows.length")
        assert max(before) > 4
        assert sum(before) == rows
        assert page.run(f"{PLOT}.querySelectorAll('.mark-symbol.role-mark path').length") == len(
            before
        )
        assert page.run(f"{PLOT}.querySelectorAll('.mark-rule.role-mark line').length") <= 2 * len(
            before
        )
        page.run("void zoomed(drawn[0], 0.05, 1)")
        page.until(f"Math.max(0, ...{counts}) < {max(before)}")
        assert sum(page.run(counts)) == rows
        assert page.complaints() == []
        page.close()


def test_no_mark_of_a_front_covers_another(charted):
    """This holds for the whole fleet, and for the rest when a series is hidden."""
    page = charted("compare")
    covering = """[...document.querySelectorAll('#against-accuracy .chart svg')].map(plot => {
        const boxes = [...plot.querySelectorAll('.mark-symbol.role-mark path')]
          .map(one => one.getBoundingClientRect());
        return boxes.flatMap((one, at) => boxes.slice(at + 1)
          .filter(other => one.left < other.right - 2 && other.left < one.right - 2
          && one.top < other.bottom - 2 && other.top < one.bottom - 2)).length;
    }).reduce((one, other) => one + other)"""
    assert page.run(covering) == 0
    for key in range(page.run(f"{LEGEND}.querySelectorAll('button').length")):
        for hidden in (1, 0):
            page.run(f"{LEGEND}.querySelectorAll('button')[{key}].click()")
            visible_rows = (
                "drawn[0].rows.filter(row => !drawn[0].hidden.has(row.series)).reduce((sum, row) "
                "=> sum + row.boards, 0)"
            )
            page.until(
                "drawn[0].view.data('marks').reduce((sum, one) => sum + one.boards, 0) === "
                f"{visible_rows}"
            )
            assert page.run("drawn[0].hidden.size") == hidden
            assert page.run(covering) == 0
    assert page.complaints() == []
    # A drawing with a plot of the same width merges the same: numbers, figures and series.
    figures = (
        "one => [one.boards, one.cost, one.accuracy, one.cost_low, one.cost_high, one.series, "
        "one.case, one.standing, one.verdict]"
    )
    page.run(
        "(async () => { await drawn[0].view.width(560).runAsync(); await recount(drawn[0]); "
        "root.dataset.wide = 'yes'; })()"
    )
    page.until("root.dataset.wide === 'yes'")
    assert page.run(f"drawn[0].view.data('marks').map({figures})") == page.run(
        f"drawn[0].rows.map({figures})"
    )


def test_a_brushed_period_narrows_the_table_the_exports_and_the_address(charted, tmp_path):
    """They change when the pointer is released: a hand that rests while it draws is undecided.

    The address brings it back.
    """
    page = charted("trend?device=simulated-pi5-01")
    all_rows = page.run(f"{VISIBLE}.length")
    x, top, width, height = page.place_of(PLOT)
    begin, middle, end = ((x + width * share, top + height * 0.5) for share in (0.4, 0.5, 0.6))
    page.mouse("mouseMoved", *begin)
    page.mouse("mousePressed", *begin)
    page.mouse("mouseMoved", *middle, is_down=True)
    page.run(
        "(async () => { await new Promise(done => setTimeout(done, 500)); "
        "root.dataset.rested = 'yes'; })()"
    )
    page.until("root.dataset.rested === 'yes'")
    assert not page.run("location.search.includes('between=')")
    page.mouse("mouseMoved", *end, is_down=True)
    page.mouse("mouseReleased", *end)
    page.until("location.search.includes('between=')")
    brushed_rows = page.run(f"{VISIBLE}.length")
    assert 0 < brushed_rows < all_rows / 2
    assert page.run("document.querySelector('.period').innerText").startswith("Only runs from 20")
    file = page.download("document.querySelector('.exports a').click()", tmp_path)
    assert len(list(csv.DictReader(io.StringIO(file.read_text())))) == brushed_rows
    reopened = charted(page.run("(location.pathname + location.search).slice(1)"))
    assert reopened.run(f"{VISIBLE}.length") == brushed_rows
    reopened.run("document.querySelector('.period button').click()")
    reopened.until(f"{VISIBLE}.length === {all_rows} && !location.search.includes('between')")
    assert page.complaints() == []


def test_a_drag_in_one_panel_zooms_all_and_the_address_brings_it_back(charted):
    """Panels over time show one period after a drag, the wheel or a reload.

    After "All days" they show all.
    """
    page = charted("trend?board=simulated+Raspberry+Pi+5&model=tiny-detector")
    domains = "drawn.map(one => one.view.scale('x').domain().map(Number))"
    before = page.run(domains)
    assert len(before) > 3
    x, top, width, height = page.place_of(PLOT)
    page.drag((x + width * 0.4, top + height * 0.5), (x + width * 0.7, top + height * 0.5))
    page.until(
        f"{domains}.every(([low, high]) => high - low < {(before[0][1] - before[0][0]) / 2})"
    )
    period = [
        float(end)
        for end in page.run("new URLSearchParams(location.search).get('between')").split(",")
    ]
    assert all(domain == pytest.approx(period, abs=2) for domain in page.run(domains))
    reopened = charted(page.run("(location.pathname + location.search).slice(1)"))
    assert all(domain == pytest.approx(period, abs=2) for domain in reopened.run(domains))
    reopened.run("void zoomed(drawn[1], 0.5)")
    reopened.until(
        f"{domains}.every(([low, high]) => high - low < {(period[1] - period[0]) * 0.6})"
    )
    reopened.until("location.search.includes('zoom=')")
    second_tab = charted(reopened.run("(location.pathname + location.search).slice(1)"))
    assert second_tab.run(domains)[2] == pytest.approx(reopened.run(domains)[1], abs=2)
    second_tab.run("document.querySelector('.period button').click()")
    second_tab.until(
        f"{domains}.every(([low, high]) => high - low > {(before[0][1] - before[0][0]) * 0.99})"
    )
    second_tab.until("!/zoom=|between=/.test(location.search)")
    assert second_tab.complaints() == []


def test_without_a_script_the_page_names_where_its_figures_are(browser, lab):
    """No chart is drawn, but the tables and the exports are there."""
    page = browser.open(lab.url + "compare", has_scripts=False)
    assert "no charts: its tables, CSV and JSON have the figures" in page.run(
        "document.querySelector('noscript').innerText"
    )
    assert page.run("document.querySelectorAll('figure.chart-figure .chart *').length") == 0
    assert page.run("document.querySelectorAll('table.grid tbody tr, .exports a').length") > 3
    page.close()
