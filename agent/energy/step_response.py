"""How a sensor answers a load that is switched at known moments: how late, averaged over what, by which clock, and what it hides.

The readings are compared with the answers of the sensors that there are (a mean over a window, a first-order lag, each with a pure delay),
as far as a level, a slow wandering and a step explain them. Which answer it is counts as known only where the alternative is clearly worse
in most tenths of the test; uncertainties are those of leaving out a tenth of the test at a time.
Source: separable least squares, Golub and Pereyra (1973); the delete-a-group jackknife, Shao and Tu, The Jackknife and Bootstrap, 2.3.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Shape = Literal["mean", "lag"]
Selection = NDArray[np.bool_]
# The answer to a load at these times, for those of the readings that are selected (None: all), by a delay and a length of averaging.
Answer = Callable[[Array, Selection | None, float, float], Array]

# Delays and lengths of averaging that are tried first, s, and how closely it is looked around the best, as shares of the last stride.
DELAYS_S = (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.22, 0.32, 0.45, 0.65, 0.9, 1.3, 1.8, 2.5, 3.5)
LENGTHS_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.6, 0.9, 1.3, 1.8, 2.5, 3.5, 5.0)
FINER = (0.5, 0.25, 0.12, 0.06, 0.03)
# Idle power and what other processes draw wander by so many half waves within the test.
HALF_WAVES = 6
BLOCKS = 10
# Two-sided 95% of Student's t with 9 degrees of freedom.
COVERAGE = 2.26
# In how many of its standard errors an answer has to be worse to be ruled out.
CLEARLY_WORSE = 3.0
# The load of a processor rises and falls within so long, and may end so long after a block of work.
EDGE_S = 0.02
# A window that may be no longer than this has no shape beside such edges.
SHORT_S = 3 * EDGE_S
# Beside schedules that were not driven, the answer to the driven one has to explain so much more, or leave so much less open.
UNEXPLAINED_RATIO = 0.5
BEYOND_CHANCE = 1.3
LEAST_CORRELATION = 0.2
OTHER_SCHEDULES = 12


@dataclass(frozen=True, slots=True)
class Switched:
    """The load: when it was switched, s, the first time on, then off, and so on; it is off before, and was driven to `end_s`."""

    edges_s: Array
    end_s: float

    def on_s(self, at_s: Array) -> Array:
        """Return how long the load was on up to these moments."""
        lengths = np.diff(np.append(self.edges_s, max(self.end_s, float(self.edges_s[-1])) + 1e3))
        lengths[1::2] = 0.0
        nodes = np.concatenate(([self.edges_s[0] - 1e3], self.edges_s, [self.edges_s[-1] + 1e3]))
        total = np.concatenate(([0.0, 0.0], np.cumsum(lengths)))
        total[-1] = total[-2] + (1e3 if self.edges_s.size % 2 else 0.0)
        return np.interp(at_s, nodes, total)

    def mean(self, at_s: Array, length_s: Array | float) -> Array:
        """Return the share of the `length_s` before these moments in which the load was on."""
        return np.asarray((self.on_s(at_s) - self.on_s(at_s - length_s)) / length_s)

    def lagged(self, at_s: Array, lag_s: float) -> Array:
        """Return the answer of a first-order lag."""
        states = [0.0]
        for index, length_s in enumerate(np.diff(self.edges_s), 1):
            target = index % 2
            states.append(target + (states[-1] - target) * math.exp(-length_s / lag_s))
        places = np.searchsorted(self.edges_s, at_s, "right")
        since_s = at_s - np.append(self.edges_s[:1], self.edges_s)[places]
        targets = (places % 2).astype(np.float64)
        begun = np.append(0.0, states)[places]
        return np.where(places == 0, 0.0, targets + (begun - targets) * np.exp(-np.maximum(since_s, 0.0) / lag_s))

    def turned(self, pairs: int) -> "Switched":
        """Return a load that was not driven: the same turns, begun at another pair of them."""
        lengths = np.diff(np.append(self.edges_s, self.end_s))
        places = 2 * pairs
        turned = np.concatenate((lengths[places:], lengths[:places]))
        return Switched(self.edges_s[0] + np.concatenate(([0.0], np.cumsum(turned[:-1]))), self.end_s)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95% bounds."""

    value: float
    low: float
    high: float

    def widened(self, by: float) -> "Estimate":
        """Return the estimate with another, independent half width."""
        half = math.hypot(self.high - self.value, by)
        return Estimate(self.value, self.value - half, self.value + half)


