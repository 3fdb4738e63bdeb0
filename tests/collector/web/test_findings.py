"""Facts about the findings on the page: an event on many boards is told once, with the way to its series."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.store import MemoryStore
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.findings import findings_list
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.record_factory import STARTED_AT_NS, make_environment, make_latency
from tests.fixtures.served_page import view_context

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
    events = TrendEvents(MemoryStore(oldest_first(runs)))
    events.refresh()
    return runs, events


def test_a_finding_leads_to_the_series_of_what_it_hit_in_its_period(fleet):
    """A firmware on two boards is told once, with the change of both."""
    runs, events = fleet
    context = view_context(runs, events)
    (line,) = findings_list(context, {}).lines
    assert "2 steps: p50 +6.0 to +10%" in line.text
    assert "firmware old to new" in line.text
    view, fields = context.links.to("trend"), dict(parse_qsl(urlsplit(line.reference).query))
    assert (line.reference.partition("?")[0], fields["metric"]) == (view, "latency_p50_ms")
    first_ms, last_ms = map(int, fields["between"].split(","))
    step_ms = (STARTED_AT_NS + STEP_DAY * NS_PER_DAY) // 1_000_000
    assert first_ms < step_ms < last_ms
    assert findings_list(context, {"device": "pi-3"}).lines == []
