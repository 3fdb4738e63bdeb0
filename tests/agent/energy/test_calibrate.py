"""Facts about `edgemeter.agent.energy.calibrate`."""

import dataclasses
import random
import statistics
import time
from contextlib import contextmanager

import pytest

from edgemeter.agent.base.errors import MeasurementError, UnavailableError
from edgemeter.agent.energy import calibrate
from edgemeter.agent.energy.calibrate import (
    CalibrationPlan,
    HeldStep,
    LoadStep,
    ReferenceInstrument,
    calibration_of,
    fit_line,
    steps_against,
    steps_typed,
)
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Reading
from tests.fixtures.power_traces import S, make_description
from tests.fixtures.rows import table_row


def steps(gain, offset_w, u_w, seed=0, powers=(2.0, 3.0, 4.0, 5.0, 6.0, 7.0), u_reference_w=None):
    """Return load steps of a reference that shows gain x sensor + offset, both with normal scatter."""
    draw = random.Random(seed)  # noqa: S311 - scatter
    u_reference_w = u_w if u_reference_w is None else u_reference_w
    return [
        LoadStep(true + draw.gauss(0, u_w), u_w, offset_w + gain * true + draw.gauss(0, u_reference_w), u_reference_w) for true in powers
    ]


def test_points_on_a_line_give_that_line():
    """Gain and offset exactly, and nothing left over."""
    line = fit_line(steps(1.1451, 0.5879, 0.0))
    assert (line.gain, line.offset_w) == (pytest.approx(1.1451, abs=1e-9), pytest.approx(0.5879, abs=1e-9))
    assert line.residual_w < 1e-9


@pytest.mark.parametrize("u_reference_w", [0.001, 0.02])
def test_the_stated_uncertainties_cover_the_truth(u_reference_w):
    """Of 400 fits at two standard uncertainties nearly all hold gain and offset; not all do, so they are not wide for nothing."""
    covered = [0, 0]
    for seed in range(400):
        line = fit_line(steps(1.05, 0.3, 0.02, seed, u_reference_w=u_reference_w))
        covered[0] += abs(line.gain - 1.05) <= 2 * line.gain_u
        covered[1] += abs(line.offset_w - 0.3) <= 2 * line.offset_u_w
    # With four degrees of freedom the widening adds to 95%.
    assert all(372 <= count <= 399 for count in covered), covered


def test_scatter_of_the_sensor_does_not_flatten_the_slope():
    """An ordinary regression of y on x would give 0.97: its slope is pulled down by errors in x."""
    gains = [fit_line(steps(1.0, 0.0, 0.3, seed, powers=[2 + n / 5 for n in range(50)], u_reference_w=0.01)).gain for seed in range(60)]
    assert sum(gains) / len(gains) == pytest.approx(1.0, abs=0.01)


def test_points_off_the_line_widen_the_uncertainty():
    """A curve that no straight line fits is known to what the points lie off it, not to their scatter."""
    bent = [LoadStep(x, 0.001, x + 0.1 * (x - 4.5) ** 2, 0.001) for x in (2.0, 3.0, 4.0, 5.0, 6.0, 7.0)]
    line = fit_line(bent)
    assert line.residual_w > 0.1
    assert line.offset_u_w > 0.05


def test_steps_without_information_are_refused():
    """Each with what to do."""
    for points, message in [
        (steps(1, 0, 0.0, powers=(2.0, 3.0)), "at least 3"),
        (steps(1, 0, 0.0, powers=(2.0, 2.0, 2.0)), "different power"),
        (steps(1, 0, 0.05, powers=(2.0, 2.1, 2.2)), "moved the power"),
        (steps(30, 0, 0.001), "do not measure the same load"),
        (steps(-1, 9, 0.001), "do not measure the same load"),
    ]:
        with table_row(message), pytest.raises(MeasurementError, match=message):
            fit_line(points)


PLAN = CalibrationPlan(steps=4, settle_s=0.0, seconds=0.4)


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


def held_against(sensors, name, reference, board):
    """Return the steps of a calibration; on a machine that is too busy to read a sensor often enough, of one with longer steps."""
    for longer in (1, 5):
        try:
            return steps_against(sensors, name, reference, dataclasses.replace(PLAN, seconds=PLAN.seconds * longer), board.load, silent)
        except MeasurementError as error:
            if "use longer steps" not in str(error):
                raise
    return steps_against(sensors, name, reference, dataclasses.replace(PLAN, seconds=PLAN.seconds * 25), board.load, silent)


