"""Facts about an event on many boards: one chart, before and after by board, and the way from the findings to it."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.collector.charts import vega
from edgemeter.collector.index.sources import DocumentSource
from edgemeter.collector.web import one_file
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.findings import findings_list
from edgemeter.collector.web.one_file import FileChoice
from edgemeter.collector.web.queries import CaseFilter
from edgemeter.collector.web.series import trend_view
from edgemeter.collector.web.view import ViewRequest
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.record_factory import STARTED_AT_NS, make_environment, make_latency
from tests.fixtures.served_page import indexed, view_context

SLOWER = {"pi-1": 1.10, "pi-2": 1.06, "pi-3": 1.0}
STEP_DAY = 40


@pytest.fixture(scope="module")
def fleet():
    """Return the runs of three boards, two of them slower from the day of a firmware on, the third without it; and their findings."""
    runs = []
    for day in range(60):
        for device, ratio in SLOWER.items():
            is_after = day >= STEP_DAY and ratio > 1
            p50_ms = 10.0 * (ratio if is_after else 1.0) * (1 + 0.004 * ((day * 7) % 5 - 2))
            latency = make_latency(p50_ms=p50_ms)
            around = make_environment(firmware="new" if is_after else "old")
            runs.append(make_run(device, latency=latency, started_at_ns=STARTED_AT_NS + day * NS_PER_DAY, environment=around))
    events = TrendEvents(DocumentSource(tuple(runs)))
    events.refresh()
    return runs, events


def test_a_firmware_on_several_boards_is_one_chart_by_board(fleet):
    """Each board that changed has both levels and the interval of the change, which holds the truth; others are absent."""
    runs, events = fleet
    (finding,) = [finding for finding in events.findings if len(finding.steps) > 1]
    with view_context(runs, events) as context:
        view = trend_view(context, ViewRequest("trend", {"event": finding.key}), CaseFilter())
        (chart,) = context.sheet.charts
    rows = {row["device"]: row for row in chart.table.dicts()}
    assert set(rows) == {"pi-1", "pi-2"}
    for device, row in rows.items():
        assert row["low"] < (SLOWER[device] - 1) * 100 < row["high"]
        assert row["before"] == "10 ms" or row["before"].startswith(("10.0", "9.9"))
        assert float(row["after"].split(" ")[0]) == pytest.approx(10.0 * SLOWER[device], rel=0.01)
    assert "firmware old to new" in view.lead
    svg = vega.svg(chart)
    assert "pi-1" in svg
    assert "NaN" not in svg
    steps = view.tables[0].dicts()
    assert {(step["device"], step["metric"]) for step in steps} == {("pi-1", "latency_p50_ms"), ("pi-2", "latency_p50_ms")}


def test_the_list_of_findings_leads_to_the_chart_and_the_chart_to_every_series(fleet):
    """The address stays the same while the finding is the same; the page as one file has it too."""
    runs, events = fleet
    (finding,) = [finding for finding in events.findings if len(finding.steps) > 1]
    with view_context(runs, events) as context:
        assert f'href="/trend?event={finding.key}"' in findings_list(context, {})
        body = trend_view(context, ViewRequest("trend", {"event": finding.key}), CaseFilter()).body
        assert 'href="/trend?between=' in body
        with pytest.raises(ConfigError, match="'x'"):
            trend_view(context, ViewRequest("trend", {"event": "x"}), CaseFilter())
    reread = TrendEvents(DocumentSource(tuple(runs)))
    reread.refresh()
    assert finding.key in {other.key for other in reread.findings}
    with indexed(runs) as index:
        text = one_file.whole_page(index, events, FileChoice(runs=1))
    assert f'<template data-address="trend?event={finding.key}">' in text
