"""Test the page in a real browser, served and as one file.

It fits, it stays silent, and its filters and exports work.
"""

import csv
import io
import json
import re
import struct
from xml.etree import ElementTree as ET

import msgspec
import pytest
from PIL import Image

from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.web import one_file
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.one_file import FileChoice
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.hostile import MARKUP
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import make_environment, make_model, violating
from tests.fixtures.served_page import served, source_from

pytestmark = pytest.mark.chromium

ADDRESSES = (
    *(
        "",
        "compare",
        "compare?reference=simulated-pi5-01&precision=int8",
        "compare?require=ap>=.3,+p50<=40ms",
    ),
    *(
        "trend?metric=energy_gross_mj&device=simulated-pi5-07",
        "device?device=simulated-pi5-19",
        "run?id=simulated-pi5-07-0024",
        "published",
    ),
)
PICK = (
    "const box = document.querySelector('[name={0}]'); box.value = '{1}'; box.dispatchEvent(new "
    "Event('change', {{bubbles: true}}))"
)
VISIBLE_ROWS = (
    "[...document.querySelectorAll('#table table.grid tbody tr')].filter(one "
    "=> one.offsetParent !== null)"
)
SHOWN = f"{VISIBLE_ROWS}.map(one => one.dataset.device + ' ' + one.dataset.precision)"
SHOWN_IN_FILE = "document.getElementById('shown').dataset.shown !== undefined"
OPEN = "document.querySelectorAll('#table tr.boards details').forEach(one => {{ one.open = {}; }})"