@dataclass(frozen=True, slots=True)
class StepResponse:
    """How far the readings step, and how late: all of the delay; its parts where the readings tell the shape apart (None: they do not)."""

    step: Estimate
    delay_s: Estimate
    shape: Shape | None
    pure_delay_s: Estimate | None
    length_s: Estimate | None
    is_seen: bool
    is_short: bool

    def blurred(self, ratio: float) -> "StepResponse":
        """Return the same with wider bounds, where a reading is known to this share of the step that it answers with."""
        if not ratio:
            return self
        scale_s = ratio / math.sqrt(12) * 2 * max(self.delay_s.value, 0.0)
        delay_s, pure_delay_s, length_s = (part and part.widened(scale_s) for part in (self.delay_s, self.pure_delay_s, self.length_s))
        return replace(self, delay_s=delay_s or self.delay_s, pure_delay_s=pure_delay_s, length_s=length_s)


def step_response(at_s: Array, values: Array, load: Switched, spans_s: Array | None = None) -> StepResponse:
    """Return how readings (float64 [n], W) follow a load; `spans_s` is how long before `at_s` each is the mean of, of a counter."""
    fits = {shape: _Fit(at_s, values, load, _answer(load, shape, spans_s)) for shape in ("mean", "lag")}
    grid = list(itertools.product(DELAYS_S, LENGTHS_S if spans_s is None else LENGTHS_S[:1]))
    best = {shape: fit.best(grid) for shape, fit in fits.items()}
    shape: Shape = "mean" if fits["mean"].squares(*best["mean"]).sum() <= fits["lag"].squares(*best["lag"]).sum() else "lag"
    other: Shape = "lag" if shape == "mean" else "mean"
    fit = fits[shape]
    blocks = [fit.best(_near(best[shape]), leave_out=block) for block in range(BLOCKS)]
    totals = [_delay(shape, *point) for point in blocks]
    worse = fits[other].squares(*best[other]) - fit.squares(*best[shape])
    error = float(worse.std(ddof=1)) * math.sqrt(BLOCKS)
    length_s = _estimate(best[shape][1], [length for _, length in blocks], EDGE_S)
    is_short = spans_s is None and length_s.high < SHORT_S
    is_told = spans_s is None and not is_short and float(worse.sum()) > CLEARLY_WORSE * error
    most_pairs = max(1, load.edges_s.size // 2 - 1)
    other_loads = [load.turned(number) for number in np.unique(np.linspace(1, most_pairs, OTHER_SCHEDULES).round().astype(int))]
    chance = max(_Fit(at_s, values, other, _answer(other, shape, spans_s)).correlation(*best[shape]) for other in other_loads)
    correlation = fit.correlation(*best[shape])
    steps = [fit.step(*point, leave_out=block) for block, point in enumerate(blocks)]
    return StepResponse(
        step=_estimate(fit.step(*best[shape]), steps, 0.0),
        delay_s=_estimate(_delay(shape, *best[shape]), totals, EDGE_S / 2),
        shape=shape if is_told else None,
        pure_delay_s=_estimate(best[shape][0], [delay for delay, _ in blocks], EDGE_S) if is_told else None,
        length_s=length_s if is_told else None,
        is_short=is_short,
        is_seen=correlation > max(LEAST_CORRELATION, BEYOND_CHANCE * chance)
        or (correlation > 0 and 1 - correlation**2 < UNEXPLAINED_RATIO * (1 - chance**2)),
    )


def _delay(shape: str, delay_s: float, length_s: float) -> float:
    return delay_s + (length_s / 2 if shape == "mean" else length_s)


def _estimate(value: float, left_out: Sequence[float], floor: float) -> Estimate:
    """Return an estimate from the values without a tenth of the test each, and from what is not known of the load's edges."""
    points = np.array(left_out)
    u = math.sqrt((BLOCKS - 1) / BLOCKS * float(np.sum((points - points.mean()) ** 2)))
    half = math.hypot(COVERAGE * u, floor)
    return Estimate(value, value - half, value + half)


def _answer(load: Switched, shape: str, spans_s: Array | None) -> Answer:
    def answer(at_s: Array, selected: Selection | None, delay_s: float, length_s: float) -> Array:
        if spans_s is not None:
            return load.mean(at_s - delay_s, spans_s if selected is None else spans_s[selected])
        return load.mean(at_s - delay_s, length_s) if shape == "mean" else load.lagged(at_s - delay_s, length_s)

    return answer


def _near(point: tuple[float, float]) -> list[tuple[float, float]]:
    """Return the points around the best that leaving out a tenth of the test may move it to."""
    delay_s, length_s = point
    strides = (-0.1, 0.0, 0.1)
    return [(max(0.0, delay_s + a * (delay_s + 0.1)), max(LENGTHS_S[0], length_s * (1 + b))) for a in strides for b in strides]


class _Fit:
    """Readings as a level, a slow wandering and a step of a given answer."""

    def __init__(self, at_s: Array, values: Array, load: Switched, answer: Answer) -> None:
        self._at_s, self._answer, self._values = at_s, answer, values
        self._waves = np.cos(np.outer(at_s / load.end_s, np.arange(HALF_WAVES + 1) * np.pi))
        self._block = (at_s / load.end_s * BLOCKS).astype(int).clip(0, BLOCKS - 1)
        self._prepared: dict[int | None, tuple[Selection, Array, Array]] = {}

    def _kept(self, leave_out: int | None) -> tuple[Selection, Array, Array]:
        """Return which readings count, a basis of the wandering, and the readings without it."""
        if leave_out not in self._prepared:
            selected = self._block != (-1 if leave_out is None else leave_out)
            basis, _ = np.linalg.qr(self._waves[selected])
            self._prepared[leave_out] = selected, basis, self._values[selected] - basis @ (basis.T @ self._values[selected])
        return self._prepared[leave_out]

    def _cleared(self, delay_s: float, length_s: float, leave_out: int | None) -> tuple[Array, Array]:
        selected, basis, values = self._kept(leave_out)
        answer = self._answer(self._at_s[selected], None if leave_out is None else selected, delay_s, length_s)
        return answer - basis @ (basis.T @ answer), values

    def step(self, delay_s: float, length_s: float, leave_out: int | None = None) -> float:
        answer, values = self._cleared(delay_s, length_s, leave_out)
        squares = float(answer @ answer)
        return float(answer @ values) / squares if squares > 0 else 0.0

    def correlation(self, delay_s: float, length_s: float, leave_out: int | None = None) -> float:
        """Return how much of the readings the answer explains, -1..1."""
        answer, values = self._cleared(delay_s, length_s, leave_out)
        scale = math.sqrt(float(answer @ answer) * float(values @ values))
        return float(answer @ values) / scale if scale > 0 else 0.0

    def squares(self, delay_s: float, length_s: float) -> Array:
        """Return the squares that are left in each tenth of the test, float64 [10]."""
        answer, values = self._cleared(delay_s, length_s, None)
        off = values - self.step(delay_s, length_s) * answer
        return np.bincount(self._block, off**2, BLOCKS).astype(np.float64)

    def best(self, grid: Sequence[tuple[float, float]], leave_out: int | None = None) -> tuple[float, float]:
        """Return the delay and the length of averaging that explain most: the best of a grid, then around it closer and closer."""

        def explained(candidate: tuple[float, float]) -> float:
            return self.correlation(candidate[0], candidate[1], leave_out)

        point = max(grid, key=explained)
        fixed = len({length_s for _, length_s in grid}) == 1
        for stride in FINER:
            delay_s, length_s = point
            scale_s = max(delay_s, length_s, 0.02)
            delays = {max(0.0, delay_s + number * stride * scale_s / 2) for number in (-2, -1, 0, 1, 2)}
            lengths = {length_s} if fixed else {max(LENGTHS_S[0], length_s + number * stride * scale_s / 2) for number in (-2, -1, 0, 1, 2)}
            near = [(delay, length) for delay in sorted(delays) for length in sorted(lengths)]
            # A window that is longer by as much as the delay is shorter answers nearly alike.
            near += [
                (max(0.0, delay_s - number * stride * scale_s / 2), max(LENGTHS_S[0], length_s + number * stride * scale_s))
                for number in (-1, 1)
                if not fixed
            ]
            point = max(near, key=explained)
        return point