@pytest.mark.parametrize("kind", ["power", "energy"])
@pytest.mark.alone
def test_a_sensor_is_calibrated_against_another_one(kind):
    """A sensor that shows 0.8 of the truth less 0.1 W: the line that corrects it, for samples and for a counter as reference."""
    board = _Board()
    sensors = {"cheap": _Meter(board, 0.8, -0.1), "good": _Meter(board, kind=kind)}
    steps = held_against(sensors, "cheap", "good", board)
    calibration = calibration_of("b", sensors["cheap"].describe(), ReferenceInstrument("good", None, (), 0.01, 0.0), steps, None)
    assert (calibration.gain, calibration.offset_w) == (pytest.approx(1.25, rel=0.01), pytest.approx(0.125, abs=0.05))
    assert calibration.gain_u_ratio >= 0.01
    assert (calibration.lowest_w, calibration.highest_w) == (pytest.approx(2.0, rel=0.02), pytest.approx(6.0, rel=0.02))
    assert (calibration.kind, calibration.steps, calibration.sensor) == ("gain", 4, "bench")


@pytest.mark.alone
def test_a_sensor_is_calibrated_by_typed_readings():
    """What somebody reads off a display, with its last digit as its uncertainty."""
    board = _Board()
    sensor = _Meter(board, 0.5)
    steps = steps_typed("meter", sensor, PLAN, board.load, silent, lambda _: (round(board.power_w, 2), 0.01))
    calibration = calibration_of("b", sensor.describe(), ReferenceInstrument("a display", None, (), None, 0.0), steps, None)
    assert calibration.gain == pytest.approx(2.0, rel=0.02)
    assert calibration.gain_u_ratio is None


def _held(offset_w=0.5):
    return [HeldStep(0.0, LoadStep(watts, 0.001, offset_w + 1.1 * watts, 0.001)) for watts in (2.0, 3.0, 4.0, 5.0)]


def test_another_scope_is_a_promotion_and_must_be_named():
    """A line from rails to the wall is a model of the power supply, not a calibration of the rails."""
    rails, wall = make_description(scope="soc-rails"), ReferenceInstrument("plug", "wall-ac", ("nothing",), 0.01, 0.1)
    with pytest.raises(MeasurementError, match="--promotion NAME"):
        calibration_of("b", rails, wall, _held(), None)
    calibration = calibration_of("b", rails, wall, _held(), "desk")
    assert calibration.kind == "promotion"
    assert calibration.name == "desk"
    assert calibration.scope == "wall-ac"
    assert calibration.excludes == ("nothing",)
    assert calibration.offset_u_w >= 0.1


def test_a_promotion_to_no_more_than_the_sensor_sees_is_refused():
    """It would be a demotion."""
    with pytest.raises(MeasurementError, match="not wider than"):
        calibration_of("b", make_description(scope="wall-ac"), ReferenceInstrument("rails", "soc-rails", (), 0.01, 0.0), _held(), "desk")


def test_a_sensor_that_gives_too_few_readings_needs_longer_steps():
    """Rather than a line through two readings."""

    class Silent(_Meter):
        def read(self):
            message = "unplugged"
            raise UnavailableError(message)

    board = _Board()
    with pytest.raises(MeasurementError, match=r"unplugged.*--seconds"):
        steps_against({"a": Silent(board), "b": _Meter(board)}, "a", "b", PLAN, board.load, silent)


POWERS_W = (2.3, 3.7, 5.2, 6.4, 7.9, 9.1)


AS_IT_IS = -1.0


def quantised_steps(monkeypatch, step_w, draw, stated_w=AS_IT_IS):
    """Return the load steps of a sensor that shows 0.95 of the truth in such steps, against a reference of steps of 1 mW."""
    powers = [power + draw.uniform(-0.5, 0.5) for power in POWERS_W]

    def trace(name, power, gain, step, resolution_w):
        readings = tuple(Reading(n * S, power_w=round((gain * power + draw.gauss(0, 0.01)) / step) * step) for n in range(21))
        return SensorTrace(name, make_description(period_ms=1000.0, resolution_w=resolution_w), readings)

    def load_steps(*_):
        for power in powers:
            plug = trace("plug", power, 0.95, step_w, step_w if stated_w == AS_IT_IS else stated_w)
            yield 0.0, {"plug": plug, "good": trace("good", power, 1, 1e-3, 1e-3)}, Window(0, 20 * S), None

    monkeypatch.setattr(calibrate, "_steps", load_steps)
    return [held_step.step for held_step in steps_against({}, "plug", "good", PLAN, None, silent)]


