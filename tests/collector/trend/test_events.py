"""Test that one event is told once.

An event has one cause on several devices, or affects several series of one device.
"""

import json

from click.testing import CliRunner

from edgemeter.collector.cli.trend import trend
from edgemeter.collector.trend.events import events_of
from edgemeter.collector.trend.trend_text import event_kind, event_text
from edgemeter.collector.trend.watch import trends_of
from tests.fixtures.comparison_factory import document, history_of
from tests.fixtures.record_factory import violating
from tests.fixtures.series_factory import FIRST_DAY, make_days, noisy

DAYS, AT = 70, 50
FIRMWARES = ["a"] * AT + ["b"] * (DAYS - AT)
METRICS = ("energy_gross_mj", "latency_p50_ms")


def board(number, **changes):
    """Return the runs of a board, by default one that became slower with new firmware.

    It also draws more energy from that day.
    """
    settings = {"step_at": AT, "step_ratio": 1.08, "firmwares": FIRMWARES, "days": DAYS} | changes
    values = noisy(
        100,
        settings["days"],
        seed=number,
        step_at=settings["step_at"],
        step_ratio=settings["step_ratio"],
    )
    return make_days(
        values, device=f"pi-{number}", firmwares=settings["firmwares"], seq=1000 * number
    )


def found_in(*boards):
    """Return the trends of the boards, and their events by the last day of all."""
    trends = trends_of(
        history_of([run for runs_of_board in boards for run in runs_of_board]), (), METRICS
    )
    return trends, events_of(trends, max(trend.last_day for trend in trends))


def test_a_firmware_on_several_boards_is_one_event():
    """Four boards in two metrics are eight steps and one event, with all of them as its members."""
    trends, (event,) = found_in(*(board(number) for number in range(1, 5)))
    assert (event.kind, event.cause, event.devices) == (
        "fleet",
        "firmware a to b",
        ("pi-1", "pi-2", "pi-3", "pi-4"),
    )
    assert len(event.members) == sum(len(trend.steps) for trend in trends) == 8
    assert event.day_low <= FIRST_DAY + AT <= event.day_high


def test_boards_that_were_updated_weeks_apart_are_two_events():
    """The cause is the same, but the day is not."""
    early = [board(number, step_at=25, firmwares=["a"] * 25 + ["b"] * 45) for number in (1, 2)]
    _, events = found_in(*early, board(3), board(4))
    assert [(event.kind, event.devices) for event in events] == [
        ("fleet", ("pi-3", "pi-4")),
        ("fleet", ("pi-1", "pi-2")),
    ]


def test_a_step_found_the_day_before_the_change_belongs_to_the_event_of_the_others():
    """Noise moved the day beyond its interval.

    The board had the cause too, and is not reported on its own.
    """
    early = make_days(
        noisy(100, DAYS, seed=7, noise_ratio=0.02, step_at=AT, step_ratio=1.06),
        device="pi-7",
        firmwares=FIRMWARES,
        seq=7000,
    )
    trends, (event,) = found_in(board(1), board(2), board(3), early)
    (step,) = next(trend.steps for trend in trends if trend.key.device == "pi-7")
    assert (step.day_low, step.day_high, step.candidates) == (
        FIRST_DAY + AT - 1,
        FIRST_DAY + AT - 1,
        (),
    )
    assert (event.kind, event.cause, event.devices) == (
        "fleet",
        "firmware a to b",
        ("pi-1", "pi-2", "pi-3", "pi-7"),
    )


def test_a_board_with_an_issue_is_distinguished_from_the_fleet():
    """A step on the same day without the cause is an event of its own.

    A board that is steady is in none.
    """
    _, events = found_in(
        board(1), board(2), board(3, firmwares=None, step_ratio=1.25), board(4, step_ratio=1.0)
    )
    assert {(event.kind, event.cause, event.devices) for event in events} == {
        ("fleet", "firmware a to b", ("pi-1", "pi-2")),
        ("device", None, ("pi-3",)),
    }


