"""Facts about charts: what they draw is what the tables show, with its intervals, and it can be drawn anywhere."""

import itertools
import re

import pytest

from edgemeter.agent.base import config
from edgemeter.collector.charts import specs, vega
from edgemeter.collector.charts.chart import Chart, rows_table, script_data
from edgemeter.collector.charts.scatter import HEIGHT_PX, MARK_PX, SEVERAL, merged, places
from edgemeter.collector.show import comparison_charts
from edgemeter.collector.show.sentence import outcome_of
from edgemeter.collector.show.series_style import assign_styles
from tests.fixtures.comparison_factory import compare_runs, make_reference, make_run
from tests.fixtures.record_factory import STARTED_AT_NS

NS_PER_DAY = 86_400 * 10**9


def runs_of(p50_ms, **changes):
    """Return runs on five days around a p50."""
    return [make_run(p50_ms=p50_ms * (1 + day / 100), started_at_ns=STARTED_AT_NS + day * NS_PER_DAY, **changes) for day in range(5)]


def symbols(svg):
    """Return where the marks of a drawing are, in pixels from the left and from above."""
    (group,) = re.findall(r'<g class="mark-symbol role-mark.*?</g>', svg)
    return [(float(x), float(y)) for x, y in re.findall(r'transform="translate\(([\d.]+),([\d.]+)\)"', group)]


@pytest.fixture
def against_accuracy():
    """Return the chart of latency against accuracy of two cases and a reference, and what it was made from."""
    comparison = compare_runs(*runs_of(10.0), *runs_of(10.2, precision="int8", ap=0.61), make_reference())
    (chart,) = comparison_charts.latency_against_accuracy(comparison, assign_styles(comparison.rows)).charts
    return chart, comparison


def test_a_chart_draws_the_figures_and_intervals_of_the_comparison(against_accuracy):
    """The very values that the table and --format json show."""
    chart, comparison = against_accuracy
    rows = chart.table.dicts()
    figures = [row.case.p50_ms for row in comparison.rows]
    assert [(row["cost"], row["cost_low"], row["cost_high"]) for row in rows] == [(p50.value, p50.low, p50.high) for p50 in figures]
    assert any(p50.low for p50 in figures)
    # What a mark says of its case is what the table says.
    assert [row["standing"] for row in rows] == ["the reference" if row.is_reference else outcome_of(row) for row in comparison.rows]


@pytest.fixture
def crowded_chart():
    """Return the chart of twelve boards of nearly one figure, of one far away, and of a reference."""
    boards = [run for n in range(12) for run in runs_of(10.0 + n / 50, device=f"pi-{n:02}")]
    comparison = compare_runs(*boards, *runs_of(30.0, device="far", ap=0.4), make_reference())
    (chart,) = comparison_charts.latency_against_accuracy(comparison, assign_styles(comparison.rows)).charts
    return chart


def test_marks_that_cover_each_other_are_one_with_one_interval(crowded_chart):
    """Twelve boards: one number, an interval over all of theirs, and which they are; a board apart is itself."""
    rows = [row for row in crowded_chart.table.dicts() if row["device"].startswith("pi-")]
    marks = crowded_chart.spec["datasets"]["marks"]
    assert len(rows) == 12
    assert sorted(mark["count"] for mark in marks) == ["", "", "×12"]  # noqa: RUF001
    (mark,) = [of_several for of_several in marks if of_several["count"]]
    ends = min(row["cost_low"] for row in rows), max(row["cost_high"] for row in rows)
    assert (mark["cost_low"], mark["cost_high"]) == pytest.approx(ends, rel=1e-5)
    assert min(row["cost"] for row in rows) < mark["cost"] < max(row["cost"] for row in rows)
    assert mark["case"].startswith("12 cases: pi-00, ")
    assert mark["case"].endswith("and 6 more")


def test_a_drawing_has_one_mark_and_one_interval_of_what_would_cover_each_other(crowded_chart):
    """In the static SVG, as in the page: three marks, none over another; as many rules each way as marks have an interval."""
    svg = vega.svg(crowded_chart)
    places_of_marks = symbols(svg)
    assert len(places_of_marks) == 3
    assert all(
        max(abs(x - other_x), abs(y - other_y)) >= MARK_PX[0] for (x, y), (other_x, other_y) in itertools.combinations(places_of_marks, 2)
    )
    bounded = [sum(mark[f"{of}_low"] is not None for mark in crowded_chart.spec["datasets"]["marks"]) for of in ("cost", "accuracy")]
    lines = [line for group in re.findall(r'<g class="mark-rule role-mark.*?</g>', svg) for line in re.findall(r"<line[^>]*>", group)]
    # A mark without an interval has a line of no length.
    assert sum('x2="0" y2="0"' not in line for line in lines) == sum(bounded)