# Two hundred fits tell 93% from 90%; thirty see a term that is missing.
STEPS_AND_FITS = [(1.0, 30), *(pytest.param(step_w, 200, marks=pytest.mark.release) for step_w in (1.0, 0.1))]


@pytest.mark.slow
@pytest.mark.parametrize(("step_w", "count"), STEPS_AND_FITS)
def test_the_stated_gain_of_a_coarse_sensor_holds_the_truth(monkeypatch, step_w, count):
    """Whole watts and tenths, which noise of 10 mW hardly dithers: 93% at least of the gains hold the truth at two uncertainties."""
    draw = random.Random(4)  # noqa: S311 - repeatable
    fits = [fit_line(quantised_steps(monkeypatch, step_w, draw)) for _ in range(count)]
    covered = [abs(fit.gain - 1 / 0.95) <= 2 * fit.gain_u for fit in fits]
    assert sum(covered) >= 0.93 * count
    assert statistics.median(fit.gain_u for fit in fits) < 0.09 * step_w


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.release)])
def test_without_its_steps_a_coarse_sensor_would_be_taken_for_exact(monkeypatch, count):
    """The same readings, their step not known: a load step that does not dither weighs as if it were exact."""
    draw = random.Random(4)  # noqa: S311 - repeatable
    fits = [fit_line(quantised_steps(monkeypatch, 1.0, draw, stated_w=0.0)) for _ in range(count)]
    assert sum(abs(fit.gain - 1 / 0.95) <= 2 * fit.gain_u for fit in fits) < 0.9 * count


@pytest.mark.slow
@pytest.mark.parametrize(("step_w", "count"), STEPS_AND_FITS)
def test_a_step_that_nobody_described_is_read_off_all_readings(monkeypatch, step_w, count):
    """The smallest difference of two values is the step or several: 93% at least of the gains hold the truth."""
    draw = random.Random(4)  # noqa: S311 - repeatable
    fits = [fit_line(quantised_steps(monkeypatch, step_w, draw, stated_w=None)) for _ in range(count)]
    assert sum(abs(fit.gain - 1 / 0.95) <= 2 * fit.gain_u for fit in fits) >= 0.93 * count
    assert statistics.median(fit.gain_u for fit in fits) < 0.18 * step_w


def test_the_assumed_step_is_the_smallest_difference_of_values_and_none_where_one_is_described():
    """0.25 W apart; one value alone may be off by itself; rounding of floating point is no step."""

    def trace(powers, resolution_w=None):
        readings = tuple(Reading(n * S, power_w=power) for n, power in enumerate(powers))
        return SensorTrace("plug", make_description(resolution_w=resolution_w), readings)

    assert calibrate.assumed_step([trace([2.0, 2.5, 2.5]), trace([3.0, 3.25, 3.25 + 1e-13])]) == pytest.approx(0.25)
    assert calibrate.assumed_step([trace([2.0, 2.0])]) == pytest.approx(2.0)
    assert calibrate.assumed_step([trace([2.0, 2.5], resolution_w=0.1)]) is None


def test_an_assumed_step_of_the_reference_leaves_its_zero_open():
    """Half a watt: the zero is not known better than a step over the root of 3, as where it is described."""
    steps = [dataclasses.replace(step, assumed_w=(None, 0.5)) for step in _held()]
    calibration = calibration_of("b", make_description(), ReferenceInstrument("good", None, (), 0.01, 0.0), steps, None)
    assert calibration.offset_u_w >= 0.5 / 3**0.5


def test_a_step_that_does_not_dither_is_off_by_as_much_all_through(monkeypatch):
    """A step over the root of 12, whatever the number of readings."""
    draw = random.Random(1)  # noqa: S311 - repeatable
    (first, *_) = quantised_steps(monkeypatch, 1.0, draw)
    assert first.sensor_u_w == pytest.approx(1 / 12**0.5, rel=0.01)
    assert first.quantised_w == pytest.approx(first.sensor_u_w, rel=0.01)


def test_steps_too_coarse_for_a_gain_are_refused_with_what_would_help():
    """Longer load steps would not."""
    coarse = [LoadStep(x, 0.29, x, 0.001, 0.29) for x in (2.0, 3.0, 4.0)]
    with pytest.raises(MeasurementError, match="use a load that draws more, or a finer meter"):
        fit_line(coarse)
