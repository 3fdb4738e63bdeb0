"""Facts about the progress of a session: its lines and its estimate of the time; no test waits."""

import io
import time
from functools import partial
from itertools import cycle

import pytest
from msgspec.structs import replace

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.cli.session_progress import SessionProgress, TimeLeft
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine.job import Phase, RunProgress
from edgemeter.agent.session import session
from edgemeter.agent.session.quiet import WAIT
from edgemeter.agent.session.run_plan import ForeseenRuns
from edgemeter.agent.session.session import RunBegins, RunEnds
from tests.fixtures.played_time import play_time
from tests.fixtures.record_factory import make_latency, make_record
from tests.fixtures.replay_case import write_replay
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import in_this_process, one_case


class Terminal(io.StringIO):
    """A terminal that remembers all that was written to it."""

    def isatty(self):
        """Return that it is one."""
        return True


class Clock:
    """A clock that stands still until it is moved."""

    now_s = 100.0

    def __call__(self):
        """Return the time."""
        return self.now_s


def play(progress, clock, *events):
    """Show events, each with the seconds that follow it."""
    for event, seconds in events:
        progress(event)
        clock.now_s += seconds


def run_events(begins, outcome, accuracy_s=0.0):
    """Return the events of a run of 18 s, and of its scoring."""
    scoring = [(Phase(name="accuracy"), accuracy_s)] if accuracy_s else []
    timed = (Phase(name="timed", seconds=10.0), 12.0)
    return [(begins, 1.0), (Phase(name="load"), 2.0), (Phase(name="warm-up", seconds=10.0), 3.0), timed, *scoring, (RunEnds(outcome), 0.0)]


def test_a_pipe_gets_one_line_for_each_case_that_is_finished():
    """When its last run has ended, in the order in which they finish; a failure is named."""
    stream, clock = io.StringIO(), Clock()
    a, b = one_case("a.onnx"), one_case("b.onnx")
    with SessionProgress(stream, clock) as progress:
        play(progress, clock, *run_events(RunBegins(a, 0, 1, [ForeseenRuns(b, 1, 1)]), make_record()))
        assert stream.getvalue() == ""
        play(progress, clock, *run_events(RunBegins(b, 0, 2), MeasurementError("it broke")))
        (first,) = stream.getvalue().splitlines()
    first, second = stream.getvalue().splitlines()
    assert first.startswith("a.onnx onnx 1 thread: 1 run, 18 s: ")
    assert "12.2" in first
    assert second == "b.onnx onnx 1 thread: 1 run, 18 s: failed: it broke"


def test_the_line_of_a_case_has_the_verdict_that_the_table_shows():
    """One of three runs lies apart from its siblings, which no record of a run knows."""
    stream, clock, case = io.StringIO(), Clock(), one_case("a.onnx")
    with SessionProgress(stream, clock) as progress:
        for repeat, p50_ms in enumerate((1.58, 1.59, 2.92)):
            run = make_record(latency=make_latency(p50_ms=p50_ms), session_started_at_ns=7, repeat=repeat)
            play(progress, clock, *run_events(RunBegins(case, repeat, 1), run))
    assert stream.getvalue().endswith(", disturbed\n")


def test_a_terminal_of_any_width_shows_one_line_that_is_wiped():
    """Nothing is wrapped, so nothing is left behind when the line is drawn again."""
    for width in (20, 40, 60, 80, 200):
        with table_row(width):
            stream, clock = Terminal(), Clock()
            progress = SessionProgress(stream, clock, width=lambda width=width: width)
            with progress:
                begins = RunBegins(
                    one_case("a.onnx", name="a-model-with-quite-a-long-name"), 0, 1, [ForeseenRuns(one_case("a.onnx"), 2, 9)]
                )
                play(progress, clock, (begins, 1.0), (Phase(name="timed", seconds=10.0), 0.0))
            lines = [line for line in stream.getvalue().split("\r\x1b[K") if line]
            assert all(len(line) < width for line in lines)
            assert ("timed, 10 s left; up to 2 min a case" in lines[-1]) == (width >= 40)
            assert stream.getvalue().endswith("\r\x1b[K")


def test_the_estimate_is_what_the_last_run_took_without_scoring():
    """Before the first run of every case has ended there is the longest time of a case; then what is expected, and what is possible."""
    clock, case = Clock(), one_case("a.onnx")
    estimate = TimeLeft(clock)
    play(estimate.note, clock, *run_events(RunBegins(case, 0, 1, [ForeseenRuns(case, 2, 5)]), make_record(), accuracy_s=40.0)[:-1])
    assert (estimate.session_s(), estimate.words()) == (None, "up to 2 min a case")
    estimate.note(RunEnds(make_record()))
    estimate.note(RunBegins(case, 1, 2, [ForeseenRuns(case, 1, 4)]))
    assert estimate.session_s() == (pytest.approx(36), pytest.approx(90))
    assert estimate.words() == "about 36 s left, up to 1 min 30 s if the runs differ"
    clock.now_s += 6.0
    estimate.note(RunBegins(case, 2, 3, [ForeseenRuns(case, 0, 0)]))
    assert estimate.words() == "about 18 s left"


