"""Test that charts draw what the tables show, with intervals, and can be drawn anywhere."""

import re

import pytest

from edgemeter.agent.base import config
from edgemeter.collector.charts import specs, vega
from edgemeter.collector.charts.chart import WIDTH_PX, Chart, rows_table, script_data
from edgemeter.collector.show import comparison_charts
from edgemeter.collector.show.series_style import assign_styles
from edgemeter.collector.show.words import outcome_of
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run
from tests.fixtures.record_factory import STARTED_AT_NS

NS_PER_DAY = 86_400 * 10**9


def runs_of(p50_ms, **changes):
    return [
        make_run(
            p50_ms=p50_ms * (1 + day / 100),
            started_at_ns=STARTED_AT_NS + day * NS_PER_DAY,
            **changes,
        )
        for day in range(5)
    ]


@pytest.fixture
def against_accuracy():
    """Return a chart of latency against accuracy, and what it was made from.

    It has two cases and a reference.
    """
    comparison = compare_runs(
        *runs_of(10.0), *runs_of(10.2, precision="int8", ap=0.61), make_reference()
    )
    (chart,) = comparison_charts.latency_against_accuracy(
        comparison, assign_styles(comparison.rows)
    ).charts
    return chart, comparison


def test_a_chart_draws_the_figures_and_intervals_of_the_comparison(against_accuracy):
    """The chart has the very values that the table and --format json show."""
    chart, comparison = against_accuracy
    rows = chart.table.dicts()
    figures = [row.case.p50_ms for row in comparison.rows]
    assert [(row["cost"], row["cost_low"], row["cost_high"]) for row in rows] == [
        (p50.value, p50.low, p50.high) for p50 in figures
    ]
    assert any(p50.low for p50 in figures)
    # Marks and table state the same about a case.
    assert [row["standing"] for row in rows] == [
        "the reference" if row.is_reference else outcome_of(row) for row in comparison.rows
    ]


@pytest.mark.parametrize(
    ("verdicts", "is_explained"), [(("ok", "disturbed"), True), (("ok", "ok"), False)]
)
def test_hollow_marks_are_explained_where_there_are_any(verdicts, is_explained):
    """A disturbed run or case is drawn hollow."""
    assert (
        Chart(
            "runs", {}, rows_table([{"value": 1.0, "verdict": verdict} for verdict in verdicts])
        ).has_hollow_marks
        == is_explained
    )


def test_ratios_that_matter_are_drawn_on_an_axis_titled_logarithmic():
    """An axis is linear for values 5 times apart, and logarithmic for values 50 times apart.

    The title of a logarithmic axis has that word.
    """
    for values, kind in (([1.0, 5.0], None), ([1.0, 50.0], "log")):
        x = specs.cumulative("latency, ms", values)["encoding"]["x"]
        assert x["scale"].get("type") == kind
        assert ("logarithmic" in x["title"]) == (kind == "log")


def test_an_axis_of_one_value_is_labelled_with_that_value():
    """The label is not rounded: cases of one accuracy are at 0.6, a single run at 9.4 ms."""
    comparison = compare_runs(*runs_of(10.0, ap=0.6), make_reference(ap=0.6))
    (front,) = comparison_charts.latency_against_accuracy(
        comparison, assign_styles(comparison.rows)
    ).charts
    row = {
        "started_at_ns": STARTED_AT_NS,
        "value": 9.4,
        "low": None,
        "high": None,
        "verdict": "ok",
        "run": "one",
    }
    alone = Chart(
        "one run",
        specs.over_time("ms", span_ns=(STARTED_AT_NS, STARTED_AT_NS + 1), has_bars=False),
        rows_table([row]),
    )
    assert [">0.6<" in vega.svg(front), ">9.4<" in vega.svg(alone)] == [True, True]


def test_a_moment_alone_stands_in_the_middle_of_its_axis():
    """At the edge of the plot half of its mark would be cut."""
    row = {
        "started_at_ns": STARTED_AT_NS,
        "value": 9.4,
        "low": None,
        "high": None,
        "verdict": "ok",
        "run": "one",
    }
    chart = Chart(
        "one run",
        specs.over_time("ms", span_ns=(STARTED_AT_NS, STARTED_AT_NS + 1), has_bars=False),
        rows_table([row]),
    )
    (x,) = re.findall(
        r'<path transform="translate\(([\d.]+),[\d.]+\)" d="M[^"]*" fill="#0072b2"', vega.svg(chart)
    )
    assert 0.4 < float(x) / WIDTH_PX < 0.6


def test_text_of_a_device_stays_data():
    """A device's text neither ends the script element nor becomes an element of the drawing."""
    hostile = "</script><script>alert(1)</script><b>'\"\\"
    rows = [
        {"at_s": float(n), "latency_ms": None, "power_w": n / 2, "sensor": hostile, "query": None}
        for n in (1, 2)
    ]
    spec = specs.run_time_line([hostile], [], [1.0, 2.0])
    chart = Chart(hostile, spec, rows_table(rows))
    assert "<" not in script_data(chart.document())
    assert "<script" not in vega.svg(chart)


def test_the_same_chart_is_the_same_svg_and_two_charts_share_no_identity(against_accuracy):
    """An archive can then be made again, and a page may hold both charts."""
    chart, _ = against_accuracy
    other = Chart("other", chart.spec, rows_table(chart.table.dicts()[:2]))
    assert vega.svg(chart) == vega.svg(chart)
    ids = [set(re.findall(r'id="([^"]+)"', vega.svg(drawing))) for drawing in (chart, other)]
    assert not ids[0] & ids[1]


@pytest.mark.services
def test_the_bundle_is_made_once_and_kept(tmp_path, monkeypatch):
    """The next process reads the bundle, whose name changes with its content."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    for cached in (vega.bundle, vega.bundle_name):
        cached.cache_clear()
    try:
        script = vega.bundle()
        (path,) = (config.home() / "charts").iterdir()
        assert path.read_text() == script
        path.write_text("// kept")
        vega.bundle.cache_clear()
        assert vega.bundle() == "// kept"
        assert re.fullmatch(r"charts-[0-9a-f]{16}\.js", vega.bundle_name())
        assert "</script" not in script
    finally:
        for cached in (vega.bundle, vega.bundle_name):
            cached.cache_clear()
