"""Facts about the series of the page: a dot a run, its events, and addresses."""

import re

import pytest

from edgemeter.agent.verdict.siblings import judged_together
from edgemeter.agent.verdict.words import text_of
from edgemeter.collector.charts import vega
from edgemeter.collector.charts.chart import Chart, ViewTable, rows_table
from edgemeter.collector.charts.specs import over_time
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.store import MemoryStore
from edgemeter.collector.web import queries
from edgemeter.collector.web.events import SeriesEvent, TrendEvents
from edgemeter.collector.web.overview import overview
from edgemeter.collector.web.queries import CaseFilter, ViewContext
from edgemeter.collector.web.run import run_view, thinned
from edgemeter.collector.web.series import FOLLOWED, series, trend_view
from edgemeter.collector.web.view import Links, ViewRequest, address, read_address, read_period
from tests.fixtures.comparison_factory import in_rounds, make_run
from tests.fixtures.record_factory import make_record, violating
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import view_context

DAYS = 12


class Found(TrendEvents):
    """A step that was found."""

    def of(self, _run, _metric):
        return (SeriesEvent(1, "step of +6%, 95%: 5 to 7%", "step"),)


@pytest.fixture
def series_of(fleet_book):
    """Return what draws the series of a device and metric."""

    def draw(device, metric, events=None):
        members = queries.picked_cases(fleet_book, CaseFilter(device=device, precision="fp32"))
        context = ViewContext(fleet_book, Links(), events or TrendEvents())
        return series(context, members, FOLLOWED[metric], days=None, span=None)

    return draw


def test_every_run_is_a_dot_that_leads_to_it_with_what_changed_beside_it(series_of):
    """Only the Pi boards got another firmware.

    A step has its own words, and the provenance is in the heading.
    """
    charted = series_of("simulated-pi5-01", "latency_p50_ms")
    runs = {row["run"] for row in charted.chart.table.dicts()}
    assert len(runs) == len(charted.table.dicts()) == DAYS
    assert all(run.startswith("simulated-pi5-01-") for run in runs)
    assert "firmware 2026-05-11 to 2026-08-20" in [event.text for event in charted.chart.events]
    assert charted.chart.title.endswith("replayed")
    assert not series_of("simulated-orin-01", "latency_p50_ms").chart.events
    assert "step of +6%, 95%: 5 to 7%" in [
        event.text
        for event in series_of("simulated-orin-01", "latency_p50_ms", Found()).chart.events
    ]


def test_the_line_of_a_series_is_the_value_of_its_case_in_the_tables():
    """It is the mean of the ok runs, not a median, so that a figure has one value on a page."""
    runs = [make_run(p50_ms=p50_ms, id=f"run-{p50_ms}") for p50_ms in (10.0, 10.5, 13.0)]
    runs.append(make_run(p50_ms=30.0, id="run-slow", verdict=violating("disturbed", "throttled")))
    context = view_context(runs)
    (case,) = cases = queries.picked_cases(context.book, CaseFilter())
    (summary,) = queries.summaries(cases, CaseFilter())
    chart = series(context, [case], FOLLOWED["latency_p50_ms"], days=None, span=None).chart
    (line,) = (value for value in values_in(chart.spec) if "end" in value)
    assert line["value"] == pytest.approx(summary.figures["latency_p50_ms"].value)
    assert line["value"] == pytest.approx((10.0 * 10.5 * 13.0) ** (1 / 3))
    assert "median" not in chart.note


def test_a_run_that_lies_apart_from_its_siblings_is_disturbed_everywhere_on_the_page():
    """The run is hollow in charts and does not count for a line.

    The Overview and the run's own page say the same.
    """
    runs = in_rounds(
        [make_run(p50_ms=p50_ms, id=f"run-{p50_ms}") for p50_ms in (10.0, 10.5, 10.2, 15.0)]
    )
    context = view_context(runs)
    (case,) = cases = queries.picked_cases(context.book, CaseFilter())
    (summary,) = queries.summaries(cases, CaseFilter())
    of_case = {run.id: run.verdict.state for run in summary.runs.each()}
    charted = series(context, [case], FOLLOWED["latency_p50_ms"], days=None, span=None)
    first = overview(context, ViewRequest("overview"), CaseFilter())
    run_page = run_view(context, ViewRequest("run", {"id": "run-15.0"}), CaseFilter())
    verdicts = {"run-10.0": "ok", "run-10.5": "ok", "run-10.2": "ok", "run-15.0": "disturbed"}
    assert {row["run"]: row["verdict"] for row in charted.chart.table.dicts()} == verdicts
    assert {row["run"]: row["verdict"] for row in charted.table.dicts()} == verdicts
    assert of_case == verdicts
    (line,) = (value for value in values_in(charted.chart.spec) if "end" in value)
    assert (
        line["value"]
        == pytest.approx(summary.figures["latency_p50_ms"].value)
        == pytest.approx((10.0 * 10.5 * 10.2) ** (1 / 3))
    )
    assert "1 are disturbed" in first.body
    assert "disturbed." in run_page.lead
    assert text_of(judged_together(runs)[3].verdict.violations[0]) in run_page.body


