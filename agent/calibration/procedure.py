"""Calibrate one sensor: hold load steps, see what both instruments show, put a line through it."""

import datetime as dt
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from edgemeter.agent.calibration.fit import Line, Step, line
from edgemeter.agent.calibration.load_steps import levels
from edgemeter.agent.energy.curve import CounterCurve, PowerCurve, mean_w
from edgemeter.agent.energy.sampler import Sampler, Trace
from edgemeter.agent.engine.job import Window
from edgemeter.agent.errors import MeasurementError
from edgemeter.agent.power import Description, PowerSensor
from edgemeter.agent.power.calibration_file import Calibration
from edgemeter.agent.power.detect import rank
from edgemeter.agent.records import Scope

# A step's mean is cut into so many parts: how they scatter says how well it is known.
PARTS = 8
FEWEST_READINGS = 16
# What a typed-in reading of a display is known to, where nobody says: half of its last digit, rectangular.
DISPLAY_DIVISOR = math.sqrt(12)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how finely: steps of load, seconds to settle and to measure each."""

    steps: int = 6
    settle_s: float = 5.0
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Reference:
    """The better instrument: what it is and sees, and its own standard uncertainties, the gain's None where nobody knows it."""

    name: str
    scope: Scope | None
    excludes: tuple[str, ...]
    gain_u_ratio: float | None
    offset_u_w: float


@dataclass(frozen=True, slots=True)
class Held:
    """One load step as it was held: the share of the cores, and what came of it."""

    share: float
    step: Step


Load = Callable[[float], AbstractContextManager[None]]
Tell = Callable[[Held | float], None]


def against(sensors: Mapping[str, PowerSensor], sensor: str, reference: str, plan: Plan, load: Load, tell: Tell) -> list[Held]:
    """Return the steps of `sensor` against another one, read at the same time.

    Raises:
        MeasurementError: one of them gave too few readings.
    """
    held = []
    for share, traces in _steps(sensors, plan, load, tell):
        shown, true = _mean(traces[0][sensor], traces[1]), _mean(traces[0][reference], traces[1])
        held.append(Held(share, Step(*shown, *true)))
        tell(held[-1])
    return held


def typed(name: str, sensor: PowerSensor, plan: Plan, load: Load, tell: Tell, ask: Callable[[float], tuple[float, float]]) -> list[Held]:
    """Return the steps of `sensor` against what somebody reads off a meter: `ask` returns it in W, and the step of its display.

    The load stays on while they read, and the sensor is read until they have.
    """
    held = []
    for share in levels(plan.steps):
        with load(share):
            tell(share)
            time.sleep(plan.settle_s)
            sampler = Sampler({name: sensor})
            start = time.monotonic_ns()
            sampler.start()
            reading_w, digit_w = ask(share)
            time.sleep(max(0.0, plan.seconds - (time.monotonic_ns() - start) / 1e9))
            sampler.stop()
            window = Window(start, time.monotonic_ns())
        held.append(Held(share, Step(*_mean(sampler.traces()[name], window), reading_w, digit_w / DISPLAY_DIVISOR)))
        tell(held[-1])
    return held


def calibrated_scope(description: Description, reference: Reference, name: str | None) -> Scope:
    """Return what the sensor sees once it is calibrated; with a `name` it is promoted to the reference's scope.

    Raises:
        MeasurementError: the two see different parts of the board and no name was given, or one where nothing is promoted.
    """
    scope = reference.scope or description.scope
    if name is None and scope != description.scope:
        message = (
            f"{description.id} sees {description.scope} and {reference.name} sees {scope}: a line between them is a model of what lies "
            "between, not a calibration; name it with --promotion NAME, or use a reference of the same scope"
        )
        raise MeasurementError(message)
    if name is not None and rank(scope) >= rank(description.scope):
        message = f"{reference.name} sees {scope}, no more than {description.scope}: leave --promotion out"
        raise MeasurementError(message)
    return scope


def calibration(board: str, description: Description, reference: Reference, held: list[Held], name: str | None) -> Calibration:
    """Return what the steps say; with a `name` it is a promotion to the reference's scope.

    Raises:
        MeasurementError: they say nothing, or as `calibrated_scope`.
    """
    scope = calibrated_scope(description, reference, name)
    found: Line = line([one.step for one in held])
    shown = [one.step.sensor_w for one in held]
    gain_u = None if reference.gain_u_ratio is None else math.hypot(found.gain_u / found.gain, reference.gain_u_ratio)
    # A promotion's points lie off its line for reasons that do not average out: they stay as the uncertainty of each figure.
    offset_u_w = math.hypot(found.offset_u_w, reference.offset_u_w, found.residual_w if name else 0.0)
    return Calibration(
        kind="promotion" if name else "gain",
        name=name,
        board=board,
        sensor=description.id,
        scope=scope,
        gain=found.gain,
        offset_w=found.offset_w,
        gain_u_ratio=gain_u,
        offset_u_w=offset_u_w,
        residual_w=found.residual_w,
        lowest_w=min(found.offset_w + found.gain * watts for watts in shown),
        highest_w=max(found.offset_w + found.gain * watts for watts in shown),
        steps=found.steps,
        reference=reference.name,
        excludes=reference.excludes if name else description.excludes,
        made_at=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
    )


def _steps(
    sensors: Mapping[str, PowerSensor], plan: Plan, load: Load, tell: Tell
) -> Iterator[tuple[float, tuple[dict[str, Trace], Window]]]:
    for share in levels(plan.steps):
        with load(share):
            tell(share)
            time.sleep(plan.settle_s)
            sampler = Sampler(sensors)
            start = time.monotonic_ns()
            sampler.start()
            time.sleep(plan.seconds)
            sampler.stop()
            window = Window(start, time.monotonic_ns())
        yield share, (sampler.traces(), window)


def _mean(trace: Trace, window: Window) -> tuple[float, float]:
    """Return the mean power of a step and its standard uncertainty, W."""
    if trace.description is None or len(trace.readings) < FEWEST_READINGS:
        why = trace.ended or f"{len(trace.readings)} readings in a step, {trace.failures} failed"
        message = f"{trace.name} is too slow for this step ({why}): use longer steps (--seconds)"
        raise MeasurementError(message)
    curve = (PowerCurve if trace.description.kind == "power" else CounterCurve)(trace.readings, trace.description)
    inner = Window(max(window.start_ns, trace.readings[0].taken_ns), min(window.end_ns, trace.readings[-1].taken_ns))
    edges = [inner.start_ns + (inner.end_ns - inner.start_ns) * place // PARTS for place in range(PARTS + 1)]
    means = [mean_w(curve, Window(begin, end)) for begin, end in itertools.pairwise(edges)]
    return mean_w(curve, inner), statistics.stdev(means) / math.sqrt(PARTS)
