"""Calibration of a power sensor: hold load steps, read sensor and reference, fit a line through the steps.

The fit is weighted least squares with uncertainties in both (York's slope by iteration, independent errors): the sensor's scatter counts
as much as the reference's, and so do the steps of both: a reading that does not move within a load step is off by as much all through it,
up to half a step. Where the points lie off the line by more than that explains, the uncertainties are widened to match.
Source: York et al., Am. J. Phys. 72 (2004) 367; the Birge ratio for the widening; rectangular errors, GUM 4.3.7.
"""

import datetime as dt
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.energy.curve import block_means, curve_of, mean_w
from edgemeter.agent.energy.load_steps import levels
from edgemeter.agent.energy.queries import Array
from edgemeter.agent.energy.sampler import Sampler, SensorTrace
from edgemeter.agent.energy.sensor_faults import smallest_difference
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description, PowerSensor
from edgemeter.agent.power.detect import scope_rank
from edgemeter.agent.power.stored import SensorCalibration

FEWEST_STEPS = 3

# Steps closer together than this many of their own uncertainties do not determine a gain.
SPAN_OVER_U = 20.0
# What the readings' own steps leave open is known and enters the uncertainty: a span of so many of it gives a gain within some 10%.
SPAN_OVER_STEPS = 8.0
ROUNDS = 50
SETTLED_RATIO = 1e-12
GAIN_RANGE = (0.1, 10.0)
# The number of parts of a step; the scatter of their means gives the uncertainty of the mean.
PARTS = 8
FEWEST_READINGS = 16
# The uncertainty of a typed-in reading of a display: half of its last digit, rectangular.
DISPLAY_DIVISOR = math.sqrt(12)
HoldLoad = Callable[[float], AbstractContextManager[None]]
Asked = TypeVar("Asked")


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One load step: mean power of both, W, and the standard uncertainty of each mean, from its readings' scatter and their step.

    `quantised_w` is the part of the steps in both, which longer load steps do not reduce.
    """

    sensor_w: float
    sensor_u_w: float
    reference_w: float
    reference_u_w: float
    quantised_w: float = 0.0


@dataclass(frozen=True, slots=True)
class CalibrationLine:
    """reference = offset_w + gain x sensor; standard uncertainties (k = 1) of the fit alone, and what the points lie off it."""

    gain: float
    gain_u: float
    offset_w: float
    offset_u_w: float
    residual_w: float
    steps: int


def fit_line(steps: Sequence[LoadStep]) -> CalibrationLine:
    """Return the line through the steps.

    Raises:
        MeasurementError: too few steps, too close together, or a gain that no sensor of the same power can have.
    """
    _check(steps)
    points = np.array([(step.sensor_w, step.sensor_u_w, step.reference_w, step.reference_u_w) for step in steps])
    slope = float(np.polyfit(points[:, 0], points[:, 2], 1)[0])
    for _ in range(ROUNDS):
        line = _york(points, slope)
        if abs(line.gain - slope) <= SETTLED_RATIO * abs(slope):
            break
        slope = line.gain
    if not GAIN_RANGE[0] <= line.gain <= GAIN_RANGE[1]:
        raise MeasurementError(
            f"the reference shows {line.gain:.3g} times the power of the sensor: they do not measure the same load; check what the "
            "reference measures, and that nothing else drew power meanwhile"
        )
    return line


def _check(steps: Sequence[LoadStep]) -> None:
    if len({round(step.sensor_w, 6) for step in steps}) < FEWEST_STEPS:
        raise MeasurementError(
            f"{len(steps)} load steps with different power are too few for a line: use at least {FEWEST_STEPS} (--steps)"
        )
    span_w = max(step.sensor_w for step in steps) - min(step.sensor_w for step in steps)
    largest = max(steps, key=lambda step: math.hypot(step.sensor_u_w, step.reference_u_w))
    u_w = math.hypot(largest.sensor_u_w, largest.reference_u_w)
    if largest.quantised_w > u_w / 2 and span_w < SPAN_OVER_STEPS * largest.quantised_w:
        raise MeasurementError(
            f"the load moved the power by {span_w:.3g} W, and the steps of the readings leave {largest.quantised_w:.2g} W open: too coarse "
            "for a gain; use a load that draws more, or a finer meter"
        )
    if span_w < SPAN_OVER_U * math.sqrt(max(0.0, u_w**2 - largest.quantised_w**2)):
        raise MeasurementError(
            f"the load moved the power by {span_w:.3g} W, and a step is known to {u_w:.2g} W: too little for a gain; use longer steps "
            "(--seconds), and stop what else draws power meanwhile"
        )


def _york(points: Array, slope: float) -> CalibrationLine:
    """Return one round of York's iteration, from the slope of the round before; `points` are x, its uncertainty, y and that of y."""
    x, u_x, y, u_y = points.T
    floor_w = 1e-6
    wx, wy = np.maximum(u_x, floor_w) ** -2, np.maximum(u_y, floor_w) ** -2
    weight = wx * wy / (wx + slope**2 * wy)
    total = weight.sum()
    mean_x, mean_y = weight @ x / total, weight @ y / total
    beta = weight * ((x - mean_x) / wy + slope * (y - mean_y) / wx)
    gain = (weight * beta) @ (y - mean_y) / ((weight * beta) @ (x - mean_x))
    offset = mean_y - gain * mean_x
    adjusted = mean_x + beta
    centre = weight @ adjusted / total
    gain_u = 1 / math.sqrt(weight @ (adjusted - centre) ** 2)
    offset_u = math.sqrt(1 / total + (centre * gain_u) ** 2)
    off = y - offset - gain * x
    widened = max(1.0, math.sqrt(weight @ off**2 / (len(x) - 2)))
    residual_w = math.sqrt(off @ off / (len(x) - 2))
    return CalibrationLine(float(gain), gain_u * widened, float(offset), offset_u * widened, residual_w, len(x))


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """How long and how finely: steps of load, seconds to settle and to measure each."""

    steps: int = 6
    settle_s: float = 5.0
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class ReferenceInstrument:
    """The better instrument: its name and scope, and its own standard uncertainties; the gain's is None where it is unknown."""

    name: str
    scope: Scope | None
    excludes: tuple[str, ...]
    gain_u_ratio: float | None
    offset_u_w: float