def values_in(spec):
    """Return the rows that the layers of a chart hold themselves."""
    return [value for layer in spec["layer"] for value in layer.get("data", {}).get("values", ())]


def test_energies_have_their_interval_and_a_share_has_none(series_of):
    """Each energy has a bar, and the share of throttled runs begins at zero."""
    rows = series_of("simulated-pi5-01", "energy_gross_mj").chart.table.dicts()
    assert len([row for row in rows if row["low"] < row["value"] < row["high"]]) == DAYS
    share = series_of("simulated-pi5-19", "is_throttled").chart
    assert {row["low"] for row in share.table.dicts()} == {None}
    assert share.spec["layer"][0]["encoding"]["y"]["scale"]["zero"]


def test_any_span_of_time_is_drawn_with_finite_numbers():
    """One run, several of one moment, or years give finite coordinates."""
    for ats in ([5], [5, 5], [1, 2 * 10**18]):
        with table_row(ats):
            rows = [
                {
                    "started_at_ns": at,
                    "value": 1.0 + index,
                    "low": None,
                    "high": None,
                    "verdict": "ok",
                    "run": "r",
                }
                for index, at in enumerate(ats)
            ]
            svg = vega.svg(
                Chart(
                    "title",
                    over_time("ms", span_ns=(ats[0], ats[-1]), has_bars=False),
                    rows_table(rows),
                )
            )
            assert "NaN" not in svg
            assert "Infinity" not in svg


def test_the_trend_begins_with_what_moved_and_shows_every_type_of_board():
    """The boards that were updated stand before those that were not, though their names come later.

    The end is at an hour at which some days (UTC) have two runs and others none: a series was taken
    for one of two modes there.
    """
    names = (
        "simulated-pi5-01",
        "simulated-pi5-02",
        "simulated-pi5-03",
        "simulated-orin-01",
        "simulated-server",
    )
    fleet = simulated_fleet.records_of(make_record(), end_ns=1_795_509_839 * 10**9, days=45)
    records = tuple(run for run in fleet if run.device.startswith(names))
    events = TrendEvents(MemoryStore(oldest_first(records)))
    events.refresh()
    context = view_context(records, events)
    view = trend_view(context, ViewRequest("trend"), CaseFilter())
    devices = re.findall(r'<figure[^>]*data-device="(simulated-[a-z0-9]+)-\d+"', str(view.body))
    assert set(devices) == {"simulated-server", "simulated-pi5", "simulated-orin"}
    assert devices == sorted(devices, key=lambda name: name != "simulated-pi5")


def test_the_rows_of_runs_show_on_a_phone_what_tells_them_apart():
    """Two precisions are shown, one is not.

    Threads, which have no column, get one where they differ.
    """
    for runs, on_phone, nowhere in (
        ([make_run(id="a"), make_run(id="b", precision="int8")], ["Precision"], ["Threads"]),
        ([make_run(id="a"), make_run(id="b")], [], ["Threads"]),
        ([make_run(id="a"), make_run(id="b", threads=4)], ["Threads"], []),
    ):
        context = view_context(runs)
        body = str(trend_view(context, ViewRequest("trend"), CaseFilter()).body).partition(
            'id="runs"'
        )[2]
        classes = {
            heading: name
            for name, heading in re.findall(r'<th scope="col" class="(text[^"]*)">(\w+)</th>', body)
        }
        assert [
            name
            for name in ("Model", "Precision", "Runtime", "Threads")
            if classes.get(name) == "text"
        ] == on_phone
        assert all(name not in classes for name in nowhere)


def test_thinning_keeps_the_outliers():
    """The one peak and the one dip of 100,000 values stay."""
    values = [1.0] * 100_000
    values[777], values[50_001] = 9.0, 0.1
    indexed = thinned(values, 1000)
    assert len(indexed) <= 1001
    assert (777, 9.0) in indexed
    assert (50_001, 0.1) in indexed


def test_an_address_has_an_order_and_a_file_links_only_to_what_it_holds():
    """Hostile text survives both ways, and a link outside the file is text alone."""
    fields = {"model": "a&b=c #?/<x>", "device": "pi 1"}
    assert address("compare", fields) == address("compare", dict(reversed(fields.items())))
    assert read_address(address("compare", fields)).fields == fields
    links = Links({"run?id=a"})
    assert (links.to("run", id="a"), links.to("run", id="b")) == ("#/run?id=a", None)


def test_a_picked_period_narrows_the_figures():
    """Runs that started in the period stay; a table without times is whole."""
    table = ViewTable("points", ("run", "started_at_ns"), (("a", 5), ("b", 9)))
    assert table.between(*read_period("0,0")).rows == table.rows
    assert (table.between(6, 9).rows, table.between(5, 8).rows) == ((("b", 9),), (("a", 5),))
    assert ViewTable("cases", ("device",), (("pi",),)).between(6, 9).rows == (("pi",),)
    assert read_period("yesterday") is None