def test_the_update_of_a_single_board_is_its_own():
    """One device is no fleet, whatever changed beside it, and a single finding is no event."""
    _, (event,) = found_in(board(1), board(2, firmwares=None, step_ratio=1.0))
    assert (event.kind, event.cause, event.devices) == ("device", "firmware a to b", ("pi-1",))
    trends = trends_of(history_of(board(1)), (), ("energy_gross_mj",))
    assert len(trends[0].steps) == 1
    assert events_of(trends, trends[0].last_day) == []


def test_a_board_that_is_gone_is_reported_once():
    """Every series of the board has the same gap."""
    _, events = found_in(
        board(1, firmwares=None, step_ratio=1.0), board(2, firmwares=None, step_ratio=1.0, days=60)
    )
    (event,) = events
    assert (event.kind, event.devices, len(event.members)) == ("missing", ("pi-2",), 2)


def test_what_ran_and_does_not_count_is_another_gap_than_what_did_not_run():
    """The board throttles since its meter is gone.

    Its latencies are not ok, its energies are missing.
    """
    throttling = {"energy": None, "verdict": violating("disturbed", "throttled")}
    runs = board(2, firmwares=None, step_ratio=1.0, days=60)
    trends, events = found_in(
        board(1, firmwares=None, step_ratio=1.0),
        runs + make_days([None] * 60 + [100.0] * 10, device="pi-2", **throttling),
    )
    gaps = [trend.missing(FIRST_DAY + DAYS - 1) for trend in trends]
    assert [gap.has_runs for gap in gaps if gap] == [False, True]
    assert events == []


def test_a_board_type_that_is_gone_is_reported_as_missing():
    """The words say so too, as no step of it was found."""
    runs = [run for number in (1, 2) for run in board(number, firmwares=None, step_ratio=1.0)]
    trends = trends_of(history_of(runs), (), METRICS, by_type=True)
    (event,) = events_of(trends, FIRST_DAY + DAYS + 9)
    assert (event_kind(event), event_text(event)) == (
        "missing",
        "no run in 2 series since 2024-12-12",
    )


def test_the_command_shows_the_event_and_its_members_on_demand(tmp_path):
    """The fleet and the board that is gone have a row each.

    With --members there are twelve, and no event; JSON has the members by series.
    """
    store = str(tmp_path / "runs.json")
    gone = board(7, firmwares=None, step_ratio=1.0, days=60)
    (tmp_path / "runs.json").write_bytes(
        document(*(run for number in range(1, 6) for run in board(number)), *gone)
    )
    words = ["--ledger", store, "--figure", ",".join(METRICS), "--format", "markdown"]
    printed = CliRunner().invoke(trend, words, catch_exceptions=False).stdout
    assert printed.count("step, ") == printed.count("no run for") == 0
    (fleet,) = [line for line in printed.splitlines() if "fleet, worse" in line]
    assert "firmware a to b" in fleet
    assert sum("pi-7" in line for line in printed.splitlines()) == 1
    members = CliRunner().invoke(trend, [*words, "--members"], catch_exceptions=False).stdout
    assert (
        members.count("step, worse"),
        members.count("no run for"),
        members.count("fleet, "),
    ) == (10, 2, 0)
    result = CliRunner().invoke(
        trend,
        ["--ledger", store, "--figure", "energy_gross_mj", "--format", "json"],
        catch_exceptions=False,
    )
    printed = json.loads(result.stdout)
    (event,) = printed["events"]
    assert (event["kind"], event["cause"], len(event["members"])) == ("fleet", "firmware a to b", 5)
    steps = {
        (series["key"]["device"], step["day"], step["size"])
        for series in printed["series"]
        for step in series["steps"]
    }
    assert {
        (member["device"], member["day"], member["size"]) for member in event["members"]
    } == steps
