"""The band in which a board's golden figures have to lie: its own past, and nobody else's.

The middle is the median of the earlier figures; the half width is `WIDTH` times their spread. The spread is the median distance to the
middle (MAD x 1.4826: the standard deviation, were they normal), made larger while few are known, and never less than a share of the
middle: figures that happened to be equal do not make the next one suspect.

Three things are looked at. A figure more than three half widths away is wrong at once. One that is less far outside is doubted, and
wrong when the next one is outside too, on the same side. And where single figures vary so much that a change hides within the band, the
median of the last five is held against half of it. How often this errs on a healthy board, and how soon it finds a change, is computed
by `python -m tests.benchmarks.golden_band`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

# So many earlier figures at least, and what is older than so many counts no more.
FEWEST, MOST = 5, 30
WIDTH = 4.5
NORMAL = 1.4826
# The spread of five figures is guessed too small half of the time, of thirty hardly: factor 1 + SLACK / n.
SLACK = 4.0
FLOOR_RATIO = 0.01
GROSS = 3.0
# The median of five varies half as much as one; it has to lie within this share of the half width.
RECENT, DRIFT, DRIFT_FEWEST = 5, 0.55, 15
# What is judged; anything else (a temperature) is told beside it.
JUDGED = ("latency_", "throughput_", "energy_", "power_")

How = Literal["gross", "outside", "drift"]


@dataclass(frozen=True, slots=True)
class Band:
    """Between `middle - half` and `middle + half` lies what this board has shown before; made of `count` earlier figures."""

    middle: float
    half: float
    count: int


@dataclass(frozen=True, slots=True)
class Outside:
    """A figure that lies outside its band; of a drift the `value` is the median of the last five."""

    name: str
    value: float
    band: Band
    how: How

    @property
    def off_ratio(self) -> float:
        """How far it is from the middle, as a share of that."""
        return self.value / self.band.middle - 1

    @property
    def side(self) -> str:
        """Return which figure is off to which side: two of the same confirm each other."""
        return f"{self.name}{'+' if self.off_ratio > 0 else '-'}"

    def __str__(self) -> str:
        what = f"median of the last {RECENT} " if self.how == "drift" else ""
        room = self.band.half / self.band.middle * (DRIFT if self.how == "drift" else 1)
        return (
            f"{what}{self.name} is {self.value:.4g}, {self.off_ratio:+.1%} from this board's median {self.band.middle:.4g}"
            f" (±{room:.1%} over {self.band.count} golden runs)"
        )


def of(earlier: Sequence[float]) -> Band | None:
    """Return the band of earlier figures, the newest last; None where they are too few, or not all above zero."""
    known = earlier[-MOST:]
    if len(known) < FEWEST or min(known) <= 0:
        return None
    middle = median(known)
    spread = NORMAL * median(abs(value - middle) for value in known) * (1 + SLACK / len(known))
    return Band(middle, WIDTH * max(spread, FLOOR_RATIO * middle), len(known))


def judge(name: str, value: float, earlier: Sequence[float]) -> Outside | None:
    """Return how a figure lies outside its band, None where it lies within or there is none yet."""
    band = of(earlier)
    if band is None:
        return None
    off = abs(value - band.middle)
    if off > band.half:
        return Outside(name, value, band, "gross" if off > GROSS * band.half else "outside")
    recent, before = [*earlier[1 - RECENT :], value], of(earlier[: 1 - RECENT])
    if before is not None and before.count >= DRIFT_FEWEST and abs(median(recent) - before.middle) > DRIFT * before.half:
        return Outside(name, median(recent), before, "drift")
    return None


def outside(figures: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> list[Outside]:
    """Return the figures outside their bands, the farthest first; of energies and latencies alike."""
    found = [
        one
        for name, value in figures.items()
        if name.startswith(JUDGED) and (one := judge(name, value, [known[name] for known in earlier if name in known]))
    ]
    return sorted(found, key=lambda one: -abs(one.off_ratio))


def has_band(figures: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> bool:
    """Return whether any of the figures can be judged yet."""
    return any(name.startswith(JUDGED) and of([known[name] for known in earlier if name in known]) is not None for name in figures)


def is_wrong(found: Sequence[Outside], doubted: Sequence[str]) -> bool:
    """Return whether the board is to be suspected; `doubted` are the sides on which the run before was outside."""
    return any(one.how != "outside" or one.side in doubted for one in found)
