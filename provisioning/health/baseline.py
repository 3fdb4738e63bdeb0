"""The baseline band in which a board's canary figures have to lie, from its own past alone; and the verdict on one canary run.

The middle is the median of the earlier figures; the half width is `WIDTH` times their spread. The spread is the median distance to the
middle (MAD x 1.4826: the standard deviation, were they normal), made larger while few are known, and never less than a share of the
middle: figures that happened to be equal do not make the next one suspect.

Three things are looked at. A figure more than three half widths away is wrong at once. One that is less far outside is doubted, and
wrong when the next one is outside too, on the same side. And where single figures vary so much that a change hides within the band, the
median of the last five is held against half of it. How often this errs on a healthy board, and how soon it finds a change, is computed
by `python -m tests.benchmarks.golden_band`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Literal

from edgemeter.agent.contract.health import Health
from edgemeter.provisioning.registry.canary_runs import CanaryRun

# The least number of earlier figures, and how many of the latest count.
FEWEST, MOST = 5, 30
WIDTH = 4.5
NORMAL = 1.4826

# The spread of five figures is estimated too small half of the time, of thirty hardly: factor 1 + SLACK / n.
SLACK = 4.0
FLOOR_RATIO = 0.01
GROSS = 3.0

# The median of five varies half as much as one; it has to lie within this share of the half width.
RECENT, DRIFT, DRIFT_FEWEST = 5, 0.55, 15

# The figures that are judged; others (a temperature) are shown beside them.
JUDGED = ("latency_", "throughput_", "energy_", "power_")

# A temperature difference that can explain a deviation.
WARMER_C = 8.0
TEMPERATURE = "temperature_max_c"
OWN_VERDICT = "its own verdict"
BESIDE = ("agent", "kernel", "os", "power_mode", "governor", "python", "serial")

Deviation = Literal["gross", "outside", "drift"]


@dataclass(frozen=True, slots=True)
class BaselineBand:
    """The range `middle - half` .. `middle + half` of this board's earlier figures, computed from `count` of them."""

    middle: float
    half: float
    count: int


@dataclass(frozen=True, slots=True)
class OutsideFigure:
    """A figure outside its band; for a drift, `value` is the median of the last five."""

    name: str
    value: float
    band: BaselineBand
    how: Deviation

    @property
    def off_ratio(self) -> float:
        """Its distance from the middle, as a share of the middle."""
        return self.value / self.band.middle - 1

    @property
    def side(self) -> str:
        """The figure and the direction: two in a row on the same side confirm each other."""
        return f"{self.name}{'+' if self.off_ratio > 0 else '-'}"

    def __str__(self) -> str:
        subject = f"median of the last {RECENT} " if self.how == "drift" else ""
        room = self.band.half / self.band.middle * (DRIFT if self.how == "drift" else 1)
        return (
            f"{subject}{self.name} is {self.value:.4g}, {self.off_ratio:+.1%} from this board's median {self.band.middle:.4g}"
            f" (±{room:.1%} over {self.band.count} canary runs)"
        )


def band_of(earlier: Sequence[float]) -> BaselineBand | None:
    """Return the band of earlier figures, the newest last; None where there are too few, or not all are above zero."""
    latest = earlier[-MOST:]
    if len(latest) < FEWEST or min(latest) <= 0:
        return None
    middle = median(latest)
    spread = NORMAL * median(abs(value - middle) for value in latest) * (1 + SLACK / len(latest))
    return BaselineBand(middle, WIDTH * max(spread, FLOOR_RATIO * middle), len(latest))


def judge_figure(name: str, value: float, earlier: Sequence[float]) -> OutsideFigure | None:
    """Return the figure where it is outside its band, None where it is within or has no band yet."""
    band = band_of(earlier)
    if band is None:
        return None
    off = abs(value - band.middle)
    if off > band.half:
        return OutsideFigure(name, value, band, "gross" if off > GROSS * band.half else "outside")
    recent, before = [*earlier[1 - RECENT :], value], band_of(earlier[: 1 - RECENT])
    if before is not None and before.count >= DRIFT_FEWEST and abs(median(recent) - before.middle) > DRIFT * before.half:
        return OutsideFigure(name, median(recent), before, "drift")
    return None


