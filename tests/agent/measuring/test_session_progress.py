"""Facts about the progress of a session.

It is one line on a terminal, and several lines elsewhere; no test waits.
"""

import io

import pytest

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.engine.job import Phase, RunProgress
from edgemeter.agent.measuring.session_progress import SessionProgress
from edgemeter.agent.session.session import RunBegins, RunEnds
from tests.fixtures.record_factory import make_record
from tests.fixtures.run_jobs import one_case

CASE = one_case("a.onnx")


class TerminalText(io.StringIO):
    """A terminal's stream that keeps the text that it was sent."""

    def isatty(self):
        return True


def test_a_pipe_gets_one_line_for_each_run_that_has_ended():
    """The line states the result of the run or why it failed, and nothing comes before it."""
    stream = io.StringIO()
    with SessionProgress(Console(file=stream, width=20)) as progress:
        for number, outcome in enumerate((make_record(), MeasurementError("it broke")), 1):
            for event in (
                RunBegins(CASE, number - 1, number, 2, 24.0),
                Phase(name="timed", seconds=10.0),
                RunProgress(done=1, total=2),
            ):
                progress(event)
            assert len(stream.getvalue().splitlines()) == number - 1
            progress(RunEnds(outcome))
    first, second = stream.getvalue().splitlines()
    assert first == "[1/2] a.onnx onnx 1 thread: 12.2 ms, AP 0.625, ok"
    assert second == "[2/2] a.onnx onnx 1 thread: failed: it broke"


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_terminal_shows_the_run_its_part_and_the_time_of_all_runs(width):
    """All of it stands on one line, which is shortened on a narrow terminal."""
    stream, now_s = TerminalText(), 100.0
    console = Console(stream, width)
    with SessionProgress(console, lambda: now_s) as progress:
        progress(RunBegins(CASE, 0, 1, 3, 36.0))
        now_s += 14.0
        progress(Phase(name="timed", seconds=10.0))
    lines = [
        line
        for line in stream.getvalue().replace("\x1b[J", "\n").splitlines()
        if "of about" in line
    ]
    assert [line.rpartition("] ")[2] for line in (lines[0], lines[-1])] == [
        "0 s of about 36 s",
        "14 s of about 36 s",
    ]
    assert {len(line) for line in lines} == {width}
    assert ("[1/3] timed, 10 s: a.onnx onnx 1 thread " in lines[-1]) == (width >= 80)
