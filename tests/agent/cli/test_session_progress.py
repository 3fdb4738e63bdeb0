"""Facts about the progress of a session: which lines, in which order, and what gives way on a narrow terminal; no test waits."""

import io

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.cli.session_progress import SessionProgress
from edgemeter.agent.engine.job import Phase
from edgemeter.agent.session.session import RunBegins, RunEnds
from tests.fixtures.record_factory import make_record, make_steady
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case


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


def test_a_pipe_gets_one_line_a_phase_with_the_time_left():
    """Before the first run has ended as planned, after it as long as its parts took."""
    stream, clock, case = io.StringIO(), Clock(), one_case("a.onnx")
    with SessionProgress(stream, clock) as progress:
        for event, seconds in (
            (RunBegins(case, 0, 1, 2, [(case, 1)]), 1.0),
            (Phase(name="load"), 1.0),
            (Phase(name="warm-up", seconds=10.0), 2.0),
            (Phase(name="timed", seconds=10.0), 16.0),
            (RunEnds(make_record(steady=make_steady())), 0.0),
            (RunBegins(case, 1, 2, 2), 5.0),
            (Phase(name="timed", seconds=10.0), 1.0),
            (RunEnds(MeasurementError("it broke")), 0.0),
        ):
            progress(event)
            clock.now_s += seconds
    first, second = "[1/2] a.onnx onnx 1 thread, repeat 1: ", "[2/2] a.onnx onnx 1 thread, repeat 2: "
    load, warm_up, timed, ended, second_timed, failed, budget = stream.getvalue().splitlines()
    assert load == f"{first}load, all: about 35 s left"
    assert warm_up == f"{first}warm-up, at most 10 s left, all: about 35 s left"
    assert timed == f"{first}timed, 10 s left, all: about 26 s left"
    assert ended.startswith(f"{first}p50 12.25 ms, 0.33% of the frames missed")
    assert second_timed == f"{second}timed, 16 s left, all: about 16 s left"
    assert failed == f"{second}failed: it broke"
    assert budget == "2 of 2 runs took 26 s: timed 17 s, processes and imports 6.0 s, warm-up 2.0 s, load 1.0 s"


def test_a_terminal_of_any_width_shows_the_phase_and_its_time_on_one_line():
    """Nothing is wrapped, so nothing is left behind when the line is drawn again; in the end it is wiped."""
    for width in [20, 40, 60, 80, 200]:
        with table_row(width):
            stream, clock = Terminal(), Clock()
            with SessionProgress(stream, clock, width=lambda width=width: width) as progress:
                progress(RunBegins(one_case("a.onnx", name="a-model-with-quite-a-long-name"), 0, 1, 3))
                progress(Phase(name="timed", seconds=10.0))
            lines = [line for line in stream.getvalue().split("\r\x1b[K") if line]
            assert all(len(line) < width for line in lines)
            assert "timed, 10 s left" in lines[-1]
            assert ("[1/3]" in lines[-1]) == (width > 20)
            assert ("all: about" in lines[-1]) == (width >= 60)
            assert stream.getvalue().endswith("\r\x1b[K")
