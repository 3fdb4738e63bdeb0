"""Facts about `edgemeter.agent.calibration.procedure`."""

import time
from contextlib import contextmanager

import pytest

from edgemeter.agent.calibration.fit import Step
from edgemeter.agent.calibration.procedure import Held, Plan, Reference, against, calibration, typed
from edgemeter.agent.errors import MeasurementError, UnavailableError
from edgemeter.agent.power import Reading
from tests.fixtures.power_traces import make_description

PLAN = Plan(steps=4, settle_s=0.0, seconds=0.4)


class _Board:
    """A board whose power follows its load, 2 W and 4 W more at full load."""

    def __init__(self):
        self.share = 0.0

    @property
    def power_w(self):
        return 2.0 + 4.0 * self.share

    @contextmanager
    def load(self, share):
        self.share = share
        yield


class _Meter:
    """Sees a board's power through a gain and an offset, 100 times a second, as power or as a counter."""

    def __init__(self, board, gain=1.0, offset_w=0.0, kind="power", **described):
        self.board, self.gain, self.offset_w = board, gain, offset_w
        self.description = make_description(period_ms=10.0, kind=kind, **described)
        self._energy_mj, self._last_ns = 0.0, time.monotonic_ns()

    def describe(self):
        return self.description

    def read(self):
        now, power_w = time.monotonic_ns(), self.offset_w + self.gain * self.board.power_w
        if self.description.kind == "power":
            return Reading(now, power_w=power_w)
        self._energy_mj += power_w * (now - self._last_ns) / 1e6
        self._last_ns = now
        return Reading(now, energy_mj=self._energy_mj)

    def close(self):
        pass


def silent(_):
    """Tell nobody."""


@pytest.mark.parametrize("kind", ["power", "energy"])
def test_a_sensor_is_calibrated_against_another_one(kind):
    """A sensor that shows 0.8 of the truth less 0.1 W: the line that corrects it, for samples and for a counter as reference."""
    board = _Board()
    sensors = {"cheap": _Meter(board, 0.8, -0.1), "good": _Meter(board, kind=kind)}
    held = against(sensors, "cheap", "good", PLAN, board.load, silent)
    found = calibration("b", sensors["cheap"].describe(), Reference("good", None, (), 0.01, 0.0), held, None)
    assert (found.gain, found.offset_w) == (pytest.approx(1.25, rel=0.01), pytest.approx(0.125, abs=0.05))
    assert found.gain_u_ratio >= 0.01
    assert (found.lowest_w, found.highest_w) == (pytest.approx(2.0, rel=0.02), pytest.approx(6.0, rel=0.02))
    assert (found.kind, found.steps, found.sensor) == ("gain", 4, "bench")


def test_a_sensor_is_calibrated_by_typed_readings():
    """What somebody reads off a display, with its last digit as its uncertainty."""
    board = _Board()
    sensor = _Meter(board, 0.5)
    held = typed("meter", sensor, PLAN, board.load, silent, lambda _: (round(board.power_w, 2), 0.01))
    found = calibration("b", sensor.describe(), Reference("a display", None, (), None, 0.0), held, None)
    assert found.gain == pytest.approx(2.0, rel=0.02)
    assert found.gain_u_ratio is None


def _held(offset_w=0.5):
    return [Held(0.0, Step(watts, 0.001, offset_w + 1.1 * watts, 0.001)) for watts in (2.0, 3.0, 4.0, 5.0)]


def test_another_scope_is_a_promotion_and_must_be_named():
    """A line from rails to the wall is a model of the power supply, not a calibration of the rails."""
    rails, wall = make_description(scope="soc-rails"), Reference("plug", "wall-ac", ("nothing",), 0.01, 0.1)
    with pytest.raises(MeasurementError, match="--promotion NAME"):
        calibration("b", rails, wall, _held(), None)
    found = calibration("b", rails, wall, _held(), "desk")
    assert (found.kind, found.name, found.scope, found.excludes) == ("promotion", "desk", "wall-ac", ("nothing",))
    assert found.offset_u_w >= 0.1


def test_a_promotion_to_no_more_than_the_sensor_sees_is_refused():
    """It would be a demotion."""
    with pytest.raises(MeasurementError, match="no more than"):
        calibration("b", make_description(scope="wall-ac"), Reference("rails", "soc-rails", (), 0.01, 0.0), _held(), "desk")


def test_a_sensor_that_gives_too_few_readings_is_told_to_take_longer():
    """Rather than a line through two readings."""

    class Silent(_Meter):
        def read(self):
            message = "unplugged"
            raise UnavailableError(message)

    board = _Board()
    with pytest.raises(MeasurementError, match=r"unplugged.*--seconds"):
        against({"a": Silent(board), "b": _Meter(board)}, "a", "b", PLAN, board.load, silent)