@pytest.fixture(scope="session")
def report(fleet_book, tmp_path_factory):
    """Return the address of the page as one file."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(
        one_file.whole_page(fleet_book, TrendEvents(), FileChoice(runs=6)), encoding="utf-8"
    )
    return path.as_uri()


@pytest.mark.parametrize(
    ("width", "scale", "dark"),
    [(1280, 1, False), (390, 2, True), (640, 2, False)],
    ids=["desk", "phone, dark", "zoom 200%"],
)
def test_every_view_fits_and_the_console_stays_silent(tab, width, scale, dark):
    """Nothing overflows on a desk, on a phone or at twice the size.

    There is no error, no warning, and no request elsewhere.
    """
    for address in ADDRESSES:
        page = tab(address, width=width, scale=scale, dark=dark)
        page.drawn()
        assert page.fits(), address
        assert page.complaints() == [], address
        assert {url.split("/")[2] for url in page.requests() if url.startswith("http")} == {
            page.run("location.host")
        }, address
        if address == "compare":
            # 40 boards, of which 24 and 15 are alike, are read without much scrolling.
            assert page.run("document.documentElement.scrollHeight") <= 4000


def test_dark_is_dark_and_can_be_switched(tab):
    """The background follows the system; the button switches it, and the next page keeps it."""
    page = tab("", dark=True)
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.run(paper)
    assert sum(int(part) for part in dark[4:-1].split(",")) < 200
    page.run("document.querySelector('.theme').click()")
    assert sum(int(part) for part in page.run(paper)[4:-1].split(",")) > 600
    page.run("document.querySelector('nav a[href=\"/trend\"]').click()")
    page.until("location.pathname === '/trend' && document.readyState === 'complete'")
    assert page.run("document.documentElement.dataset.theme") == "light"


def test_a_picked_filter_is_in_the_address_which_brings_the_view_back(tab):
    """A permalink shows the same rows, and its form the same picks.

    The form does not keep the pick that led away.
    """
    page = tab("compare")
    page.run(PICK.format("precision", "int8"))
    page.until("location.search.includes('precision=int8') && document.readyState === 'complete'")
    rows, address = page.run(SHOWN), page.run("location.pathname.slice(1) + location.search")
    assert {row.split()[1] for row in rows if "server" not in row} == {"int8"}
    reopened = tab(address)
    assert reopened.run(SHOWN) == rows
    assert reopened.run("document.querySelector('[name=precision]').value") == "int8"
    page.run("void history.back()")
    page.until("location.search === '' && document.querySelector('[name=precision]')?.value === ''")
    page.run("void history.forward()")
    page.until(
        "location.search.includes('precision=int8') && "
        "document.querySelector('[name=precision]')?.value === 'int8'"
    )


def test_a_chart_whose_series_are_all_hidden_asks_for_no_scale(tab):
    """Hiding and showing every series in turn leaves the console silent.

    They are those of every chart of a run, and of the one legend of the fronts.
    """
    for address in ("compare", "run?id=simulated-pi5-07-0024"):
        page = tab(address)
        page.drawn()
        hidden = "drawn.map(chart => chart.hidden.size).reduce((sum, one) => sum + one)"
        for _ in range(2):
            for key in range(page.run("document.querySelectorAll('.legend button').length")):
                before = page.run(hidden)
                page.run(f"document.querySelectorAll('.legend button')[{key}].click()")
                page.until(f"{hidden} !== {before}")
        assert page.run(hidden) == 0
        assert page.complaints() == []
    page = tab("compare")
    page.drawn()
    assert page.run("document.querySelectorAll('#against-accuracy figure .legend').length") == 0
    page.run("document.querySelector('#against-accuracy > .legend button').click()")
    name = page.run("document.querySelector('#against-accuracy > .legend button').dataset.series")
    assert page.run(
        "drawn.filter(chart => chart.spec.data.name).map(chart => [...chart.hidden])"
    ) == [[name], [name]]


def test_the_boards_of_a_type_open_by_the_keyboard_and_stay_below_their_row(tab):
    """Enter opens and closes the boards, and a link to a board opens its type.

    Sorted by any column, a board stays below its type.
    """
    page = tab("compare?precision=fp32")
    boards = (
        "[...document.querySelectorAll('#table tr.board')].filter(one => one.offsetParent !== "
        "null).length"
    )
    assert page.run(boards) == 0
    page.run("document.querySelector('#table tr.boards summary').focus()")
    page.press("Enter")
    assert page.run(boards) == 15
    for _ in range(2):
        page.run("document.querySelectorAll('#table thead button')[3].click()")
    of_boards = (
        "[...document.querySelectorAll('#table tbody')].filter(one => one.querySelector('.boards'))"
    )
    assert page.run(
        f"{of_boards}.every(one => one.rows[0].className.includes('boards') && "
        "one.rows.length > 15 - 1)"
    )
    values = page.run(
        f"{of_boards}.map(one => [...one.rows].slice(1).map(row => "
        "Number(row.cells[3].dataset.value)))"
    )
    assert all(of_type == sorted(of_type, reverse=True) for of_type in values)
    page.run(OPEN.format("false"))
    assert page.run(boards) == 0
    page.run("reveal(document.querySelector('#table tr.board'))")
    assert page.run(boards) > 0
    assert page.complaints() == []


def test_csv_holds_what_a_table_shows(tab, tmp_path):
    """Every figure is there, and every board of a row of several."""
    page = tab("compare?precision=fp32")
    file = page.download("document.querySelector('.exports a').click()", tmp_path)
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    page.run(OPEN.format("true"))
    cells = page.run(
        f"{VISIBLE_ROWS}.filter(one => one.dataset.device).map(one => [one.dataset.device, "
        "Number(one.cells[3].dataset.value)])"
    )
    exported = [
        (row["device"], pytest.approx(float(row["latency_p50_ms"]), rel=1e-6)) for row in rows
    ]
    assert exported == sorted(
        map(tuple, cells), key=lambda pair: [row["device"] for row in rows].index(pair[0])
    )


def test_pictures_are_written_by_the_browser_and_stand_alone(tab, tmp_path):
    """The SVG is XML in plain colours with title and legend.

    The PNG has twice its size and is not of one colour.
    """
    page = tab("compare")
    page.drawn()
    addresses = {url for url in page.requests() if url.startswith("http")}
    button = (
        "[...document.querySelectorAll('figure.chart-figure .figure-tools button')].find(one => "
        "one.textContent === '{}').click()"
    )
    drawing = page.download(button.format("SVG"), tmp_path)
    tree = ET.fromstring(drawing.read_text())  # noqa: S314 - our own page wrote it
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in drawing.read_text()
    words = {element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")}
    legend = page.run(
        "[...document.querySelector('#against-accuracy > .legend').children].map(one => "
        "one.textContent.slice(2))"
    )
    title = page.run("document.querySelector('figcaption').textContent")
    assert {title[:20]} <= {word[:20] for word in words if word}
    assert set(legend) <= words
    assert len(legend) > 2
    picture = page.download(button.format("PNG"), tmp_path).read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (
        2 * int(float(tree.get("width"))),
        2 * int(float(tree.get("height"))),
    )
    assert len(Image.open(io.BytesIO(picture)).convert("RGB").getcolors(1 << 20)) > 3
    # The server was asked for nothing.
    assert {url for url in page.requests() if url.startswith("http")} == addresses
    assert page.complaints() == []


TABLES = (
    "",
    "compare",
    "compare?require=ap>=.3,+p50<=40ms",
    "device?device=simulated-pi5-19",
    "trend",
)
TOO_WIDE = (
    "[...document.querySelectorAll('main .scroll, nav')].filter(one => one.scrollWidth > "
    "one.clientWidth + 1).length"
)


def test_no_table_is_scrolled_sideways_and_its_rows_are_short_on_a_phone(tab):
    """A row is a few lines, each figure below its name.

    The way to the other views and the picked filters are not cut off.
    """
    for address in TABLES:
        assert tab(address, width=1400).run(TOO_WIDE) == 0, address
        page = tab(address, width=390)
        assert page.run(TOO_WIDE) == 0, address
        heights = page.run(
            "[...document.querySelectorAll('main .grid tr:not(.boards)')].map(row => "
            "row.getBoundingClientRect().height)"
        )
        assert max(heights) <= 160, address
        # A value that has no heading above it has a label; the first is the name of the row.
        unlabelled = (
            "[...document.querySelectorAll('main .grid td:not(:first-child)')].filter(one => "
            "!one.dataset.label).length"
        )
        assert page.run(unlabelled) == 0, address
    page = tab("compare", width=390)
    assert (
        page.run("document.querySelector('.grid tbody tr').getBoundingClientRect().bottom") <= 844
    )


def test_the_keyboard_reaches_the_content_and_the_filters(tab):
    """The first stop skips to the content, and the slash goes to the filters."""
    page = tab("compare")
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.press("/")
    assert page.run("document.activeElement.name") == "require"


def test_the_file_works_without_a_network(tab, report, tmp_path):
    """Every view that the file links to opens without a request.

    CSV and JSON of a view hold the same rows.
    """
    page = tab(report, offline=True)
    addresses = page.run(
        "[...document.querySelectorAll('template[data-address]')].map(one => one.dataset.address)"
    )
    assert {address.split("?")[0] for address in addresses} == {
        "compare",
        "trend",
        "device",
        "run",
        "published",
    }
    for address in (*addresses[:6], addresses[-1]):
        page.run(f"location.hash = '#/{address}'")
        page.until(
            f"document.getElementById('shown').dataset.shown === '{address}' && "
            "document.querySelector('main section, main > p') !== null"
        )
        assert "does not contain" not in page.run("document.querySelector('main').textContent")
        page.until(
            "document.querySelectorAll('figure.chart-figure:not([hidden])').length === "
            "document.querySelectorAll('figure.is-drawn').length"
        )
        assert page.fits()
    assert page.complaints() == []
    assert [url for url in page.requests() if not url.startswith(("file:", "data:", "blob:"))] == []
    page = tab(f"{report}#/compare")
    page.until(SHOWN_IN_FILE)
    rows = list(
        csv.DictReader(
            io.StringIO(
                page.download(
                    "document.querySelector('[data-export=csv]').click()", tmp_path
                ).read_text()
            )
        )
    )
    document = json.loads(
        page.download("document.querySelector('[data-export=json]').click()", tmp_path).read_text()
    )
    assert [row["device"] for row in rows] == [
        row["device"] for row in document["tables"]["comparison"]
    ]
    assert len(rows) == 80


def test_a_form_without_fields_has_its_button_among_the_more_filters(tab, report):
    """No button stands alone, and none is left out.

    In a comparison in a file nothing can be chosen anew.
    """
    for address, is_folded in (("compare", False), (f"{report}#/compare", True)):
        page = tab(address)
        if is_folded:
            page.until(SHOWN_IN_FILE)
        assert (
            page.run("document.querySelector('form.filters details button') !== null") is is_folded
        )
        assert page.run("document.querySelectorAll('form.filters button').length") == 1


def test_the_file_narrows_as_the_server_does(tab, report):
    """The same picks, the reference among them, give the same rows and marks.

    A board that is picked stands for itself.
    """
    for picks in (
        "precision=int8&board=simulated+Raspberry+Pi+5",
        "precision=int8&device=simulated-pi5-03",
    ):
        served_page, narrowed = tab(f"compare?{picks}"), tab(f"{report}#/compare?{picks}")
        narrowed.until(SHOWN_IN_FILE)
        texts = (
            f"{VISIBLE_ROWS}.filter(one => one.dataset.kept === undefined).map(one => "
            "one.cells[0].textContent.slice(1))"
        )
        assert narrowed.run(texts) == served_page.run(texts)
        assert len(served_page.run(texts)) == 1
        assert narrowed.run("document.querySelector('[name=precision]').value") == "int8"
        served_page.drawn(), narrowed.drawn()
        marks = "drawn[0].rows.map(row => [row.case, row.cost]).sort()"
        assert narrowed.run(marks) == served_page.run(marks)
        assert narrowed.complaints() == []
    assert [row for row in narrowed.run(SHOWN) if "server" not in row] == ["simulated-pi5-03 int8"]


def test_a_text_that_a_spreadsheet_would_run_is_a_text_in_what_the_page_writes(browser, tmp_path):
    """This holds in the file's export and in a chart's; a negative number stays a number."""
    file = tmp_path / "report.html"
    book = book_of(
        source_from([make_run(precision="=1+1", id="-2+3"), make_reference(precision="=1+1")])
    )
    file.write_text(one_file.whole_page(book, TrendEvents(), FileChoice()), encoding="utf-8")
    (tmp_path / "out").mkdir()
    page = browser.open(f"{file.as_uri()}#/compare?reference=reference")
    page.until(SHOWN_IN_FILE)
    exported = page.download(
        "document.querySelector('[data-export=csv]').click()", tmp_path / "out"
    ).read_text()
    assert "'=1+1," in exported
    assert not re.search(r"(^|,)=", exported, re.MULTILINE)
    assert (
        page.run("csvOf(['a', 'b'], [[-1.5, '-1.5'], ['@x', '+ y']])")
        == "a,b\r\n-1.5,-1.5\r\n'@x,'+ y\r\n"
    )
    assert page.run("csvOf(['a'], [['b\\0c']])") == "a\r\nb\ufffdc\r\n"
    page.close()


def test_what_devices_send_stays_text(browser, tmp_path):
    """A board, a file and a verdict that are markup have no effect, served and in a file."""
    fields = {
        "environment": make_environment(board=MARKUP, kernel=MARKUP),
        "verdict": violating("disturbed", MARKUP),
        "suite": MARKUP,
        "precision": MARKUP,
    }
    model = make_model(file=MARKUP, task=MARKUP)
    runs = [make_run(device="pi-1", id=MARKUP, **fields), make_reference(**fields)]
    ledger = fill(
        tmp_path / "ledger.sqlite", [msgspec.structs.replace(run, model=model) for run in runs]
    )
    file = tmp_path / "report.html"
    book = book_of(source_from(ledger))
    file.write_text(one_file.whole_page(book, TrendEvents(), FileChoice()), encoding="utf-8")
    with served(ledger) as server:
        run_address = f"run?id={MARKUP.replace(' ', '+').replace('%', '%25').replace('&', '%26')}"
        for address in (
            *(
                server.url + view
                for view in ("", "compare", "trend", "device?device=pi-1", run_address)
            ),
            file.as_uri(),
        ):
            page = browser.open(address)
            assert page.run("document.title") != "taken"
            assert page.run("document.querySelectorAll('img').length") == 0
            assert page.complaints() == []
            if run_address in address:
                assert page.run("document.querySelector('h1').textContent").startswith(
                    "Run </script>"
                )
            page.close()


def deliver(ledger, seq):
    """Commit a run to the ledger, as the collector does; return its id."""
    run_id = f"pi-1-run-{seq}"
    fill(ledger, [make_run(id=run_id, device="pi-1", session=9, seq=seq)])
    return run_id


def test_runs_appear_without_a_reload_also_those_of_a_time_without_a_server(browser, tmp_path):
    """Unchanged parts of the page stay the same elements, and a zoomed chart stays zoomed."""
    ledger = fill(
        tmp_path / "ledger.sqlite", [make_run(id="first"), make_reference(id="reference")]
    )
    with served(ledger) as server:
        page = browser.open(f"{server.url}device?device=pi-1", width=1280)
        page.drawn()
        page.run("window.same = document.getElementById('machine')")
        page.run("void zoomed(drawn[0], 0.5)")
        page.until("location.search.includes('zoom=')")
        domain = page.run("drawn[0].view.scale('x').domain().map(Number)")
        run_id = deliver(ledger, 1)
        page.until(f"document.querySelector('#runs table').textContent.includes('{run_id}')")
        page.until("document.querySelector('.live').textContent.startsWith('Updated at')")
        page.until(
            "document.querySelectorAll('figure.chart-figure').length === "
            "document.querySelectorAll('figure.is-drawn').length"
        )
        zoomed = (
            "drawn.find(one => "
            "one.title.includes('tiny-detector')).view.scale('x').domain().map(Number)"
        )
        assert page.run(zoomed) == pytest.approx(domain)
        assert page.complaints() == []
    missed = [deliver(ledger, seq) for seq in (2, 3)]
    with served(ledger, port=server.port):
        page.until(f"document.querySelector('#runs table').textContent.includes('{missed[-1]}')")
        assert page.run("window.same === document.getElementById('machine')")
        page.close()
