import math
from contextlib import contextmanager

import pytest

from edgemeter.agent.base import config
from edgemeter.agent.session import energy_watch
from edgemeter.agent.session.energy_watch import EnergyWatch
from tests.fixtures.power_traces import PlayedSensor, make_trace


class Bench:
    """A machine whose time passes in sleep and whose sensors read `power` all that time.

    `periods_ms` has the sensors' periods by their names.
    """

    def __init__(self, patch, power, **periods_ms):
        self.now_s, self.slept_s, self.notes = 0.0, [], []
        self.power, self.periods_ms = power, periods_ms or {"bench": 100.0}

        @contextmanager
        def opened(*_):
            yield (
                {
                    name: PlayedSensor(period_ms=period_ms)
                    for name, period_ms in self.periods_ms.items()
                },
                "",
            )

        patch.setattr(energy_watch, "open_sensors", opened)
        patch.setattr(energy_watch, "Sampler", lambda _: self)

    def start(self):
        """Read from now on, as a sampler."""

    stop = start

    def traces(self):
        return {
            name: make_trace(self.power, self.now_s, seed=1, period_ms=period_ms)
            for name, period_ms in self.periods_ms.items()
        }

    def sleep(self, seconds):
        self.now_s += seconds
        self.slept_s.append(seconds)

    def watch(self, **options):
        # A lambda is shorter than a function of one line.
        note = lambda line: self.notes.append((line, len(self.slept_s)))  # noqa: E731
        return EnergyWatch(
            clock=lambda: int(self.now_s * 1e9),
            sleep=self.sleep,
            report=note,
            settings=config.Config(),
            **options,
        )


def test_the_energy_of_a_block_is_what_the_sensor_saw_in_it(monkeypatch):
    """A block of 30 s at 5 W lies between two idle stretches of 20 s at 2 W.

    It is tested with one piece of work and with three.
    """
    for units in (1, 3):
        bench = Bench(monkeypatch, lambda t: 5.0 if 20 <= t < 50 else 2.0)
        with bench.watch(idle_s=20.0, units=units) as watching:
            bench.sleep(30.0)
        energy = watching.seen.energies.energy
        assert watching.seen.seconds == 30.0
        assert abs(energy.gross_mj * units - 150_000) <= energy.gross_u_mj * units < 2000
        assert abs(energy.net_mj * units - 90_000) <= energy.net_u_mj * units
        assert (energy.idle_before_w, energy.idle_after_w) == (pytest.approx(2), pytest.approx(2))
        assert (energy.scope, energy.window_ms) == ("board-input", 30_000)


def test_a_short_block_has_a_wide_interval_and_one_of_few_readings_none(monkeypatch):
    """1.5 s at 5 W, read ten times a second, is not known to 1%, and half a second not at all."""
    bench = Bench(monkeypatch, lambda t: (5.0 if 10 <= t < 11.5 else 2.0) + 0.01 * math.sin(7 * t))
    with bench.watch(idle_s=10.0) as watching:
        bench.sleep(1.5)
    energy = watching.seen.energies.energy
    assert abs(energy.gross_mj - 7500) <= energy.gross_u_mj < 7500
    assert energy.gross_u_mj > 0.02 * energy.gross_mj
    bench = Bench(monkeypatch, lambda _: 5.0)
    with bench.watch() as watching:
        bench.sleep(0.5)
    assert watching.seen.energies.energy is None
    assert "an energy needs 10" in watching.seen.energies.reason


def test_a_block_that_raises_is_not_hidden(monkeypatch):
    """The caller gets the error, and there is no result."""
    watching = Bench(monkeypatch, lambda _: 2.0).watch()
    with pytest.raises(ZeroDivisionError), watching:
        _ = 1 / 0
    assert not hasattr(watching, "seen")


def test_idle_lasts_as_long_as_the_slowest_sensor_needs_and_this_is_known_before(monkeypatch):
    """A meter of 0.5 Hz needs 14 s of idle, and a faster one the usual 10 s.

    The same function refuses stretches that are shorter.
    """
    for periods_ms, idle_s, needs in (
        ({"slow": 2000.0, "fast": 100.0}, 14.0, ("slow", "2,000 ms", "20 s", "14 s")),
        ({"fast": 100.0}, 10.0, ("fast", "100 ms", "1 s", "0.7 s")),
    ):
        bench = Bench(monkeypatch, lambda _: 2.0, **periods_ms)
        with bench.watch() as watching:
            bench.now_s += 1.0
        assert bench.slept_s[:2] == [idle_s, idle_s]
        assert watching.seen.idle_s == idle_s
        before = [line for line, sleeps in bench.notes if sleeps == 0]
        assert all(need in before[0] for need in needs)