def figures_outside(figures: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> list[OutsideFigure]:
    """Return the figures outside their bands, the farthest first."""
    outside = [
        figure
        for name, value in figures.items()
        if name.startswith(JUDGED)
        and (figure := judge_figure(name, value, [run_figures[name] for run_figures in earlier if name in run_figures]))
    ]
    return sorted(outside, key=lambda figure: -abs(figure.off_ratio))


def has_band(figures: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> bool:
    """Return whether any of the figures can be judged yet."""
    return any(
        name.startswith(JUDGED) and band_of([run_figures[name] for run_figures in earlier if name in run_figures]) is not None
        for name in figures
    )


def is_fault(outside: Sequence[OutsideFigure], doubted: Sequence[str]) -> bool:
    """Return whether the board becomes suspect; `doubted` are the sides on which the previous run was outside."""
    return any(figure.how != "outside" or figure.side in doubted for figure in outside)


def judge_run(
    job: str,
    device: str,
    ended_ns: int,
    figures: Mapping[str, float],
    earlier: Sequence[CanaryRun],
    health: Health | None,
    reason: str | None = None,
) -> tuple[CanaryRun, str | None]:
    """Return the run as it is kept, and why the device becomes suspect, None where it does not.

    `reason` is the run's own verdict: the measuring rule that it violated.
    """
    baseline_runs = [earlier_run for earlier_run in earlier if earlier_run.is_kept]
    outside = figures_outside(figures, [earlier_run.figures for earlier_run in baseline_runs])
    conditions = {**conditions_of(figures, health), OWN_VERDICT: (reason or "valid").partition(":")[0]}
    doubted = earlier[-1].doubted if earlier else ()
    is_wrong = is_fault(outside, doubted)
    # A fault does not widen the band by which it was found; a single doubt is this board's own noise.
    run = CanaryRun(job, device, ended_ns, figures, conditions, tuple(figure.side for figure in outside), is_kept=not is_wrong)
    if not is_wrong:
        return run, None
    series = takewhile(lambda run: outside[0].side in run.doubted, reversed(earlier))
    first_ns = min((run.ended_ns for run in series), default=ended_ns)
    since = f" since {time.strftime('%Y-%m-%d %H:%M', time.gmtime(first_ns / 1e9))} UTC"
    changes = changed_conditions(baseline_runs[-1] if baseline_runs else None, run)
    beside_text = f"; changed at the same time: {', '.join(changes)}" if changes else "; no other known change"
    further = f", and {len(outside) - 1} more" if len(outside) > 1 else ""
    return run, f"{outside[0]}{further}{since}{beside_text}"


def conditions_of(figures: Mapping[str, float], health: Health | None) -> dict[str, str]:
    """Return the conditions of a canary run."""
    conditions = {name: value for name in BESIDE if health is not None and (value := getattr(health, name)) is not None}
    warmest = figures.get(TEMPERATURE) or (max(health.temperatures_c.values(), default=None) if health else None)
    if warmest is not None:
        conditions["temperature"] = f"{warmest:.0f} C"
    if health is not None and health.is_throttled_since_boot:
        conditions["throttled"] = "yes"
    if health is not None and health.is_under_voltage_since_boot:
        conditions["under-voltage"] = "yes"
    return conditions


def changed_conditions(before: CanaryRun | None, after: CanaryRun) -> list[str]:
    """Return the conditions that differ from those of the last run within the band: `agent 1.0 -> 1.1`."""
    if before is None:
        return []
    changes = []
    for name in dict.fromkeys((*before.beside, *after.beside)):
        old, new = before.beside.get(name), after.beside.get(name)
        if name == "temperature":
            is_changed = bool(old and new) and abs(float(str(old).split()[0]) - float(str(new).split()[0])) >= WARMER_C
        else:
            is_changed = old != new
        if is_changed:
            changes.append(f"{name.replace('_', ' ')} {old or 'unknown'} -> {new or 'unknown'}")
    return changes