def test_marks_are_merged_by_the_places_that_a_drawing_gives_them():
    """To a pixel, on linear axes with their round ends as on a logarithmic one."""
    for reach in (1.1, 40.0):
        boards = [run for n in range(6) for run in runs_of(10.0 * reach ** (n / 5), device=f"pi-{n}", ap=0.5 + n / 100)]
        comparison = compare_runs(*boards, make_reference())
        (chart,) = comparison_charts.latency_against_accuracy(comparison, assign_styles(comparison.rows)).charts
        position = places(chart.table.dicts())
        for (x, y), mark in zip(symbols(vega.svg(chart)), chart.spec["datasets"]["marks"], strict=True):
            across, upward = position(mark["cost"], mark["accuracy"])
            assert (x, HEIGHT_PX - y) == pytest.approx((across, upward), abs=1)


def test_a_mark_of_several_series_is_of_none_of_them():
    """Its colour is the text's; without an interval where none has one."""
    row = {"cost_low": None, "cost_high": None, "accuracy_low": None, "accuracy_high": None, "label": "a"}
    row |= {"accuracy": 0.5, "standing": "worse", "verdict": "ok"}
    rows = [{**row, "case": name, "series": name, "cost": 1.0 + n} for n, name in enumerate("abc")]
    (mark,) = merged(rows, lambda cost, accuracy: (cost, accuracy))
    assert (mark["series"], mark["label"]) == (SEVERAL, None)
    assert (mark["cost"], mark["cost_low"], mark["standing"]) == (2.0, None, "worse")
    assert merged(rows, lambda cost, accuracy: (cost * 20, accuracy)) == [{**row, "count": ""} for row in rows]


@pytest.mark.parametrize(("verdicts", "is_explained"), [(("ok", "disturbed"), True), (("ok", "ok"), False)])
def test_hollow_marks_are_explained_where_there_are_any(verdicts, is_explained):
    """A disturbed run or case is drawn hollow."""
    assert Chart("runs", {}, rows_table([{"value": 1.0, "verdict": verdict} for verdict in verdicts])).has_hollow_marks == is_explained


def test_ratios_that_matter_are_drawn_on_an_axis_titled_logarithmic():
    """Values that lie 5 times apart have a linear axis, values that lie 50 times apart a logarithmic one with that word in its title."""
    for values, kind in (([1.0, 5.0], None), ([1.0, 50.0], "log")):
        x = specs.cumulative("latency, ms", [("a", "var(--s0)", "circle")], values)["encoding"]["x"]
        assert x["scale"].get("type") == kind
        assert ("logarithmic" in x["title"]) == (kind == "log")


def test_text_of_a_device_stays_data():
    """It neither ends the script element nor becomes an element of the drawing."""
    hostile = "</script><script>alert(1)</script><b>'\"\\"
    rows = [{"lane": hostile, "started_at_ns": day * NS_PER_DAY, "height": 0.0, "value": 1.0, "runs": 1} for day in range(3)]
    chart = Chart(hostile, specs.spark_lines([hostile]), rows_table(rows))
    assert "<" not in script_data(chart.document())
    assert "<script" not in vega.svg(chart)


def test_the_same_chart_is_the_same_svg_and_two_charts_share_no_identity(against_accuracy):
    """So that an archive can be made again, and a page may hold both."""
    chart, _ = against_accuracy
    other = Chart("other", chart.spec, rows_table(chart.table.dicts()[:2]))
    assert vega.svg(chart) == vega.svg(chart)
    ids = [set(re.findall(r'id="([^"]+)"', vega.svg(drawing))) for drawing in (chart, other)]
    assert not ids[0] & ids[1]


@pytest.mark.services
def test_the_bundle_is_made_once_and_kept(tmp_path, monkeypatch):
    """The next process reads it; its name changes with its content."""
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


def test_every_board_type_has_its_name_beside_its_line():
    """Vega draws every other name where an axis has more values than ticks."""
    axis = specs.spark_lines([f"board {number}" for number in range(12)])["layer"][0]["encoding"]["y"]["axis"]
    assert axis["tickCount"] == len(axis["values"]) == 12
