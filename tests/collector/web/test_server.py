import contextlib
import csv
import gzip
import http.client
import io
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract import record_conditions
from edgemeter.collector.compare import columns, judgement
from edgemeter.collector.index import stored_summaries
from edgemeter.collector.show import run_facts
from edgemeter.collector.web.context import compare
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.queries import CaseFilter, cases
from edgemeter.collector.web.server import MADE_AT_ONCE, PageServer
from edgemeter.collector.web.side_by_side import compare_view
from edgemeter.collector.web.site import show
from edgemeter.collector.web.view import PlainRows, ViewRequest
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run, no_energy
from tests.fixtures.record_factory import make_environment
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import indexed, served, view_context


def ask(server, path, method="GET", **headers):
    """Return status, headers and body of a request, over a real connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


@pytest.fixture
def small():
    """Return an index of two runs."""
    with indexed((make_run(), make_reference())) as index:
        yield index


@pytest.fixture
def guarded():
    """Serve two runs with a token."""
    with served((make_run(), make_reference()), token="open sesame") as server:
        yield server


@pytest.mark.parametrize(
    "view",
    [
        *("", "compare", "model", "trend", "device", "compare?days=7", "trend?metric=accuracy"),
        *("device?device=nobody", "compare?baseline=nobody", "model?model=nobody"),
    ],
)
def test_every_view_is_served_in_every_form(fleet_page, view):
    """Also where nothing matches: a page that states that; only a CSV file would have nothing in it."""
    prefix = f"/{view}{'&' if '?' in view else '?'}format="
    status, _, body = ask(fleet_page, f"/{view}")
    assert status == 200
    assert body.startswith(b"<!doctype html>")
    status, _, body = ask(fleet_page, f"{prefix}json")
    assert status == 200
    assert set(json.loads(body)) == {"view", "title", "tables"}
    status, headers, body = ask(fleet_page, f"{prefix}csv")
    assert status == (404 if "nobody" in view else 200)
    if status == 200:
        assert headers["Content-Type"].startswith("text/csv")
        assert len({len(cells) for cells in csv.reader(io.StringIO(body.decode()))}) == 1


def test_a_run_is_there_down_to_its_raw_samples(fleet_page):
    """CSV has every query of it."""
    _, _, body = ask(fleet_page, "/run?id=simulated-pi5-07-0024&format=csv")
    rows = list(csv.DictReader(io.StringIO(body.decode())))
    assert len(rows) == 256
    assert {row["series"] for row in rows} == {"latency"}
    assert all(int(row["value"]) > 1e6 for row in rows)


def test_what_is_unchanged_is_not_sent_again(fleet_page):
    """The tag of an answer is answered with 304, that of another view is not."""
    _, headers, _ = ask(fleet_page, "/compare")
    assert ask(fleet_page, "/compare", **{"If-None-Match": headers["ETag"]})[0] == 304
    assert ask(fleet_page, "/trend", **{"If-None-Match": headers["ETag"]})[0] == 200


def test_a_page_may_run_nothing_but_our_script(fleet_page):
    """Nothing inline, nothing from elsewhere, in no frame."""
    _, headers, body = ask(fleet_page, "/compare")
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert len(re.findall(rb'<script src="/(?:page|charts-[0-9a-f]{16})\.js"', body)) == 2
    assert re.findall(rb"<script(?! src=| type=\"application/json\")", body) == []
    assert "unsafe-eval" not in headers["Content-Security-Policy"]
    assert b"://" not in body.replace(b"http://www.w3.org", b"")


def test_the_script_of_the_charts_is_loaded_once_for_good(fleet_page):
    """Its name has its content's hash; another name is not served."""
    body = ask(fleet_page, "/compare")[2].decode()
    (name,) = set(re.findall(r"/(charts-[0-9a-f]{16}\.js)", body))
    status, headers, script = ask(fleet_page, f"/{name}")
    assert (status, headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
    assert len(script) > 500_000
    assert ask(fleet_page, "/charts-0123456789abcdef.js")[0] == 404


def test_a_page_is_small_beside_the_script_that_all_share(fleet_page):
    """Below 300 kB, of 40 devices."""
    for view in ("", "compare", "model", "trend", "device", "run?id=simulated-pi5-07-0024"):
        assert len(ask(fleet_page, f"/{view}")[2]) < 300_000, view


def test_the_server_draws_no_picture(fleet_page):
    """The browser does: a drawing takes memory that the server would keep. An address that asks for one is told what there is."""
    for form in ("svg", "png", "pdf"):
        status, _, body = ask(fleet_page, f"/compare?format={form}&chart=1")
        assert status == 404
        assert "there are csv, json" in body.decode()
    body = ask(fleet_page, "/compare")[2].decode()
    assert body.count('class="chart-data"') > 1
    assert "format=svg" not in body
    assert "Without a script this page shows no charts" in body


def test_a_picked_period_narrows_what_is_exported(fleet_page):
    """CSV and JSON hold what is seen."""
    rows = list(csv.DictReader(io.StringIO(ask(fleet_page, "/trend?device=simulated-pi5-01&format=csv")[2].decode())))
    at = sorted(int(row["started_at_ns"]) // 1_000_000 for row in rows)
    between = f"{at[2]},{at[5] + 1}"
    brushed = list(csv.DictReader(io.StringIO(ask(fleet_page, f"/trend?device=simulated-pi5-01&format=csv&between={between}")[2].decode())))
    assert len(brushed) == 4
    document = json.loads(ask(fleet_page, f"/trend?device=simulated-pi5-01&format=json&between={between}")[2])
    assert [row["run"] for row in document["tables"]["points"]] == [row["run"] for row in brushed]


def test_all_pages_of_the_trend_can_be_reached(fleet_page):
    """Every series is on one of them."""
    runs, address = set(), "/trend"
    for _ in range(20):
        body = ask(fleet_page, address)[2].decode()
        runs |= set(re.findall(r'<figure[^>]*data-device="([^"]+)"', body))
        onward = re.search(r'<a href="([^"]+)">Next</a>', body)
        if onward is None:
            break
        address = onward[1].replace("&amp;", "&")
    assert len(runs) == 40


def test_it_is_compressed_where_the_reader_can(fleet_page):
    """The same bytes either way."""
    _, headers, packed = ask(fleet_page, "/compare", **{"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == ask(fleet_page, "/compare")[2]


def test_a_page_of_another_name_cannot_read_ours_through_the_browser(fleet_page):
    """A name that was pointed at this machine is refused."""
    assert ask(fleet_page, "/", Host="attacker.example")[0] == 421
    assert ask(fleet_page, "/", Host=f"localhost:{fleet_page.port}")[0] == 200


def test_unknown_views_and_methods_are_refused(fleet_page):
    """A path outside the views is 404, a POST 501; a HEAD has the length and no body."""
    assert ask(fleet_page, "/../etc/passwd")[0] == 404
    assert ask(fleet_page, "/compare", method="POST")[0] == 501
    status, headers, body = ask(fleet_page, "/compare", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


def test_without_the_token_nothing_is_shown(guarded):
    """Neither the page nor its figures; a wrong one is none."""
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "edgemeter_token=wrong"}):
        status, _, body = ask(guarded, "/compare?format=csv", **headers)
        assert status == 401
        assert b"pi-1" not in body
    assert ask(guarded, "/?token=wrong")[0] == 401


def test_the_token_opens_as_a_bearer_or_once_in_the_address(guarded):
    """From the address it goes into a cookie and leaves the address."""
    assert ask(guarded, "/compare", Authorization="Bearer open sesame")[0] == 200
    status, headers, _ = ask(guarded, "/compare?baseline=pi-1&token=open+sesame")
    assert (status, headers["Location"]) == (303, "/compare?baseline=pi-1")
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "open sesame" not in headers["Set-Cookie"]
    assert ask(guarded, headers["Location"], Cookie=headers["Set-Cookie"].split(";")[0])[0] == 200


def test_beyond_the_loopback_it_needs_a_token(small):
    """Refused before the server listens."""
    with pytest.raises(ConfigError, match="token"):
        PageServer(small, TrendEvents(), host="192.0.2.1")


def test_a_port_in_use_is_one_line(small, fleet_page):
    """The error names the port."""
    with pytest.raises(UnavailableError, match=str(fleet_page.port)):
        PageServer(small, TrendEvents(), port=fleet_page.port)


def test_the_page_of_a_run_shows_no_field_names():
    """The conditions of a run, its percentiles and accuracies are in words, and every field of a condition has some."""
    assert set(run_facts.FIELDS) == set(record_conditions.Condition.__struct_fields__) - {"when"}
    around = record_conditions.Condition(
        when="before",
        temperatures_c={"soc": 61.3},
        clock_hz=1.5e9,
        throttled_now=False,
        busiest_other=record_conditions.OtherProcess(name="make", pid=7, load_ratio=0.25, count=3),
        clock_error_ms=16000.0,
    )
    latency = msgspec.structs.replace(make_run().latency, refused={"p99_9": 6636})
    with served((make_run(id="told", conditions=(around,), latency=latency), make_reference())) as server:
        text = ask(server, "/run?id=told")[2].decode()
    visible = text.partition("The record as JSON")[0]
    for word in (
        *("soc 61.3 °C", "1,500 MHz", "make (pid 7 and 2 more), 25.0% of all cores", "p99.9"),
        *("<dt>Throttled</dt><dd>no</dd>", "<dt>AP</dt>"),
    ):
        assert word in visible, word
    for name in ("temperatures_c", "busiest_other", "False", "p99_9", "coco_ap", "load_ratio"):
        assert name not in visible, name


def test_a_device_is_never_compared_with_itself():
    """In the role of a reference and as a device it is still one machine, and another back-end is no like case."""
    board = make_environment(board="Raspberry Pi 5")
    runs = [make_run(environment=board), make_run(role="reference", environment=board)]
    assert "to the median of" not in _device_page(*runs)
    assert "to the median of 1 other device" in _device_page(*runs, make_run(device="pi-2", environment=board))
    assert "does not report its board type" in _device_page(make_run(environment=make_environment(board=None)))


def _device_page(*runs):
    with served(runs) as server:
        return ask(server, "/device?device=pi-1")[2].decode()


def test_an_address_that_asks_for_what_is_absent_is_an_error(fleetless):
    """All days in place of a period that is none, or a page in place of a CSV file, would be something else than was asked for."""
    for path, output in (
        ("/compare?days=abc", "is not a period"),
        ("/compare?days=-5", "is not a period"),
        ("/trend?metric=bogus", "is not a metric"),
        ("/run?id=nope", "there is no run"),
        ("/run?id=nope&format=json", "there is no run"),
        ("/compare?format=xml", "There is no such format"),
        ("/device?device=nobody&format=csv", "no figure that a CSV file could hold"),
    ):
        with table_row(path):
            status, _, body = ask(fleetless, path)
            assert status == 404
            assert output in body.decode()


@pytest.fixture
def fleetless(small):
    """Serve the two runs."""
    server = PageServer(small, TrendEvents())
    server.start()
    yield server
    server.stop()


def test_a_third_page_waits_for_one_of_two_that_are_being_made(fleetless, monkeypatch):
    """Each takes memory while it is made, which the process keeps; all come in the end."""
    third = threading.Barrier(MADE_AT_ONCE + 1, timeout=0.5)
    met = []

    def meeting(*arguments):
        with contextlib.suppress(threading.BrokenBarrierError):
            third.wait()
            met.append(arguments)
        return show(*arguments)

    monkeypatch.setattr("edgemeter.collector.web.server.show", meeting)
    with ThreadPoolExecutor(6) as clients:
        statuses = [answer[0] for answer in clients.map(lambda _: ask(fleetless, "/compare"), range(6))]
    assert (statuses, met) == ([200] * 6, [])


def test_an_index_that_cannot_be_opened_is_tried_again(small, fleetless, monkeypatch):
    """A folder that is gone for a moment ends neither the page nor the thread that keeps it up to date."""
    monkeypatch.setattr("edgemeter.collector.web.server.REFRESH_S", 0.02)
    folder, away = small.path.parent, small.path.parent.with_name(small.path.parent.name + "-away")
    folder.rename(away)
    try:
        time.sleep(2.5)
        status, _, body = ask(fleetless, "/compare")
    finally:
        away.rename(folder)
    assert status == 503
    assert "check its disk and its folder" in body.decode()
    assert fleetless._refreshing.is_alive()
    assert ask(fleetless, "/compare")[0] == 200


def test_any_number_of_days_is_a_period(fleetless):
    """Not only those that the form offers."""
    assert ask(fleetless, "/compare?days=5")[0] == 200


def test_a_page_of_nothing_offers_no_button_and_a_page_of_one_run_no_range():
    """There is nothing to pick from, and 10.0 to 10.0 ms is no range."""
    with served(()) as server:
        assert "Apply" not in ask(server, "/")[2].decode()
    with served((make_run(),)) as server:
        text = ask(server, "/")[2].decode()
    assert ">10.0 ms<" in text
    assert "1 board type<" in text


def test_the_same_model_with_more_threads_is_drawn_under_a_name_of_its_own():
    """On the page of trends, on the device's, and in their CSV."""
    with served((make_run(id="one", threads=1), make_run(id="four", threads=4), make_run(id="half", precision="fp16"))) as server:
        pages = [ask(server, path)[2].decode() for path in ("/trend", "/device?device=pi-1")]
        points = ask(server, "/trend?format=csv")[2].decode()
    for page in pages:
        for title in ("pi-1: tiny-detector, fp32 on onnx, 1 thread<", "pi-1: tiny-detector, fp32 on onnx, 4 threads<", "fp16 on onnx<"):
            assert f"{title}/figcaption>" in page
    assert {row["threads"] for row in csv.DictReader(io.StringIO(points))} == {"1", "2", "4"}


def compared_on_the_page(*runs):
    """Return the rows of the page's comparison by device, after checking that each summary is that of `compare`."""
    with view_context(runs) as context:
        rows = compare_view(context, ViewRequest("compare"), CaseFilter()).tables[0].dicts()
        comparison = compare(context, cases(context.connection, CaseFilter()), CaseFilter(), "reference")
        assert columns.to_json(comparison) == columns.to_json(compare_runs(*runs))
    return {row["device"]: row for row in rows}


def test_an_accuracy_of_an_earlier_run_is_compared_as_the_command_does():
    """A suite scores its first run only: the newest run has none, its case has."""
    first = make_run(id="first")
    later = make_run(id="later", started_at_ns=first.started_at_ns + 10**9, accuracy=None, accuracy_reason="not requested")
    assert compared_on_the_page(make_reference(), first, later)["pi-1"]["accuracy"] == pytest.approx(first.accuracy.value)


def test_a_case_whose_newest_run_lost_its_meter_has_the_energy_of_the_earlier_runs():
    """The page states what `compare` states: energy, its uncertainty, its class and the ratio."""
    first = make_run(id="first")
    later = make_run(id="later", started_at_ns=first.started_at_ns + 10**9, **no_energy("the meter was unplugged"))
    row = compared_on_the_page(make_reference(), first, later)["pi-1"]
    assert row["energy_gross_mj"] == first.energy.gross_mj
    assert row["energy_gross_u_mj"] == first.energy.gross_u_mj
    assert row["energy_scope"] == first.energy.scope
    assert row["energy_gross_ratio"] == pytest.approx(1.0)


def test_an_address_of_too_many_fields_has_a_reply_of_one_line(fleet_page, capfd):
    """500 of them: 400, and no traceback on the server."""
    status, headers, body = ask(fleet_page, "/compare?" + "&".join(f"f{number}=1" for number in range(500)))
    assert (status, body.count(b"\n")) == (400, 1)
    assert headers["Content-Type"].startswith("text/plain")
    assert "Traceback" not in capfd.readouterr().err


def sixty_devices():
    """Return two cases each of 60 boards of as many types, the last by name the fastest and the slowest, and their reference."""
    runs = [make_reference(), make_reference(precision="int8", id="reference-int8")]
    for n in range(60):
        board = make_environment(board=f"board {n:02}")
        p50_ms = {58: 3.0, 59: 99.0}.get(n, 10.0)
        runs += [make_run(f"d-{n:02}", environment=board, precision=p, p50_ms=p50_ms, id=f"{n} {p}") for p in ("fp32", "int8")]
    return runs


@pytest.mark.parametrize("address", ["compare?page=1", "compare?page=2", "model?model=tiny-detector"])
def test_headline_front_and_export_are_of_every_case(address):
    """Of 120 cases on two pages: the headline names the nearest and the farthest of all, and CSV and JSON hold each."""
    with served(sixty_devices()) as server:
        text = ask(server, f"/{address}")[2].decode()
        rows = list(csv.DictReader(io.StringIO(ask(server, f"/{address}&format=csv")[2].decode())))
        document = json.loads(ask(server, f"/{address}&format=json")[2])
    assert re.search(r"Nearest to the reference, or ahead of it, comes d-58 .*Farthest from it is d-59 ", text)
    assert len([row for row in rows if row["role"] == "device"]) == 120
    assert len([row for row in document["tables"]["comparison"] if row["role"] == "device"]) == 120
    assert "Next" in text or "Previous" in text
    if address.startswith("compare"):
        assert "<h1>tiny-detector on 60 devices" in text
        front = json.loads(re.search(r'<script type="application/json" class="chart-data">(.*?)</script>', text)[1])
        devices = {row[front["columns"].index("device")] for row in front["rows"]}
        assert len(devices) == 61


def test_every_case_is_on_one_page_of_the_table():
    """Neither twice nor on none."""
    with served(sixty_devices()) as server:
        pages = [ask(server, f"/compare?page={page}")[2].decode() for page in (1, 2)]
    rows = [row for page in pages for row in re.findall(r'<tr id="(case-\w+)"', page)]
    assert len(rows) == len(set(rows)) == 122


def test_a_page_of_many_cases_reads_and_words_only_what_it_shows(monkeypatch):
    """Of 122 cases on two pages: a few runs name the data, no plain row is made, and only judgements of the page are put into words."""
    read, worded, runs_of = [], set(), stored_summaries.runs_of
    monkeypatch.setattr(stored_summaries, "runs_of", lambda *arguments: read.append(arguments) or runs_of(*arguments))
    monkeypatch.setattr(judgement, "_details_of_ratio", lambda *judged: worded.add(judged[2].key.device) or "")
    monkeypatch.delattr(PlainRows, "__iter__")
    with view_context(sixty_devices()) as context:
        compare_view(context, ViewRequest("compare"), CaseFilter())
    assert len(read) < 10
    assert worded == {f"d-{n:02}" for n in range(49)}


def equal_boards():
    """Return 24 equal boards, and their reference."""
    board = make_environment(board="Raspberry Pi 5")
    runs = [make_run(f"pi-{n:02}", environment=board, p50_ms=10 + n / 100, id=f"pi {n}") for n in range(24)]
    return [make_reference(environment=make_environment(board="a server")), *runs]


def test_equal_boards_are_one_row_and_one_mark():
    """With their number, their spread and the worst by name; each of them within, and in the export."""
    with served(equal_boards()) as server:
        text = ask(server, "/compare")[2].decode()
        exported = list(csv.DictReader(io.StringIO(ask(server, "/compare?format=csv")[2].decode())))
    table = text[text.index('id="table"') :]
    assert table.count('class="boards"') == 1
    (row,) = re.findall(r'<tr id="case-\w+" class="boards".*?</tr>', table)
    assert "24 × Raspberry Pi 5" in row  # noqa: RUF001
    assert "10.0 to 10.2" in row
    assert "worst: pi-23" in row
    assert table.count('class="board"') == 24
    assert len(exported) == 25
    front = json.loads(re.search(r'<script type="application/json" class="chart-data">(.*?)</script>', text)[1])
    marks = front["spec"]["datasets"]["marks"]
    assert [mark["count"] for mark in marks if mark["series"] != "reference"] == ["×24"]  # noqa: RUF001
    (mark,) = [mark for mark in marks if mark["count"]]
    assert (mark["cost_low"], mark["cost_high"]) == pytest.approx((10.0, 10.23))


def test_the_legend_of_marks_is_on_the_page_once():
    """Not under each chart."""
    with served(equal_boards()) as server:
        assert ask(server, "/compare")[2].decode().count("Up and left is better") == 1


def test_one_device_in_two_roles_is_drawn_under_two_names():
    """A line of each case: the share of queries never falls along it."""
    both = [make_run("here", role=role, id=role, p50_ms=p50_ms) for role, p50_ms in (("reference", 10.0), ("device", 11.0))]
    with served(both) as server:
        text = ask(server, "/model")[2].decode()
    documents = [json.loads(data) for data in re.findall(r'class="chart-data">(.*?)</script>', text)]
    by_series = [document for document in documents if "series" in document["columns"]]
    assert len(by_series) == 4
    for document in by_series:
        at = document["columns"].index("series")
        assert len({row[at] for row in document["rows"]}) == 2
    shares = next(document for document in documents if "share" in document["columns"])
    of_series = {}
    for row in (dict(zip(shares["columns"], row, strict=True)) for row in shares["rows"]):
        of_series.setdefault(row["series"], []).append(row["share"])
    assert all(values == sorted(values) for values in of_series.values())
    headings = re.findall(r"<h3>([^<]*newest run with an energy)", text)
    assert len(set(headings)) == 2


def test_devices_of_two_fleets_that_have_one_name_are_two_series():
    """On the front, and by name in the charts of the model."""
    runs = [make_reference(), *(make_run("pi-1", fleet=fleet, id=fleet) for fleet in ("north", "south"))]
    with served(runs) as server:
        front, model = (ask(server, path)[2].decode() for path in ("/compare", "/model"))
    for text in (front, model):
        document = json.loads(re.search(r'class="chart-data">(.*?)</script>', text)[1])
        names = {row[document["columns"].index("series")] for row in document["rows"]}
        assert len(names) == 3


def test_devices_that_are_silent_or_throttled_come_first_with_latency_and_energy():
    """Before the baseline and before the healthy ones by name; the figures are of the case that most of them ran."""
    day_ns = 86_400 * 10**9
    hot = (record_conditions.Condition(when="during", throttled_now=True),)
    newest_ns = time.time_ns() - day_ns
    runs = [
        make_reference(id="reference", started_at_ns=newest_ns),
        *(make_run(name, id=name, p50_ms=10.0 + n, started_at_ns=newest_ns) for n, name in enumerate(("alpha", "beta"))),
        make_run("hot", id="hot", p50_ms=13.0, started_at_ns=newest_ns, conditions=hot),
        make_run("quiet", id="quiet", p50_ms=14.0, started_at_ns=newest_ns - 20 * day_ns),
        make_run("alpha", id="other case", precision="int8", p50_ms=1.0, started_at_ns=newest_ns),
    ]
    with served(runs) as server:
        text = ask(server, "/overview")[2].decode()
        rows = list(csv.DictReader(io.StringIO(ask(server, "/overview?format=csv")[2].decode())))
    assert [row["device"] for row in rows] == ["quiet", "hot", "server-1", "alpha", "beta"]
    assert [row["condition"] for row in rows] == ["silent", "throttled", "", "", ""]
    assert [float(row["latency_p50_ms"]) for row in rows] == [14.0, 13.0, 2.0, 10.0, 11.0]
    assert {float(row["energy_gross_mj"]) for row in rows} == {62.5}
    assert "of tiny-detector, fp32 on onnx, which most devices ran" in text
