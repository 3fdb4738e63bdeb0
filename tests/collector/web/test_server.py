"""Test the answers of the page.

Every request is answered in this process, and listens at no port.
"""

import csv
import gzip
import io
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.collector.charts import vega
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.server import MADE_AT_ONCE, PageServer
from edgemeter.collector.web.site import show
from tests.fixtures.comparison_factory import make_reference, make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import ask, page_of, served, source_from, text_of

TWO = (make_run(), make_reference())
RUN = "/run?id=simulated-pi5-07-0024"


@pytest.fixture
def two_runs():
    return page_of(TWO)


def rows_of(page, path):
    return list(csv.DictReader(io.StringIO(text_of(page, path))))


def test_every_view_is_served_in_every_form(fleet_page):
    """Where nothing matches, the page says so, and only a CSV file would be empty.

    A page of 40 devices is small.
    """
    for view in ("", "compare", "trend?metric=accuracy", "device", "device?device=nobody"):
        prefix = f"/{view}{'&' if '?' in view else '?'}format="
        with table_row(view):
            status, _, body = ask(fleet_page, f"/{view}")
            assert (status, body[:15]) == (200, b"<!doctype html>")
            assert len(body) < 300_000
            status, _, body = ask(fleet_page, f"{prefix}json")
            assert (status, set(json.loads(body))) == (200, {"view", "title", "tables"})
            status, headers, body = ask(fleet_page, f"{prefix}csv")
            assert status == (404 if "nobody" in view else 200)
            if status == 200:
                assert headers["Content-Type"].startswith("text/csv")
                assert len({len(cells) for cells in csv.reader(io.StringIO(body.decode()))}) == 1


