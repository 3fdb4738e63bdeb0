"""Facts about the events that stand in the series of the page, and the findings that lead there."""

import re
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.series import series_of
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.store import LedgerStore, MemoryStore
from edgemeter.collector.trend.events import events_of
from edgemeter.collector.trend.trend_text import event_text
from edgemeter.collector.trend.watch import trends_of
from edgemeter.collector.trend.watch_file import (
    Annotation,
    WatchFile,
    add_annotation,
    watch_file_beside,
)
from edgemeter.collector.web.events import FOLLOWED, TrendEvents
from tests.fixtures.comparison_factory import history_of, make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import (
    STARTED_AT_NS,
    make_accuracy,
    make_environment,
    make_latency,
    make_record,
)
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import make_days, noisy
from tests.fixtures.served_page import page_of, text_of

SLOWER = {"pi-1": 1.10, "pi-2": 1.06, "pi-3": 1.0}
STEP_DAY = 40


@pytest.fixture(scope="module")
def fleet():
    """Return the runs of three boards, and their findings.

    Two of them are slower from the day of a firmware on, the third is without it.
    """
    runs = []
    for day in range(60):
        for device, ratio in SLOWER.items():
            is_after = day >= STEP_DAY and ratio > 1
            p50_ms = 10.0 * (ratio if is_after else 1.0) * (1 + 0.004 * ((day * 7) % 5 - 2))
            latency = make_latency(p50_ms=p50_ms)
            around = make_environment(firmware="new" if is_after else "old")
            runs.append(
                make_run(
                    device,
                    latency=latency,
                    started_at_ns=STARTED_AT_NS + day * NS_PER_DAY,
                    environment=around,
                )
            )
    events = TrendEvents(MemoryStore(oldest_first(runs)))
    events.refresh()
    return runs, events


def test_a_step_comes_with_its_size_its_interval_and_what_changed_beside_it(fleet):
    """A step of ten per cent is on its day, and names the firmware.

    Other figures have none, nor had this one before the history was read.
    """
    runs, events = fleet
    stepped = series_of(runs[0])
    assert TrendEvents(MemoryStore(oldest_first(runs))).of(stepped, "latency_p50_ms") == ()
    (step,) = [event for event in events.of(stepped, "latency_p50_ms") if event.kind == "step"]
    assert "+10% (" in step.text
    assert "firmware" in step.text
    assert abs(step.at_ns - STARTED_AT_NS - STEP_DAY * NS_PER_DAY) <= NS_PER_DAY
    assert [event for event in events.of(stepped, "accuracy_value") if event.kind == "step"] == []


def test_a_finding_leads_to_the_series_of_what_it_hit_in_its_period(fleet):
    """A firmware on two boards is one finding, with the change of both."""
    runs, events = fleet
    (finding,) = events.findings_of({})
    assert "2 steps: p50 +6.0 to +10%" in finding.text
    assert "firmware old to new" in finding.text
    reference = re.findall(
        r'<a href="([^"]*)"', text_of(page_of(runs, events), "/trend").partition('id="findings"')[2]
    )[0].replace("&amp;", "&")
    path, fields = urlsplit(reference).path, dict(parse_qsl(urlsplit(reference).query))
    assert (path, fields["metric"]) == ("/trend", "latency_p50_ms")
    first_ms, last_ms = map(int, fields["between"].split(","))
    step_ms = (STARTED_AT_NS + STEP_DAY * NS_PER_DAY) // 1_000_000
    assert first_ms < step_ms < last_ms
    assert events.findings_of({"device": "pi-3"}) == []
    assert events.findings_of({"device": "pi-2", "fleet": "lab"}) == [finding]


def test_a_series_of_one_run_has_no_events():
    """The page of such a series is made all the same."""
    run = make_run()
    events = TrendEvents(MemoryStore([run]))
    events.refresh()
    assert list(events.of(series_of(run), "latency_p50_ms")) == []


def test_an_accuracy_that_fell_is_a_step_of_its_chart():
    """An accuracy that fell and an error that rose are both drawn as the page's accuracy.

    Each is followed by a metric of its own.
    """
    for better, before, after in (("higher", 0.60, 0.55), ("lower", 0.10, 0.15)):
        with table_row(better):
            days = make_days([100.0] * 60)
            values = [before] * 40 + [after] * 20
            runs = [
                msgspec.structs.replace(run, accuracy=make_accuracy(value=value, better=better))
                for run, value in zip(days, values, strict=True)
            ]
            events = TrendEvents(MemoryStore(oldest_first(runs)))
            events.refresh()
            assert [event.kind for event in events.of(series_of(runs[-1]), "accuracy_value")] == [
                "step"
            ]


def test_remarks_of_people_stand_in_the_series_that_they_are_about(fleet, tmp_path):
    """A remark also makes a browser ask again for a page that it kept."""
    path = fill(tmp_path / "ledger.sqlite", fleet[0])
    events = TrendEvents(LedgerStore(path))
    events.refresh()
    before = events.version()
    with WatchFile(watch_file_beside(str(path))) as file:
        add_annotation(
            file,
            Annotation(
                day=STARTED_AT_NS // NS_PER_DAY + 3,
                text="moved to the window",
                begins_level=False,
                device="pi-1",
            ),
        )
        add_annotation(
            file,
            Annotation(
                day=STARTED_AT_NS // NS_PER_DAY + 3,
                text="not this one",
                begins_level=False,
                device="pi-2",
            ),
        )
        assert events.version() != before
    assert [
        event.text
        for event in events.of(series_of(make_run()), "latency_p50_ms")
        if event.kind == "remark"
    ] == ["moved to the window"]


def test_the_board_with_an_issue_of_the_simulated_fleet_is_named_first_and_no_healthy_one_is():
    """The odd board draws a tenth more than its peers, over both of its cases."""
    fleet = simulated_fleet.records_of(make_record(), end_ns=STARTED_AT_NS, days=20)
    boards = tuple(run for run in fleet if run.device.startswith("simulated-pi5"))
    events = TrendEvents(MemoryStore(oldest_first(boards)))
    events.refresh()
    named = [
        device
        for (_, device), texts in events.outlying.items()
        if any(text.startswith("energy ") for text in texts)
    ]
    assert named == [simulated_fleet.DEGRADED]


def test_the_page_shows_an_event_as_the_trend_does():
    """A firmware on three boards in energy and latency is one finding of all of them.

    A single finding stays one of its own.
    """
    firmwares = ["a"] * 50 + ["b"] * 20
    runs = [
        run
        for unit in (1, 2, 3)
        for run in make_days(
            noisy(100, 70, seed=unit, step_at=50, step_ratio=1.08),
            device=f"pi-{unit}",
            firmwares=firmwares,
        )
    ]
    latencies = noisy(1, 70, seed=9)
    runs += [
        msgspec.structs.replace(run, latency=make_latency(p50_ms=p50_ms))
        for run, p50_ms in zip(
            make_days(noisy(100, 70, seed=8, step_at=60, step_ratio=1.2), device="pi-9"),
            latencies,
            strict=True,
        )
    ]
    events = TrendEvents(MemoryStore(oldest_first(runs)))
    events.refresh()
    alone, event = events.findings
    assert (event.who, event.text) == (
        "pi-1, pi-2, pi-3",
        event_text(events_of(trends_of(history_of(runs), (), FOLLOWED), 0)[0]),
    )
    assert event.devices == (("lab", "pi-1"), ("lab", "pi-2"), ("lab", "pi-3"))
    assert (alone.who, alone.metric) == ("pi-9", "energy_gross_mj")