@dataclass(frozen=True, slots=True)
class HeldStep:
    """One load step as it was held: the share of the cores, and the powers.

    `assumed_w` are the steps, W, that readings of the sensor and of the reference are taken to have where they describe none.
    """

    share: float
    step: LoadStep
    assumed_w: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True)
class _MeanPower:
    """A mean power, and its standard uncertainties from scatter and from the step of the readings, W."""

    power_w: float
    scatter_u_w: float
    quantised_u_w: float

    @property
    def u_w(self) -> float:
        return math.hypot(self.scatter_u_w, self.quantised_u_w)


OnStep = Callable[[HeldStep | float], None]
# Of a load step: its share of the cores, the readings of the sensor, those of the reference or its mean, and their window.
_Readings = tuple[float, SensorTrace, SensorTrace | _MeanPower, Window]


def steps_against(
    sensors: Mapping[str, PowerSensor], sensor: str, reference: str, plan: CalibrationPlan, load: HoldLoad, on_step: OnStep
) -> list[HeldStep]:
    """Return the steps of `sensor` against another one, read at the same time; raises MeasurementError if one gave too few readings."""
    readings: list[_Readings] = []
    for share, traces, window, _ in _steps(sensors, plan, load, on_step, lambda _: None):
        readings.append((share, traces[sensor], traces[reference], window))
        on_step(_held_steps(readings)[-1])
    return _held_steps(readings)


def steps_typed(
    name: str, sensor: PowerSensor, plan: CalibrationPlan, load: HoldLoad, on_step: OnStep, ask: Callable[[float], tuple[float, float]]
) -> list[HeldStep]:
    """Return the steps of `sensor` against a meter read by a person: `ask` returns the reading in W, and the step of the display.

    The load stays on, and the sensor is read, until the reading is entered.
    """
    readings: list[_Readings] = []
    for share, traces, window, (reading_w, digit_w) in _steps({name: sensor}, plan, load, on_step, ask):
        readings.append((share, traces[name], _MeanPower(reading_w, 0.0, digit_w / DISPLAY_DIVISOR), window))
        on_step(_held_steps(readings)[-1])
    return _held_steps(readings)


def _held_steps(readings: Sequence[_Readings]) -> list[HeldStep]:
    """Return the steps; what all readings together show of the step of a sensor that describes none counts in each of them."""
    references = [reference for _, _, reference, _ in readings if isinstance(reference, SensorTrace)]
    assumed_w = assumed_step([trace for _, trace, _, _ in readings]), assumed_step(references)
    steps = []
    for share, trace, reference, window in readings:
        sensor = _mean_power(trace, window, assumed_w[0])
        typed = _mean_power(reference, window, assumed_w[1]) if isinstance(reference, SensorTrace) else reference
        quantised_w = math.hypot(sensor.quantised_u_w, typed.quantised_u_w)
        steps.append(HeldStep(share, LoadStep(sensor.power_w, sensor.u_w, typed.power_w, typed.u_w, quantised_w), assumed_w))
    return steps


def assumed_step(traces: Iterable[SensorTrace]) -> float | None:
    """Return the step, W, of readings whose sensor describes none: the smallest difference of two of its values; None where it does.

    The step is that or a part of it, so it is not taken for too small.
    Where all values are the same, nothing is known: then it is the value itself.
    """
    undescribed = [
        trace for trace in traces if trace.description and trace.description.kind == "power" and trace.description.resolution_w is None
    ]
    values = np.unique([reading.power_w for trace in undescribed for reading in trace.readings if reading.power_w is not None])
    return smallest_difference(values) or float(np.abs(values).max()) if values.size else None


