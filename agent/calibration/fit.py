"""A straight line through the load steps: what the reference showed, as a function of what the sensor showed.

Weighted least squares with uncertainties in both (York's slope by iteration, independent errors): the sensor's scatter counts as much
as the reference's. Where the points lie off the line by more than their scatter explains, the uncertainties are widened to what they show.
Source: York et al., Am. J. Phys. 72 (2004) 367; the Birge ratio for the widening.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.errors import MeasurementError

FEWEST_STEPS = 3
# Steps closer together than this many of their own uncertainties say nothing about a gain.
SPAN_OVER_U = 20.0
ROUNDS = 50
SETTLED_RATIO = 1e-12
GAIN_RANGE = (0.1, 10.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One load step: mean power of both, W, and the standard uncertainty of each mean from how its readings scattered."""

    sensor_w: float
    sensor_u_w: float
    reference_w: float
    reference_u_w: float


@dataclass(frozen=True, slots=True)
class Line:
    """reference = offset_w + gain x sensor; standard uncertainties (k = 1) of the fit alone, and what the points lie off it."""

    gain: float
    gain_u: float
    offset_w: float
    offset_u_w: float
    residual_w: float
    steps: int


def line(steps: Sequence[Step]) -> Line:
    """Return the line through the steps.

    Raises:
        MeasurementError: too few steps, too close together, or a gain that no sensor of the same power can have.
    """
    _check(steps)
    slope = _unweighted(steps)
    for _ in range(ROUNDS):
        found = _york(steps, slope)
        if abs(found.gain - slope) <= SETTLED_RATIO * abs(slope):
            break
        slope = found.gain
    if not GAIN_RANGE[0] <= found.gain <= GAIN_RANGE[1]:
        message = (
            f"the reference shows {found.gain:.3g} times what the sensor shows: they do not see the same load; check what the reference "
            "measures, and that nothing else drew power meanwhile"
        )
        raise MeasurementError(message)
    return found


def _check(steps: Sequence[Step]) -> None:
    if len({round(step.sensor_w, 6) for step in steps}) < FEWEST_STEPS:
        message = f"{len(steps)} load steps with different power are too few for a line: give at least {FEWEST_STEPS} (--steps)"
        raise MeasurementError(message)
    span_w = max(step.sensor_w for step in steps) - min(step.sensor_w for step in steps)
    u_w = max(math.hypot(step.sensor_u_w, step.reference_u_w) for step in steps)
    if span_w < SPAN_OVER_U * u_w:
        message = (
            f"the load moved the power by {span_w:.3g} W, and a step is known to {u_w:.2g} W: too little for a gain; use longer steps "
            "(--seconds), and stop what else draws power meanwhile"
        )
        raise MeasurementError(message)


def _unweighted(steps: Sequence[Step]) -> float:
    mean_x = math.fsum(step.sensor_w for step in steps) / len(steps)
    mean_y = math.fsum(step.reference_w for step in steps) / len(steps)
    spread = math.fsum((step.sensor_w - mean_x) ** 2 for step in steps)
    return math.fsum((step.sensor_w - mean_x) * (step.reference_w - mean_y) for step in steps) / spread


def _york(steps: Sequence[Step], slope: float) -> Line:
    """Return one round of York's iteration, from the slope of the round before."""
    floor_w = 1e-6
    wx = [1 / max(step.sensor_u_w, floor_w) ** 2 for step in steps]
    wy = [1 / max(step.reference_u_w, floor_w) ** 2 for step in steps]
    weight = [a * b / (a + slope**2 * b) for a, b in zip(wx, wy, strict=True)]
    total = math.fsum(weight)
    mean_x = math.fsum(w * step.sensor_w for w, step in zip(weight, steps, strict=True)) / total
    mean_y = math.fsum(w * step.reference_w for w, step in zip(weight, steps, strict=True)) / total
    u = [step.sensor_w - mean_x for step in steps]
    v = [step.reference_w - mean_y for step in steps]
    beta = [w * (ui / b + slope * vi / a) for w, ui, vi, a, b in zip(weight, u, v, wx, wy, strict=True)]
    gain = math.fsum(w * b * vi for w, b, vi in zip(weight, beta, v, strict=True)) / math.fsum(
        w * b * ui for w, b, ui in zip(weight, beta, u, strict=True)
    )
    offset = mean_y - gain * mean_x
    adjusted = [mean_x + b for b in beta]
    centre = math.fsum(w * x for w, x in zip(weight, adjusted, strict=True)) / total
    gain_u = 1 / math.sqrt(math.fsum(w * (x - centre) ** 2 for w, x in zip(weight, adjusted, strict=True)))
    offset_u = math.sqrt(1 / total + (centre * gain_u) ** 2)
    off = [step.reference_w - offset - gain * step.sensor_w for step in steps]
    birge = math.sqrt(math.fsum(w * e**2 for w, e in zip(weight, off, strict=True)) / (len(steps) - 2))
    residual_w = math.sqrt(math.fsum(e**2 for e in off) / (len(steps) - 2))
    widened = max(1.0, birge)
    return Line(gain, gain_u * widened, offset, offset_u * widened, residual_w, len(steps))