def test_a_run_is_there_down_to_its_raw_samples_compressed_and_once(fleet_page):
    """CSV has every query of the run.

    The tag of the page is answered with 304, that of another view is not.
    """
    rows = rows_of(fleet_page, f"{RUN}&format=csv")
    assert (len(rows), {row["series"] for row in rows}) == (256, {"latency"})
    _, headers, body = ask(fleet_page, RUN)
    assert ask(fleet_page, RUN, If_None_Match=headers["ETag"])[0] == 304
    assert ask(fleet_page, f"{RUN}&format=csv", If_None_Match=headers["ETag"])[0] == 200
    _, headers, packed = ask(fleet_page, RUN, Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == body


def test_a_page_may_run_nothing_but_our_script(fleet_page):
    """Nothing is inline, from elsewhere, or in a frame.

    The script of the charts is loaded only once.
    """
    _, headers, body = ask(fleet_page, "/compare")
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "unsafe-eval" not in headers["Content-Security-Policy"]
    (name,) = re.findall(rb'<script src="(/charts-[0-9a-f]{16}\.js)"', body)
    assert (
        re.findall(
            rb"<script(?! src=\"/(?:page|charts-\w+)\.js\"| type=\"application/json\")", body
        )
        == []
    )
    assert b"://" not in body.replace(b"http://www.w3.org", b"")
    status, headers, script = ask(fleet_page, name.decode())
    assert (status, headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
    assert script == vega.bundle().encode()
    assert ask(fleet_page, "/charts-fedcba9876543210.js")[0] == 404


def test_a_picked_period_narrows_what_is_exported(fleet_page):
    """CSV and JSON hold the visible rows."""
    trend = "/trend?device=simulated-pi5-01&format="
    at_ms = sorted(
        int(row["started_at_ns"]) // 1_000_000 for row in rows_of(fleet_page, f"{trend}csv")
    )
    between = f"&between={at_ms[2]},{at_ms[5] + 1}"
    brushed = rows_of(fleet_page, f"{trend}csv{between}")
    assert len(brushed) == 4
    document = json.loads(text_of(fleet_page, f"{trend}json{between}"))
    assert [row["run"] for row in document["tables"]["points"]] == [row["run"] for row in brushed]


def test_every_series_is_on_one_page_of_the_trend(fleet_page):
    """Each page links to the next."""
    devices, address = set(), "/trend"
    while address:
        body = text_of(fleet_page, address)
        devices |= set(re.findall(r'<figure[^>]*data-device="([^"]+)"', body))
        onward = re.search(r'<a href="([^"]+)">Next</a>', body)
        address = onward and onward[1].replace("&amp;", "&")
    assert len(devices) == 40


def test_unknown_views_methods_and_names_are_refused(two_runs):
    """A foreign host name, a path outside the views and a POST are refused.

    The name was pointed at this machine. A HEAD has the length and no body.
    """
    assert ask(two_runs, "/", Host="attacker.example")[0] == 421
    for name in ("localhost:8000", "127.0.0.1", "[::1]:8000", "[::1]"):
        assert ask(two_runs, "/", Host=name)[0] == 200, name
    assert ask(two_runs, "/../etc/passwd")[0] == 404
    assert ask(two_runs, "/compare", method="POST")[0] == 405
    status, headers, body = ask(two_runs, "/compare", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == len(ask(two_runs, "/compare")[2])


def test_without_the_token_nothing_is_shown():
    """A wrong token shows neither page nor figures nor script.

    From the address it goes into a cookie and leaves the address.
    """
    page = page_of(TWO, token="open sesame")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "edgemeter_token=wrong"}):
        status, _, body = ask(page, "/compare?format=csv", **headers)
        assert (status, b"pi-1" in body) == (401, False)
    assert ask(page, "/?token=wrong")[0] == ask(page, "/page.js")[0] == 401
    assert ask(page, "/compare", Authorization="Bearer open sesame")[0] == 200
    status, headers, _ = ask(page, "/compare?reference=pi-1&token=open+sesame")
    assert (status, headers["Location"]) == (303, "/compare?reference=pi-1")
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "open sesame" not in headers["Set-Cookie"]
    assert ask(page, headers["Location"], Cookie=headers["Set-Cookie"].split(";")[0])[0] == 200
    # Beyond the loopback it does not even listen.
    with pytest.raises(ConfigError, match="--token-file"):
        PageServer(book_of(source_from(TWO)), TrendEvents(), host="192.0.2.1")


def test_an_address_that_asks_for_what_is_absent_is_an_error(two_runs):
    """All days in place of an invalid period would be another answer than asked for.

    The same holds for a page in place of a CSV file.
    """
    for path in (
        "/compare?days=abc",
        "/compare?days=-5",
        "/trend?metric=bogus",
        "/run?id=nope&format=json",
        "/compare?format=xml",
    ):
        with table_row(path):
            status, headers, _ = ask(two_runs, path)
            assert (status, headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert ask(two_runs, "/compare?days=5")[0] == 200
    status, _, body = ask(two_runs, "/compare?" + "&".join(f"f{number}=1" for number in range(500)))
    assert (status, b"the address has 500 fields" in body) == (404, True)


def test_a_third_page_waits_for_one_of_two_that_are_being_made(two_runs, monkeypatch):
    """Each page takes memory that the process keeps, and all come in the end."""
    met, lock, making, at_once = (
        threading.Barrier(MADE_AT_ONCE, timeout=60),
        threading.Lock(),
        [],
        [],
    )

    def counted(*arguments):
        with lock:
            making.append(arguments)
            at_once.append(len(making))
        met.wait()
        view = show(*arguments)
        with lock:
            making.pop()
        return view

    monkeypatch.setattr("edgemeter.collector.web.server.show", counted)
    with ThreadPoolExecutor(6) as clients:
        statuses = list(clients.map(lambda _: ask(two_runs, "/compare")[0], range(6)))
    assert (statuses, max(at_once)) == ([200] * 6, MADE_AT_ONCE)


def test_a_ledger_that_cannot_be_opened_is_tried_again(tmp_path, caplog):
    """A folder that is gone for a moment ends neither the page nor its updates."""
    folder = tmp_path / "ledger"
    folder.mkdir()
    page = page_of(fill(folder / "ledger.sqlite", TWO))
    away = folder.rename(tmp_path / "away")
    page.update()
    assert "cannot update the page" in caplog.text
    assert ask(page, "/run?id=run-1")[0] in (404, 503)
    away.rename(folder)
    page.update()
    assert ask(page, "/compare")[0] == 200


@pytest.mark.services
def test_a_page_is_served_at_a_port_until_it_is_stopped():
    """A repeated request gets 304 as long as nothing is new, and a HEAD has no body.

    A port in use is one line.
    """
    with served(TWO) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)

        def answered(method, **headers):
            connection.request(method, "/compare", headers=headers)
            response = connection.getresponse()
            return response.status, response.getheader("ETag"), response.read()

        status, tag, body = answered("GET")
        assert (status, f'data-tag="{tag}"'.encode() in body.replace(b"&#34;", b'"')) == (200, True)
        assert answered("GET", **{"If-None-Match": tag}) == (304, tag, b"")
        assert answered("HEAD") == (200, tag, b"")
        with pytest.raises(UnavailableError, match=str(server.port)):
            PageServer(server.book, TrendEvents(), port=server.port).start()
        server.stop()
        connection.close()
        with pytest.raises(ConnectionRefusedError):
            HTTPConnection("127.0.0.1", server.port, timeout=60).connect()
