"""What the page needs of a case: for each figure how it is spread over the usable runs."""

from collections.abc import Sequence

import msgspec

from edgemeter.collector.compare.interval import NS_PER_DAY, Interval, Point, of_points
from edgemeter.collector.compare.spread import Spread
from edgemeter.collector.web.run_figures import RunFigures

# What is summed up over the runs of a case.
METRICS = ("p50_ms", "p90_ms", "p99_ms", "throughput_per_s", "cold_start_ms", "peak_mb", "gross_mj", "net_mj", "accuracy", "temperature_c")
WITH_INTERVAL = frozenset({"p50_ms", "throughput_per_s", "gross_mj", "net_mj"})
ENERGIES = frozenset({"gross_mj", "net_mj"})


class Spreading(msgspec.Struct, frozen=True):
    """How one figure is spread over runs: its range, the quarters and the median."""

    n: int
    low: float
    quarter: float
    median: float
    three_quarters: float
    high: float
    interval: Interval | None = None

    @property
    def spread(self) -> Spread:
        """The same as `compare` has it."""
        return Spread(self.median, self.low, self.high, self.n, self.interval)


class CaseFigures(msgspec.Struct, frozen=True):
    """One case over its runs. Uncertainties are the largest of the runs, None where one is not known."""

    runs: int
    usable: int
    suspect: int
    invalid: int
    first_ns: int
    last_ns: int
    spreads: dict[str, Spreading]
    gross_u_mj: float | None = None
    net_u_mj: float | None = None
    throttled: int = 0
    throttling_known: int = 0
    energy_kind: str | None = None

    def spread(self, metric: str) -> Spread | None:
        """Return the spread of a metric of `METRICS`, None where no run has it."""
        found = self.spreads.get(metric)
        return found.spread if found else None


def sum_up(runs: Sequence[RunFigures], metrics: Sequence[str] = METRICS, intervals: frozenset[str] = WITH_INTERVAL) -> CaseFigures:
    """Return the figures of a case from all its runs, oldest first; the newest says which kind of energy and of accuracy counts."""
    usable = [run for run in runs if run.is_usable]
    energy = _of_newest_kind(usable, "energy_kind")
    accuracy = _of_newest_kind(usable, "accuracy_kind")
    # As in `compare`: a net energy that one run could not resolve is not resolved.
    is_resolved = bool(energy) and all(run.net_mj is not None for run in energy)
    spreads = {}
    for metric in metrics:
        source = energy if metric in ENERGIES else accuracy if metric == "accuracy" else usable
        found = None if metric == "net_mj" and not is_resolved else _spreading(source, metric, intervals)
        if found is not None:
            spreads[metric] = found
    return CaseFigures(
        runs=len(runs),
        usable=len(usable),
        suspect=sum(run.verdict == "suspect" for run in usable),
        invalid=len(runs) - len(usable),
        first_ns=min(run.started_at_ns for run in runs),
        last_ns=max(run.started_at_ns for run in runs),
        spreads=spreads,
        gross_u_mj=_largest([run.gross_u_mj for run in energy]),
        net_u_mj=_largest([run.net_u_mj for run in energy]) if is_resolved else None,
        throttled=sum(bool(run.is_throttled) for run in runs),
        throttling_known=sum(run.is_throttled is not None for run in runs),
        energy_kind=energy[-1].energy_kind if energy else None,
    )


def _of_newest_kind(runs: Sequence[RunFigures], kind: str) -> list[RunFigures]:
    newest = next((found for run in reversed(runs) if (found := getattr(run, kind)) is not None), None)
    return [run for run in runs if getattr(run, kind) == newest] if newest is not None else []


def _spreading(runs: Sequence[RunFigures], metric: str, intervals: frozenset[str]) -> Spreading | None:
    valued = [(run, float(value)) for run in runs if (value := getattr(run, metric)) is not None]
    present = sorted(value for _, value in valued)
    if not present:
        return None
    quarter, median, three_quarters = (_quantile(present, share) for share in (0.25, 0.5, 0.75))
    # A case is of one device: its name does not matter here.
    points = [Point(value, "", run.started_at_ns // NS_PER_DAY) for run, value in valued] if metric in intervals else []
    return Spreading(len(present), present[0], quarter, median, three_quarters, present[-1], of_points(points) if points else None)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation, as numpy's; of a few hundred values this takes a tenth of the time."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None
