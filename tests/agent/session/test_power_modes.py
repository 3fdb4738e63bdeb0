"""Sessions in several power modes, on a board that is a dictionary."""

from contextlib import closing, contextmanager

import msgspec
import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.mode_answer import mode_answers
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine import job
from edgemeter.agent.machine import fingerprint
from edgemeter.agent.session import quiet, session
from tests.fixtures.played_time import play_time
from tests.fixtures.record_factory import make_record
from tests.fixtures.replay_case import replay_case
from tests.fixtures.run_jobs import in_this_process, without_waiting

WHO = session.DeviceIdentity("bench", "lab")


class PlayedBoard:
    """A board in the mode 15W with the governor schedutil.

    `stuck` has the values that it does not take.
    """

    def __init__(self) -> None:
        self.found = {"power_mode": "15W", "governor": "schedutil"}
        self.now = dict(self.found)
        self.visits: list[str] = []
        self.stuck: set[str] = set()

    def set(self, point):
        before = dict(self.now)
        settings = (
            {}
            if point is None
            else {
                name: value
                for name, value in msgspec.structs.asdict(point).items()
                if value is not None
            }
        )
        if stuck := self.stuck & set(settings.values()):
            raise UnavailableError(
                f"the board was not set to {point.words}: it is not {stuck.pop()}"
            )
        self.now = self.found | settings
        if self.now != before:
            self.visits.append(self.now["power_mode"])
        return point and OperatingPoint(**settings), self.now != before

    @contextmanager
    def changed(self, _home, _points):
        try:
            yield self
        finally:
            self.now = dict(self.found)


@pytest.fixture
def board(monkeypatch):
    played = PlayedBoard()
    read = fingerprint.read
    monkeypatch.setattr(session.changed_board, "changed_board", played.changed)
    monkeypatch.setattr(session.changed_board, "check", lambda _: None)
    monkeypatch.setattr(fingerprint, "read", lambda: msgspec.structs.replace(read(), **played.now))
    monkeypatch.setattr(quiet, "READINGS", 1)
    return played


@pytest.fixture
def quick_runs(monkeypatch):
    """Let runs take no time: their records have what the session knows of them."""

    def run(planned, _sensors, _why, on_event):
        on_event(job.Phase(name="timed"))
        return make_record(
            environment=planned.session.environment, operating_point=planned.operating_point
        )

    monkeypatch.setattr(session, "measure_run", run)
    without_waiting(monkeypatch)


def cases(folder, modes=("15W", "25W"), repeats=2, **changes):
    case = msgspec.structs.replace(
        replay_case(folder, "m", 1.0), repeats=repeats, warm_up_seconds=0.1, **changes
    )
    return Suite("s", tuple(msgspec.structs.replace(case, power_mode=mode) for mode in modes))


def measure(suite, events=None):
    with closing(
        session.measure(
            suite, WHO, {}, "none", (lambda _: None) if events is None else events.append
        )
    ) as outcomes:
        return list(outcomes)


def test_the_record_is_of_the_mode_that_its_run_was_in(monkeypatch, board, tmp_path):
    """Environment and operating point are the run's, and afterwards the board is restored."""
    in_this_process(monkeypatch)
    play_time(monkeypatch)
    records = measure(cases(tmp_path, governor="powersave"))
    assert sorted(
        (run.environment.power_mode, run.environment.governor, run.operating_point.words)
        for run in records
    ) == [
        (mode, "powersave", f"{mode}, governor powersave") for mode in ("15W", "15W", "25W", "25W")
    ]
    assert board.now == board.found
    assert len({run.case for run in records}) == 2
    (answer,) = mode_answers(records)
    assert set(answer.modes) == {"15W, governor powersave", "25W, governor powersave"}


@pytest.mark.usefixtures("quick_runs")
def test_the_board_is_set_once_for_runs_that_follow_each_other(board, tmp_path):
    """The wait until the board settles is a part of the next run."""
    events: list[object] = []
    measure(cases(tmp_path, ("25W",), repeats=3), events)
    assert board.visits == ["25W"]
    settles = [
        index
        for index, event in enumerate(events)
        if isinstance(event, job.Phase) and event.name == "settle"
    ]
    assert settles == [1]
    assert isinstance(events[0], session.RunBegins)
    assert "25W" in events[0].case.label


@pytest.mark.usefixtures("quick_runs")
def test_a_mode_that_does_not_take_fails_its_runs_and_no_others(board, tmp_path):
    """One error names the mode, which is not tried again."""
    board.stuck = {"25W"}
    outcomes = measure(cases(tmp_path, repeats=3))
    assert [str(error) for error in outcomes if isinstance(error, UnavailableError)] == [
        "the board was not set to 25W: it is not 25W"
    ]
    assert [run.environment.power_mode for run in outcomes if isinstance(run, RunRecord)] == [
        "15W"
    ] * 3


@pytest.mark.usefixtures("quick_runs")
def test_cases_without_a_setting_run_on_the_board_as_it_was(board, tmp_path):
    """They may be beside cases that set the board; alone they leave it untouched."""
    with_and_without = cases(tmp_path, (None, "25W"), repeats=1)
    records = measure(with_and_without)
    assert sorted((run.environment.power_mode, run.operating_point is None) for run in records) == [
        ("15W", True),
        ("25W", False),
    ]
    board.visits.clear()
    measure(cases(tmp_path, (None,), repeats=1))
    assert board.visits == []


@pytest.mark.usefixtures("quick_runs")
def test_the_board_is_put_back_whatever_ends_the_session(board, tmp_path):
    """Ctrl-C may end it, or a caller that does not read the session to its end."""

    def end(event):
        if isinstance(event, job.Phase) and event.name == "timed":
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        closing(session.measure(cases(tmp_path, ("25W",)), WHO, {}, "none", end)) as outcomes,
    ):
        next(outcomes)
    assert (board.visits, board.now) == (["25W"], board.found)
    with closing(
        session.measure(cases(tmp_path, ("25W",)), WHO, {}, "none", lambda _: None)
    ) as outcomes:
        next(outcomes)
        assert board.now["power_mode"] == "25W"
    assert board.now == board.found
