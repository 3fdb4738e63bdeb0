"""Facts about the events that stand in the series of the page."""

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.series import series_of
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.runs.contents import oldest_first
from edgemeter.collector.runs.store import LedgerStore, MemoryStore
from edgemeter.collector.trend.events import events_of
from edgemeter.collector.trend.trend_text import event_text
from edgemeter.collector.trend.watch import trends_of
from edgemeter.collector.trend.watch_file import Annotation, WatchFile, add_annotation, watch_file_beside
from edgemeter.collector.web.events import FOLLOWED, TrendEvents
from tests.fixtures.comparison_factory import history_of, make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import STARTED_AT_NS, make_accuracy, make_environment, make_latency, make_record
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import make_days, noisy

DAYS, STEP_DAY = 60, 40


def stepped():
    """Return a run a day, 10% slower from a day on, on which the firmware changed."""
    runs = []
    for day in range(DAYS):
        p50_ms = 10.0 * (1.1 if day >= STEP_DAY else 1.0) * (1 + 0.004 * ((day * 7) % 5 - 2))
        firmware = "new" if day >= STEP_DAY else "old"
        latency = make_latency(p50_ms=p50_ms)
        started_at_ns = STARTED_AT_NS + day * NS_PER_DAY
        runs.append(make_run(latency=latency, started_at_ns=started_at_ns, environment=make_environment(firmware=firmware)))
    return runs


def test_a_step_comes_with_its_size_its_interval_and_what_changed_beside_it():
    """Ten per cent, on its day, and the firmware is named; other figures have none, nor had this one before the history was read."""
    runs = stepped()
    events = TrendEvents(MemoryStore(oldest_first(runs)))
    assert events.of(series_of(runs[-1]), "latency_p50_ms") == ()
    events.refresh()
    (step,) = [event for event in events.of(series_of(runs[-1]), "latency_p50_ms") if event.kind == "step"]
    assert "+10% (" in step.text
    assert "firmware" in step.text
    assert abs(step.at_ns - runs[STEP_DAY].started_at_ns) <= NS_PER_DAY
    assert [event for event in events.of(series_of(runs[-1]), "accuracy_value") if event.kind == "step"] == []


def test_an_accuracy_that_fell_is_a_step_of_its_chart():
    """Of an accuracy, and of an error that rose: each is followed by a metric of its own, and both are drawn as the page's accuracy."""
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
            assert [event.kind for event in events.of(series_of(runs[-1]), "accuracy_value")] == ["step"]


def test_remarks_of_people_stand_in_the_series_that_they_are_about(tmp_path):
    """And a page that was kept by a browser is asked for again."""
    path = fill(tmp_path / "ledger.sqlite", stepped())
    events = TrendEvents(LedgerStore(path))
    events.refresh()
    before = events.version()
    with WatchFile(watch_file_beside(str(path))) as file:
        add_annotation(file, Annotation(day=STARTED_AT_NS // NS_PER_DAY + 3, text="moved to the window", begins_level=False, device="pi-1"))
        add_annotation(file, Annotation(day=STARTED_AT_NS // NS_PER_DAY + 3, text="not this one", begins_level=False, device="pi-2"))
        assert events.version() != before
    assert [event.text for event in events.of(series_of(make_run()), "latency_p50_ms") if event.kind == "remark"] == ["moved to the window"]


def test_the_board_with_an_issue_of_the_simulated_fleet_is_named_first_and_no_healthy_one_for_its_energy():
    """It draws a tenth more than its peers, over both of its cases."""
    fleet = simulated_fleet.records_of(make_record(), end_ns=STARTED_AT_NS, days=20)
    boards = tuple(run for run in fleet if run.device.startswith("simulated-pi5"))
    events = TrendEvents(MemoryStore(oldest_first(boards)))
    events.refresh()
    named = [device.device for device in events.outlying if device.text.startswith("energy ")]
    assert named == [simulated_fleet.DEGRADED]


def test_the_page_shows_an_event_as_the_trend_does():
    """A firmware on three boards in energy and latency is one finding, of all of them; what is alone stays one of its own."""
    firmwares = ["a"] * 50 + ["b"] * 20
    runs = [
        run
        for unit in (1, 2, 3)
        for run in make_days(noisy(100, 70, seed=unit, step_at=50, step_ratio=1.08), device=f"pi-{unit}", firmwares=firmwares)
    ]
    latencies = noisy(1, 70, seed=9)
    runs += [
        msgspec.structs.replace(run, latency=make_latency(p50_ms=p50_ms))
        for run, p50_ms in zip(make_days(noisy(100, 70, seed=8, step_at=60, step_ratio=1.2), device="pi-9"), latencies, strict=True)
    ]
    events = TrendEvents(MemoryStore(oldest_first(runs)))
    events.refresh()
    alone, event = events.findings
    assert (event.who, event.text) == ("pi-1, pi-2, pi-3", event_text(events_of(trends_of(history_of(runs), (), FOLLOWED), 0)[0]))
    assert event.devices == (("lab", "pi-1"), ("lab", "pi-2"), ("lab", "pi-3"))
    assert (alone.who, alone.metric) == ("pi-9", "energy_gross_mj")
