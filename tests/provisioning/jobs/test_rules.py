"""Who may start: single rules, and what holds for every schedule drawn at random."""

import random
import time

import pytest

from edgemeter.provisioning.jobs import rules
from edgemeter.provisioning.jobs.rules import Candidate, DevicePlace, InFlight, StartRules
from tests.fixtures.rows import table_row

S = 1_000_000_000
A, B = Candidate(1, "a", 0), Candidate(2, "b", 0)


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    """Let local time be UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(clock):
    """Return a time of day, UTC, in ns since 1970."""
    hours, minutes = clock.split(":")
    return ((20_000 * 24 + int(hours)) * 60 + int(minutes)) * 60 * S


def test_quiet_hours_include_their_first_minute_and_not_their_last():
    """Over midnight too; from a time to the same time is the whole day."""
    for windows, clock, expected in (
        (["22:00-06:00"], "21:59", None),
        (["22:00-06:00"], "22:00", "22:00-06:00"),
        (["22:00-06:00"], "00:00", "22:00-06:00"),
        (["22:00-06:00"], "05:59", "22:00-06:00"),
        (["22:00-06:00"], "06:00", None),
        (["12:00-13:00", "08:00-09:00"], "08:30", "08:00-09:00"),
        (["12:00-12:00"], "03:00", "12:00-12:00"),
        ([], "03:00", None),
    ):
        assert rules.quiet_window(windows, at(clock)) == expected, f"{windows!r}, {clock!r}"


def test_quiet_hours_are_local(monkeypatch):
    """A window of the fleet's file is in the time of the machine's zone."""
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    assert rules.quiet_window(["22:00-06:00"], at("04:00")) is not None
    assert rules.quiet_window(["22:00-06:00"], at("23:00")) is None


def test_a_circuit_gives_what_it_gives():
    """Sums as people write them; nothing for a device that does not report."""
    for power_a, power_b, limit_w, message in (
        (6.0, 4.0, 10.0, None),
        (0.1, 0.2, 0.3, None),
        (6.0, 4.1, 10.0, "6 of 10 W are in use"),
        (6.0, 11.0, 10.0, "it draws 11 W, but its circuit 'x' gives 10 W"),
        # Who does not say what it draws counts as the whole circuit.
        (6.0, None, 10.0, "has no power_w"),
        (None, 4.0, 10.0, "a device without power_w"),
        (None, None, 10.0, "a device without power_w"),
    ):
        with table_row(power_a, power_b, limit_w):
            rule = StartRules(circuits_w={"x": limit_w}, places={"a": DevicePlace("x", power_a), "b": DevicePlace("x", power_b)})
            why = InFlight(rule, [A]).why_not(B, 1)
            assert why is None if message is None else message in why
            assert InFlight(rule).why_not(B, 1) is None or (power_b or 0) > limit_w


def test_a_device_without_a_circuit_or_a_circuit_without_a_limit_is_free():
    """No limit is made up where the inventory gives none."""
    rule = StartRules(circuits_w={"x": 1.0}, places={"a": DevicePlace(None, 99.0), "b": DevicePlace("y", 99.0)})
    assert InFlight(rule, [A]).why_not(B, 1) is None


def test_of_devices_with_an_exclusive_tag_one_measures():
    """Whether this job or the one in flight asked for it; what is no measurement passes."""
    rule = StartRules(places={"a": DevicePlace(tags=("box",)), "b": DevicePlace(tags=("box", "coral")), "c": DevicePlace(tags=("coral",))})
    exclusive = Candidate(1, "a", 0, exclusive=("box",))
    assert InFlight(rule, [exclusive]).why_not(B, 1) == "another of 'box' is measuring"
    assert InFlight(rule, [Candidate(2, "b", 0)]).why_not(exclusive, 1) == "another of 'box' is measuring"
    assert InFlight(rule, [exclusive]).why_not(Candidate(3, "c", 0), 1) is None
    assert InFlight(rule, [A]).why_not(B, 1) is None
    assert InFlight(rule, [exclusive]).why_not(Candidate(4, "b", 0, measures=False), 1) is None


def test_cool_down_quiet_hours_and_the_most_in_flight():
    """Each with its reason."""
    rule = StartRules(quiet=("22:00-06:00",), most_in_flight={"c": 1})
    assert InFlight(rule).why_not(B, at("23:00")) == "quiet hours 22:00-06:00"
    assert InFlight(rule).why_not(Candidate(2, "b", 0, measures=False), at("23:00")) is None
    of_campaign = InFlight(rule, [Candidate(1, "a", 0, campaign="c")])
    assert of_campaign.why_not(Candidate(2, "b", 0, campaign="c"), at("12:00")) == "its campaign has 1 executions in flight, its limit"
    cooling = InFlight(rule, last_end_ns={"b": at("12:00")})
    assert cooling.why_not(Candidate(3, "b", 0, cool_down_s=60.0), at("12:00") + 20 * S) == "cooling down for 40 s"
    assert cooling.why_not(Candidate(3, "b", 0, cool_down_s=60.0), at("12:00") + 60 * S) is None
    assert cooling.why_not(B, at("12:00")) is None


def random_day(draw):
    """Return rules and what is asked for, at random."""
    tags = ["box", "rack", "coral"]
    places = {
        f"d{number}": DevicePlace(
            draw.choice([None, "x", "y", "z"]), draw.choice([None, 1.5, 3.0, 7.0, 12.0]), tuple(draw.sample(tags, draw.randint(0, 2)))
        )
        for number in range(12)
    }
    rule = StartRules(
        circuits_w={"x": 10.0, "y": 4.5},
        quiet=("22:00-06:00",) if draw.random() < 0.5 else (),
        places=places,
        most_in_flight={"c": draw.randint(1, 3)},
    )
    candidates = [
        Candidate(
            number,
            f"d{draw.randrange(12)}",
            draw.choice([0, at("12:00")]),
            measures=draw.random() < 0.8,
            cool_down_s=draw.choice([0.0, 3600.0]),
            exclusive=tuple(draw.sample(tags, draw.choice([0, 0, 1]))),
            campaign=draw.choice([None, "c"]),
        )
        for number in range(40)
    ]
    return rule, candidates


def run_a_day(seed):
    """Start and end at random for a day: what is in flight is counted anew each time, and checked against the rules."""
    draw = random.Random(seed)  # noqa: S311 - a test
    rule, candidates = random_day(draw)
    flying, ended_ns, waiting, now_ns = {}, {}, list(candidates), at("00:00")
    for _ in range(150):
        now_ns += draw.randint(1, 1200) * S
        for candidate in rules.choose(waiting, InFlight(rule, flying.values(), ended_ns), now_ns, draw.randint(1, 5)):
            assert candidate.device not in flying
            assert candidate.due_ns <= now_ns
            if candidate.measures:
                assert rules.quiet_window(rule.quiet, now_ns) is None
                assert ended_ns.get(candidate.device, -(1 << 60)) + candidate.cool_down_s * S <= now_ns
            waiting.remove(candidate)
            flying[candidate.device] = candidate
        check(flying, rule)
        for device in draw.sample(sorted(flying), draw.randint(0, len(flying))):
            if flying.pop(device).measures:
                ended_ns[device] = now_ns
    # With nobody in flight and noon of the next day, only what is never allowed still waits.
    noon_ns = at("12:00") + 2 * 24 * 3600 * S
    for candidate in waiting:
        supply = rule.places[candidate.device]
        never = candidate.measures and (supply.power_w or 0) > rule.circuits_w.get(supply.circuit, 1e9)
        assert (InFlight(rule, last_end_ns=ended_ns).why_not(candidate, noon_ns) is not None) is bool(never), (candidate, supply)


def test_no_rule_is_ever_violated_and_nothing_waits_for_nothing():
    """Thirty days of starts and ends drawn at random: only what is never allowed still waits in the end."""
    for seed in range(30):
        with table_row(seed):
            run_a_day(seed)


def check(flying, rule):
    """Count what is in flight from nothing, and hold it against the rules."""
    measuring = [candidate for candidate in flying.values() if candidate.measures]
    for circuit, limit_w in rule.circuits_w.items():
        powers_w = [rule.places[candidate.device].power_w for candidate in measuring if rule.places[candidate.device].circuit == circuit]
        assert len(powers_w) <= 1 or None not in powers_w
        assert sum(power_w or 0.0 for power_w in powers_w) <= limit_w + 1e-9
    for candidate in measuring:
        for tag in set(candidate.exclusive) & set(rule.places[candidate.device].tags):
            assert [other for other in measuring if tag in rule.places[other.device].tags] == [candidate]
    assert sum(candidate.campaign == "c" for candidate in flying.values()) <= rule.most_in_flight["c"]
