"""Axes: where a value stands in a drawing, and the round numbers written beside it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

# From this ratio of largest to smallest on, a linear axis presses the small values together.
LOG_FROM_RATIO = 12.0
# A log axis over less than this many decades needs more ticks than 1, 10, 100.
FEW_DECADES = 3.2
MARGIN_RATIO = 0.06
# What lies outside is no latency and no energy of an inference; it stands at the end of the axis and does not stretch it.
SMALLEST, LARGEST = 1e-6, 1e12


@dataclass(frozen=True, slots=True)
class Axis:
    """Values `low`..`high` laid out from `start` to `end`; `ticks` lie within them. Every number is finite and low < high."""

    kind: Literal["linear", "log"]
    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Return where `value` stands; what lies outside stands at the nearer end."""
        value = min(max(value, self.low), self.high)
        if self.kind == "log":
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def label(self, tick: float) -> str:
        """Return a tick as text, with as many decimals as its step needs."""
        if self.kind == "log":
            return f"{tick:,.{max(0, -math.floor(math.log10(tick)))}f}"
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else abs(tick) or 1.0
        return f"{tick:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def linear(low: float, high: float, start: float, end: float, count: int = 5) -> Axis:
    """Return an axis over `low`..`high` with about `count` round ticks; equal ends are spread apart."""
    if high <= low:
        pad = abs(low) * 0.5 or 0.5
        low, high = low - pad, high + pad
    step = _round_step((high - low) / count)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis("linear", low, high, start, end, tuple(index * step for index in range(first, last + 1)))


def log(low: float, high: float, start: float, end: float) -> Axis:
    """Return a logarithmic axis over `low`..`high`, both above 0."""
    if high <= low:
        low, high = low / 2, high * 2
    mantissas = (1.0, 2.0, 5.0) if math.log10(high / low) < FEW_DECADES else (1.0,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]
    return Axis("log", low, high, start, end, tuple(tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)))


def of_amounts(values: Iterable[float], start: float, end: float) -> Axis:
    """Return an axis for amounts above 0 (milliseconds, millijoules): linear from 0, logarithmic where the range asks for it."""
    present = [value for value in values if SMALLEST <= value <= LARGEST]
    low, high = (min(present), max(present)) if present else (0.0, 1.0)
    if present and high / low >= LOG_FROM_RATIO:
        return log(low / 1.25, high * 1.25, start, end)
    return linear(0.0, high * (1 + MARGIN_RATIO), start, end)


def of_shares(values: Iterable[float], start: float, end: float) -> Axis:
    """Return an axis for accuracies, within 0..1, with room around the values so that none sticks to the frame."""
    present = [value for value in values if 0 <= value <= 1]
    low, high = (min(present), max(present)) if present else (0.0, 1.0)
    room = max((high - low) * 0.15, 0.01)
    return linear(max(0.0, low - room), min(1.0, high + room), start, end)


def _round_step(rough: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the nearest at or above `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