def calibrated_scope(description: Description, reference: ReferenceInstrument, name: str | None) -> Scope:
    """Return the scope of the calibrated sensor; with a `name` it is promoted to the reference's scope.

    Raises:
        MeasurementError: the scopes differ and no name was given, or there is a name but nothing to promote.
    """
    scope = reference.scope or description.scope
    if name is None and scope != description.scope:
        raise MeasurementError(
            f"{description.id} measures {description.scope} and {reference.name} measures {scope}: a line between them is a model of what "
            "lies between, not a calibration; name it with --promotion NAME, or use a reference of the same scope"
        )
    if name is not None and scope_rank(scope) >= scope_rank(description.scope):
        raise MeasurementError(f"{reference.name} measures {scope}, which is not wider than {description.scope}: omit --promotion")
    return scope


def calibration_of(
    board: str, description: Description, reference: ReferenceInstrument, held_steps: list[HeldStep], name: str | None
) -> SensorCalibration:
    """Return the calibration from the steps; with a `name` it is a promotion to the reference's scope.

    Raises:
        MeasurementError: as `fit_line` and `calibrated_scope`.
    """
    scope = calibrated_scope(description, reference, name)
    line: CalibrationLine = fit_line([held_step.step for held_step in held_steps])
    sensor_powers_w = [held_step.step.sensor_w for held_step in held_steps]
    gain_u = None if reference.gain_u_ratio is None else math.hypot(line.gain_u / line.gain, reference.gain_u_ratio)
    assumed_w = held_steps[-1].assumed_w[1] or 0.0 if reference.offset_u_w == 0 else 0.0
    # A promotion's points lie off its line for reasons that do not average out: they stay as the uncertainty of each figure.
    offset_u_w = math.hypot(line.offset_u_w, reference.offset_u_w, assumed_w / math.sqrt(3), line.residual_w if name else 0.0)
    return SensorCalibration(
        kind="promotion" if name else "gain",
        name=name,
        board=board,
        sensor=description.id,
        scope=scope,
        gain=line.gain,
        offset_w=line.offset_w,
        gain_u_ratio=gain_u,
        offset_u_w=offset_u_w,
        residual_w=line.residual_w,
        lowest_w=min(line.offset_w + line.gain * watts for watts in sensor_powers_w),
        highest_w=max(line.offset_w + line.gain * watts for watts in sensor_powers_w),
        steps=line.steps,
        reference=reference.name,
        excludes=reference.excludes if name else description.excludes,
        made_at=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
    )


def _steps(
    sensors: Mapping[str, PowerSensor], plan: CalibrationPlan, load: HoldLoad, on_step: OnStep, ask: Callable[[float], Asked]
) -> Iterator[tuple[float, dict[str, SensorTrace], Window, Asked]]:
    """Hold one load after the other; yield its share of the cores, the readings and their window, and what `ask` returned meanwhile."""
    for share in levels(plan.steps):
        with load(share):
            on_step(share)
            time.sleep(plan.settle_s)
            sampler = Sampler(sensors)
            start = time.monotonic_ns()
            sampler.start()
            answer = ask(share)
            time.sleep(max(0.0, plan.seconds - (time.monotonic_ns() - start) / 1e9))
            sampler.stop()
            window = Window(start, time.monotonic_ns())
        yield share, sampler.traces(), window, answer


def _mean_power(trace: SensorTrace, window: Window, assumed_w: float | None) -> _MeanPower:
    """Return the mean power of a step; `assumed_w` is the step of the readings where their sensor describes none."""
    if trace.description is None or len(trace.readings) < FEWEST_READINGS:
        why = trace.ended or f"{len(trace.readings)} readings in a step, {trace.failures} failed"
        raise MeasurementError(f"{trace.name} is too slow for this step ({why}): use longer steps (--seconds)")
    described = trace.description
    if assumed_w is not None and described.kind == "power":
        described = replace(described, resolution_w=assumed_w)
    curve = curve_of(trace.readings, described)
    inner = Window(max(window.start_ns, trace.readings[0].taken_ns), min(window.end_ns, trace.readings[-1].taken_ns))
    quantised_w = curve.quantisation_u_w(inner)
    if quantised_w is None:
        # A counter is known at both ends only: at worst it was a read late at each.
        quantised_w = mean_w(curve, inner) * curve.spacing_ns / math.sqrt(6) / inner.length_ns
    return _MeanPower(mean_w(curve, inner), float(block_means(curve, inner, PARTS).std(ddof=1)) / math.sqrt(PARTS), quantised_w)