def test_the_estimate_after_the_first_repeat_is_within_30_percent_of_what_fixed_repeats_take():
    """Including start-up, accuracy and the check of outputs, of two cases in turn whose runs differ by up to 10%."""
    clock, cases, repeats = Clock(), (one_case("a.onnx", repeats=4), one_case("b.onnx", repeats=4)), 4
    estimate = TimeLeft(clock)
    lengths_s = {"start": 1.5, "load": 2.0, "prepare": 0.5, "warm-up": 3.0, "timed": 12.0}
    estimates_s = {}
    for number in range(repeats):
        for turn, case in enumerate(cases):
            coming = [ForeseenRuns(other, *[repeats - number - (index <= turn)] * 2) for index, other in enumerate(cases)]
            estimate.note(RunBegins(case, number, 2 * number + turn + 1, coming))
            estimates_s[clock.now_s] = estimate.session_s()
            pace = (1 + turn) * (1.0, 1.1, 0.95, 1.05)[number]
            clock.now_s += pace * lengths_s["start"]
            for name in ("load", "prepare", "warm-up", "timed"):
                play(estimate.note, clock, (Phase(name=name), pace * lengths_s[name]))
            # All photographs in the first run, some outputs in the others.
            play(estimate.note, clock, (Phase(name="accuracy"), 60.0 if number == 0 else 2.0), (RunEnds(make_record()), 0.0))
    estimated_s = {begun_s: left_s for begun_s, left_s in estimates_s.items() if left_s is not None}
    assert len(estimated_s) == len(estimates_s) - 2
    assert all(left_s == pytest.approx((clock.now_s - begun_s,) * 2, rel=0.3) for begun_s, left_s in estimated_s.items())


def test_the_estimate_before_the_first_run_names_what_it_leaves_out():
    """A number of repeats has no time that ends it."""
    estimate = TimeLeft(Clock())
    for changes, text in (
        ({}, "up to 2 min a case"),
        ({"data": "d", "annotations": "a.json"}, "up to 2 min a case, plus the accuracy"),
        ({"repeats": 3, "mode": "rapid"}, "about 12 s a case, plus the queries"),
        ({"repeats": 3, "mode": "rapid", "data": "d", "annotations": "a.json"}, "about 12 s a case, plus the queries and the accuracy"),
    ):
        estimate.note(RunBegins(one_case("a.onnx", **changes), 0, 1))
        assert estimate.words() == text


def test_waits_for_a_quiet_moment_are_no_part_of_the_estimate_and_named_beside_it():
    """How long other programs stay busy is unknown."""
    clock, case = Clock(), one_case("a.onnx")
    estimate = TimeLeft(clock)
    wait = (Phase(name=WAIT, seconds=20.0), 20.0)
    first, *phases, _ = run_events(RunBegins(case, 0, 1, [ForeseenRuns(case, 2, 2)]), make_record())
    play(
        estimate.note, clock, first, wait, *phases, (RunEnds(make_record()), 0.0), (RunBegins(case, 1, 2, [ForeseenRuns(case, 1, 1)]), 0.0)
    )
    assert (estimate.session_s(), estimate.words()) == ((pytest.approx(36), pytest.approx(36)), "about 36 s left, plus waits")
    play(estimate.note, clock, wait)
    assert estimate.session_s() == (pytest.approx(36), pytest.approx(36))


def test_images_show_how_long_the_pass_over_them_takes():
    """10 of 80 in 4 s."""
    clock, case = Clock(), one_case("a.onnx")
    estimate = TimeLeft(clock)
    play(estimate.note, clock, (RunBegins(case, 0, 1), 1.0), (Phase(name="accuracy"), 4.0), (RunProgress(done=10, total=80), 0.0))
    assert estimate.phase_s() == pytest.approx(28)


def test_a_session_that_uses_its_time_takes_as_long_as_was_estimated(tmp_path, monkeypatch):
    """Whole runs by a played clock, whose latencies scatter so much that `--time` ends them."""
    in_this_process(monkeypatch)
    play_time(monkeypatch)
    case = one_case(write_replay(tmp_path), mode="rapid", time_s=12.0)
    scattered = cycle([make_latency(p50_ms=p50_ms) for p50_ms in (2.0, 2.8, 2.4, 3.2)])
    estimate, estimates_s = TimeLeft(time.monotonic), []

    def on_event(event):
        estimate.note(event)
        if isinstance(event, RunBegins):
            estimates_s.append((time.monotonic(), estimate.session_s()))

    of_run = partial(session.measure, Suite("s", (case,)), session.DeviceIdentity("bench", "lab"), {}, "none", on_event)
    runs = list(of_run(lambda run: replace(run, latency=next(scattered))))
    ended_s = time.monotonic()
    (_, before_the_first), *of_others = estimates_s
    assert before_the_first is None
    assert len(runs) > 6
    for begun_s, (expected_s, most_s) in of_others:
        assert expected_s <= most_s == pytest.approx(ended_s - begun_s, rel=0.3)
    # Three runs show that the time is not enough.
    assert all(expected_s == most_s for _, (expected_s, most_s) in of_others[2:])
