"""Facts about the part of a run's page that shows it over time."""

import msgspec
import pytest

from edgemeter.agent.contract.record_figures import CurvePoint
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.run import charts_of, run_view
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.camera_hour import camera_hour
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row
from tests.fixtures.served_page import view_context


def body_of(run):
    """Return the page of a run."""
    context = view_context([run])
    return str(run_view(context, ViewRequest("run", {"id": run.id}), CaseFilter()).body)


def test_a_short_run_without_frames_has_no_such_part():
    """A camera's has its frames and charts; a sustained one of other queries has its own heading."""
    body = body_of(camera_hour())
    for text in ("Frames and the run over time", "missed 5,340, 9.9%", "Clock and temperature"):
        assert text in body
    steady_hour = camera_hour()
    for run, heading in ((make_record(), None), (msgspec.structs.replace(steady_hour, steady=None), "<h2>Over time</h2>")):
        with table_row(heading):
            body = body_of(run)
            assert ("over-time" in body, heading is None or heading in body) == (heading is not None, True)


def test_each_chart_holds_what_is_known_and_no_more():
    """Missed frames by the interval, each quantity in its own unit; without clock or power those charts are absent."""
    sustained = camera_hour().sustained
    charts = {chart.title: chart for chart in charts_of(sustained, of_frames=True)}
    assert list(charts) == ["Missed frames and model's own time p50", "Clock and temperature", "Power"]
    frames = charts["Missed frames and model's own time p50"].table.dicts()
    assert (len(frames), sum(row["missed"] for row in frames), frames[0]["end_s"]) == (180, 89 * 60, 20.0)
    assert charts["Clock and temperature"].table.dicts()[100] | {"temperature_c": 0} == {
        "at_s": 2000.0, "end_s": 2020.0, "clock_mhz": pytest.approx(900.0), "temperature_c": 0,
    }  # fmt: skip
    bare = tuple(CurvePoint(p50_ms=4.0) for _ in sustained.points)
    assert [chart.title for chart in charts_of(msgspec.structs.replace(sustained, points=bare), of_frames=False)] == ["P50"]
