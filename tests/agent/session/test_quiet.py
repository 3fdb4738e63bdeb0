"""Facts about `edgemeter.agent.session.quiet`, which waits for a quiet machine.

A run waits a while for other processes, and for a steady temperature.
"""

import pytest

from edgemeter.agent.machine import load
from edgemeter.agent.machine.machine import recorded
from edgemeter.agent.session import quiet
from edgemeter.agent.session.quiet import QuietMoment, settle


class PlayedLoad:
    """A machine of two cores whose other processes use `busy` of them until `quiet_s`.

    Sleeping moves its clock.
    """

    def __init__(self, quiet_s, monkeypatch):
        self.now_s, self.busy_ticks, self.quiet_s = 0.0, 0, quiet_s
        monkeypatch.setattr(quiet, "read_usage", self.usage)

    def usage(self, *_):
        return load.ProcessorUsage(
            total=round(self.now_s * 200), busy=self.busy_ticks, stolen=0, own=0
        )

    def sleep(self, seconds):
        self.busy_ticks += round(100 * seconds) if self.now_s < self.quiet_s else 0
        self.now_s += seconds


@pytest.mark.parametrize(("quiet_s", "waited_s"), [(0.0, 0.5), (3.0, 3.5), (1e9, 20.0)])
def test_a_run_begins_in_a_quiet_moment_or_after_20_seconds(monkeypatch, quiet_s, waited_s):
    """A moment lasts half a second, and only a wait is an event."""
    played, events = PlayedLoad(quiet_s, monkeypatch), []
    QuietMoment(None, lambda: played.now_s, played.sleep).wait(events.append)
    assert played.now_s == pytest.approx(waited_s)
    assert [event.name for event in events] == (["quiet moment", "start"] if quiet_s else [])


def test_after_a_wait_in_vain_the_next_is_half_as_long(monkeypatch):
    """A lasting load does not cost every run 20 s; after a quiet moment the wait is full again."""
    played = PlayedLoad(32.0, monkeypatch)
    moment = QuietMoment(None, lambda: played.now_s, played.sleep)
    ends = []
    for _ in range(4):
        moment.wait(lambda _: None)
        ends.append(played.now_s)
        if len(ends) == 3:
            played.quiet_s = 200.0
    assert ends == [20.0, 30.0, 32.5, 52.5]


def test_a_machine_that_does_not_show_its_load_is_not_waited_for(monkeypatch):
    """A container may have no /proc/stat."""
    played = PlayedLoad(1e9, monkeypatch)
    monkeypatch.setattr(quiet, "read_usage", lambda *_: None)
    QuietMoment(None, lambda: played.now_s, played.sleep).wait(pytest.fail)
    assert played.now_s <= 1.5


@pytest.mark.parametrize(
    ("course_c", "shortest_s", "longest_s"),
    [
        (lambda _: 50, 4, 6),
        (lambda s: 70 - min(s, 20), 20, 26),
        (lambda s: 50 + 10 * (s % 2), 60, 61),
    ],
)
def test_the_board_has_settled_when_its_temperature_stays(
    tmp_path, course_c, shortest_s, longest_s
):
    """It stays within 1 C for five readings, for a minute at most; the wait is an event."""
    zone, events, now_s = tmp_path / "sys/class/thermal/thermal_zone0", [], [0.0]
    zone.mkdir(parents=True)
    (zone / "type").write_text("cpu")
    (zone / "temp").write_text("50000")

    def sleep(seconds):
        now_s[0] += seconds
        (zone / "temp").write_text(f"{1000 * course_c(now_s[0]):.0f}")

    settle(recorded(tmp_path), lambda: now_s[0], sleep, events.append)
    assert shortest_s <= now_s[0] <= longest_s
    assert [event.name for event in events] == ["settle"]
