"""Facts about the estimate of the time left: recorded sessions are replayed by a clock of their own, no test waits."""

import json
import os
from pathlib import Path

import msgspec

from edgemeter.agent.cli.time_left import TimeLeft
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.job import Phase, RunProgress
from edgemeter.agent.session.session import RunBegins, RunEnds
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case

# The events of real sessions with their seconds; each was recorded on a machine of two cores on which others worked.
SESSIONS = json.loads((Path(__file__).parents[2] / "fixtures" / "session_events.json").read_text())
SHARES = (0.1, 0.25, 0.5, 0.75)


class Clock:
    """A clock that is set."""

    now_s = 0.0

    def __call__(self):
        """Return the time."""
        return self.now_s


def cases_of(session, folder):
    """Return the cases of a recorded session; their models are empty files as large as they were."""
    for case, size_bytes in zip(session["cases"], session["sizes"], strict=True):
        case["model"] = str(folder / Path(case["model"]).name)
        Path(case["model"]).touch()
        os.truncate(case["model"], size_bytes)
    return [msgspec.convert(case, Case) for case in session["cases"]]


def event_of(name, values, cases):
    """Return a recorded event."""
    if name == "begins":
        case, repeat, number, total, coming = values
        return RunBegins(cases[case], repeat, number, total, [(cases[index], later) for index, later in coming])
    if name == "ends":
        return RunEnds(make_record())
    return Phase(name=values[0], seconds=values[1], later_s=values[2]) if name == "phase" else RunProgress(done=values[0], total=values[1])


def estimates(session, folder):
    """Return, at each share of a session's time, the estimate of what was left and what it was, in s."""
    cases, events, clock = cases_of(session, folder), list(session["events"]), Clock()
    length_s, time_left, estimates_s = events[-1][0], TimeLeft(clock), []
    for share in SHARES:
        while events and events[0][0] <= share * length_s:
            clock.now_s, name, *values = events.pop(0)
            time_left.note(event_of(name, values, cases))
        clock.now_s = share * length_s
        estimates_s.append((time_left.session_s().seconds, length_s - clock.now_s))
    return estimates_s


def test_the_estimate_holds_within_a_factor_of_two(tmp_path):
    """At a tenth, a quarter, half and three quarters of sessions of one model and of several, scored, generating, and in turn."""
    assert len(SESSIONS) >= 11
    for session in SESSIONS:
        with table_row(session["name"]):
            ratios = [estimate_s / left_s for estimate_s, left_s in estimates(session, tmp_path)]
            assert all(0.5 <= ratio <= 2.0 for ratio in ratios), ratios


def test_a_part_that_takes_longer_than_expected_never_has_nothing_left():
    """It was to take 10 s and takes minutes: what is left grows with the error, and so does all."""
    clock = Clock()
    time_left = TimeLeft(clock)
    time_left.note(RunBegins(one_case("a.onnx", mode="rapid", agreement="never"), 0, 1, 1))
    time_left.note(Phase(name="timed", seconds=10.0))
    for seconds in range(20, 200, 20):
        clock.now_s = seconds
        assert time_left.part_s() == seconds - 10
        assert time_left.session_s().seconds >= seconds - 10


def test_what_nobody_can_know_yet_is_left_out_and_marked():
    """How long the images take is not known before the run has seen them; then it is, and after a run as long as it took."""
    clock = Clock()
    time_left = TimeLeft(clock)
    assert time_left.session_s() is None
    case = one_case("a.onnx", data="photos", agreement="never")
    time_left.note(RunBegins(case, 0, 1, 2, [(case, 1)]))
    assert not time_left.session_s().is_all
    time_left.note(Phase(name="warm-up", seconds=10.0, later_s={"timed": 10.0, "accuracy": 100.0}))
    assert time_left.session_s().is_all
    assert 220 < time_left.session_s().seconds < 240
    time_left.note(Phase(name="accuracy"))
    clock.now_s = 50.0
    time_left.note(RunProgress(done=100, total=400))
    assert time_left.part_s() == 150.0


def test_waits_for_a_temperature_count_from_the_first_on():
    """A wait has a limit only; later runs are expected to wait as long as those before did on average."""
    clock = Clock()
    time_left = TimeLeft(clock)
    case = one_case("a.onnx", mode="rapid", start_below_c=50.0, agreement="never")
    time_left.note(RunBegins(case, 0, 1, 2, [(case, 1)]))
    before_s = time_left.session_s().seconds
    time_left.note(Phase(name="cool-down", seconds=300.0))
    assert time_left.session_s().seconds > before_s + 60
    clock.now_s = 120.0
    time_left.note(Phase(name="timed", seconds=1.0))
    clock.now_s = 121.0
    time_left.note(RunEnds(make_record()))
    time_left.note(RunBegins(case, 1, 2, 2))
    assert 120 <= time_left.session_s().seconds <= 130
