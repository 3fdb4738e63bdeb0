"""Test the page of one run.

It shows the run on one axis of time, and has a part that shows it over time.
"""

import msgspec
import numpy as np
import pytest

from edgemeter.agent.contract import record_conditions, record_figures, samples
from edgemeter.agent.contract.record_figures import CurvePoint
from edgemeter.collector.charts import vega
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.run import charts_of, run_view
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.camera_hour import camera_hour
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.record_factory import make_power_trace, make_record
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import view_context

S = 1_000_000_000
STARTS_NS = np.arange(20, dtype=np.int64) * S // 10
SERIES = (
    samples.pack("latency", "ns", np.full(20, 9_000_000, np.int64)),
    samples.pack("query_start", "ns", STARTS_NS),
    samples.pack("power.ina", "W", np.linspace(3.0, 5.0, 40)),
    samples.pack("power_at.ina", "ns", np.linspace(-3 * S, 4 * S, 40).astype(np.int64)),
)
WHEN = record_figures.Windows(
    timed_start_ns=0,
    timed_end_ns=2 * S,
    idle_before_ns=(-3 * S, -1 * S),
    idle_after_ns=(2 * S, 4 * S),
)


def page_of(**fields):
    context = view_context([make_run(id="one", **fields)])
    view = run_view(context, ViewRequest("run", {"id": "one"}), CaseFilter())
    return view, {chart.title: chart for chart in context.draw.charts}


def test_latency_and_power_stand_on_one_axis_of_time_with_idle_and_warm_up_shaded():
    """The times are those of the samples; the conditions before the run are in its idle part."""
    before = record_conditions.Condition(when="before", temperatures_c={"soc": 45.0})
    _, charts = page_of(
        samples=SERIES, windows=WHEN, power_traces=(make_power_trace("ina"),), conditions=(before,)
    )
    chart = charts["Latency of every query, and power"]
    rows = chart.table.dicts()
    assert [row["at_s"] for row in rows if row["latency_ms"] is not None] == pytest.approx(
        [start / S for start in STARTS_NS.tolist()]
    )
    power = [(row["at_s"], row["power_w"]) for row in rows if row["sensor"] == "ina"]
    assert (*power[0], *power[-1]) == pytest.approx((-3.0, 3.0, 4.0, 5.0))
    bands = {band["name"]: band for band in chart.spec["layer"][0]["data"]["values"]}
    assert set(bands) == {"idle before", "warm-up", "timed", "idle after"}
    assert (bands["idle before"]["start"], bands["idle before"]["end"]) == pytest.approx(
        (-3.0, -1.0)
    )
    assert bands["warm-up"]["end"] == bands["idle before"]["start"]
    assert "45" in bands["idle before"]["text"]
    assert bands["idle after"]["text"] == "not reported"
    assert "NaN" not in vega.svg(chart)


def test_without_the_moments_of_the_queries_they_stand_in_their_order():
    """No time is invented."""
    chart = page_of(samples=SERIES[:1])[1]["Latency of every query, in order"]
    assert [row["at_s"] for row in chart.table.dicts()] == list(range(1, 21))
    assert chart.spec["layer"][0]["encoding"]["x"]["title"] == "query"


def body_of(run):
    context = view_context([run])
    return str(run_view(context, ViewRequest("run", {"id": run.id}), CaseFilter()).body)


def test_a_short_run_without_frames_has_no_such_part():
    """The run of a camera has its frames and charts.

    A sustained one of other queries has its own heading.
    """
    body = body_of(camera_hour())
    for text in ("Frames and the run over time", "missed 5,340, 9.9%", "Clock and temperature"):
        assert text in body
    steady_hour = camera_hour()
    for run, heading in (
        (make_record(), None),
        (msgspec.structs.replace(steady_hour, steady=None), "<h2>Over time</h2>"),
    ):
        with table_row(heading):
            body = body_of(run)
            assert ("over-time" in body, heading is None or heading in body) == (
                heading is not None,
                True,
            )


def test_each_chart_holds_what_is_known_and_no_more():
    """Missed frames are by the interval, and each quantity is in its own unit.

    Without clock or power those charts are absent.
    """
    sustained = camera_hour().sustained
    charts = {chart.title: chart for chart in charts_of(sustained, of_frames=True)}
    assert list(charts) == [
        "Missed frames and model's own time p50",
        "Clock and temperature",
        "Power",
    ]
    frames = charts["Missed frames and model's own time p50"].table.dicts()
    assert (len(frames), sum(row["missed"] for row in frames), frames[0]["end_s"]) == (
        180,
        89 * 60,
        20.0,
    )
    assert charts["Clock and temperature"].table.dicts()[100] | {"temperature_c": 0} == {
        "at_s": 2000.0, "end_s": 2020.0, "clock_mhz": pytest.approx(900.0), "temperature_c": 0,
    }  # fmt: skip
    bare = tuple(CurvePoint(p50_ms=4.0) for _ in sustained.points)
    assert [
        chart.title
        for chart in charts_of(msgspec.structs.replace(sustained, points=bare), of_frames=False)
    ] == ["P50"]
