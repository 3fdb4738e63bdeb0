"""Facts about charts: what they draw is what the tables show, with its intervals, and it can be drawn anywhere."""

import json
import re

import pytest

from edgemeter.agent.base import config
from edgemeter.collector.charts import specs, vega
from edgemeter.collector.charts.chart import Chart, rows_table, script_data
from edgemeter.collector.compare.trade_off import FrontPoint, front_band, standings
from edgemeter.collector.show import comparison_charts
from edgemeter.collector.show.series_style import assign_styles
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run
from tests.fixtures.record_factory import STARTED_AT_NS

NS_PER_DAY = 86_400 * 10**9


def runs_of(p50_ms, **changes):
    """Return runs on five days around a p50."""
    return [make_run(p50_ms=p50_ms * (1 + day / 100), started_at_ns=STARTED_AT_NS + day * NS_PER_DAY, **changes) for day in range(5)]


@pytest.fixture
def front():
    """Return the chart of latency against accuracy of two cases and a reference, and what it was made from."""
    comparison = compare_runs(*runs_of(10.0), *runs_of(10.2, precision="int8", ap=0.61), make_reference())
    (chart,) = comparison_charts.latency_front(comparison, assign_styles(comparison.rows)).charts
    return chart, comparison


def test_a_chart_draws_the_figures_and_intervals_of_the_comparison(front):
    """The very values that the table and --json show."""
    chart, comparison = front
    rows = chart.table.dicts()
    assert [row["cost"] for row in rows] == [row.case.p50_ms.median for row in comparison.rows]
    intervals = [row.case.p50_ms.interval for row in comparison.rows]
    assert [(row["cost_low"], row["cost_high"]) for row in rows] == [(one.low, one.high) if one else (None, None) for one in intervals]
    assert any(intervals)


def test_a_front_that_the_runs_do_not_settle_is_shaded_and_says_so(front):
    """Ten and 10.2 ms overlap: neither is sure to be beaten."""
    chart, _ = front
    assert "perhaps on the front" in {row["standing"] for row in chart.table.dicts()}
    assert chart.spec["layer"][0]["mark"]["type"] == "area"


def test_what_every_corner_beats_is_beaten_and_nothing_else():
    """Three points: one far worse, two that overlap."""
    points = [
        FrontPoint(10, 0.6, 9, 11, 0.58, 0.62),
        FrontPoint(10.5, 0.61, 9.5, 11.5, 0.59, 0.63),
        FrontPoint(20, 0.5, 19, 21, 0.48, 0.52),
    ]
    assert standings(points) == ["perhaps on the front", "perhaps on the front", "beaten"]
    assert standings([FrontPoint(10, 0.6), FrontPoint(20, 0.7)]) == ["on the front", "on the front"]
    band = front_band(points)
    assert all(low <= high for _, low, high in band)
    assert band[0][0] == 9
    assert front_band([FrontPoint(10, 0.6)]) == []


def test_marks_that_cover_each_other_are_counted_and_named():
    """Twelve boards of one figure: one number, whose tooltip says which they are; a board apart has none."""
    boards = [run for n in range(12) for run in runs_of(10.0, device=f"pi-{n:02}")]
    comparison = compare_runs(*boards, *runs_of(30.0, device="far", ap=0.4), make_reference())
    (chart,) = comparison_charts.latency_front(comparison, assign_styles(comparison.rows)).charts
    (layer,) = [one for one in chart.spec["layer"] if one.get("data", {}).get("name") == "counts"]
    (counted,) = layer["data"]["values"]
    assert counted["count"] == "×12"  # noqa: RUF001
    assert counted["here"].startswith("pi-00, ")
    assert counted["here"].endswith("and 7 more")


def test_ratios_that_matter_are_drawn_on_a_logarithmic_axis_that_says_so():
    """From twelve times on."""
    for values, kind in (([1.0, 5.0], None), ([1.0, 50.0], "log")):
        x = specs.cumulative("latency, ms", [("a", "var(--s0)", "circle")], values)["encoding"]["x"]
        assert x["scale"].get("type") == kind
        assert ("logarithmic" in x["title"]) == (kind == "log")


def test_every_axis_has_its_unit(front):
    """The title names it."""
    chart, _ = front
    titles = re.findall(r'"title": "([^"]+)"', json.dumps(chart.spec))
    assert any(title.startswith("Latency p50, ms") for title in titles)


def test_text_of_a_device_stays_data():
    """It neither ends the script element nor becomes an element of the drawing."""
    hostile = "</script><script>alert(1)</script><b>'\"\\"
    rows = [{"lane": hostile, "started_at_ns": day * NS_PER_DAY, "height": 0.0, "value": 1.0, "runs": 1} for day in range(3)]
    chart = Chart(hostile, specs.spark_lines([hostile]), rows_table(rows))
    assert "<" not in script_data(chart.document())
    assert "<script" not in vega.svg(chart)


def test_the_same_chart_is_the_same_svg_and_two_charts_share_no_identity(front):
    """So that an archive can be made again, and a page may hold both."""
    chart, _ = front
    other = Chart("other", chart.spec, rows_table(chart.table.dicts()[:2]))
    assert vega.svg(chart) == vega.svg(chart)
    ids = [set(re.findall(r'id="([^"]+)"', vega.svg(one))) for one in (chart, other)]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize(("draw", "begin"), [(vega.png, b"\x89PNG\r\n"), (vega.pdf, b"%PDF-")])
def test_a_chart_becomes_a_picture(front, draw, begin):
    """Without a browser and without a network."""
    assert draw(front[0]).startswith(begin)


def test_the_bundle_is_made_once_and_kept(tmp_path, monkeypatch):
    """The next process reads it; its name changes with its content."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    for cached in (vega.bundle, vega.bundle_name):
        cached.cache_clear()
    try:
        made = vega.bundle()
        (kept,) = (config.home() / "charts").iterdir()
        assert kept.read_text() == made
        kept.write_text("// kept")
        vega.bundle.cache_clear()
        assert vega.bundle() == "// kept"
        assert re.fullmatch(r"charts-[0-9a-f]{16}\.js", vega.bundle_name())
        assert "</script" not in made
    finally:
        for cached in (vega.bundle, vega.bundle_name):
            cached.cache_clear()
