"""What the page keeps of runs and cases, so that it reads no record again: plain figures and their spread over usable runs."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare.spread import NS_PER_DAY, MedianInterval, RunPoint, Spread, interval_of_points
from edgemeter.collector.compare.summary import hottest_c
from edgemeter.collector.runs.cases import CurrentSegment, Fingerprint, not_measured, unusable
from edgemeter.collector.trend.current import level_figures, segment_starts
from edgemeter.collector.trend.metrics import RunFigures, has_own_energy, ratio_of_bounds, regressor_c

COLD_START_STEPS = ("process_ms", "import_ms", "load_ms", "first_ms")


class IndexedRun(NamedTuple):
    """One run in figures, None where it has none; `is_usable` is whether it may be compared at all.

    `energy_kind` and `accuracy_kind` are what was measured how: figures of two kinds are never merged.
    """

    row: int
    case_number: int
    fingerprint: int
    id: str
    started_at_ns: int
    verdict: str
    is_usable: bool
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    throughput_per_s: float | None
    cold_start_ms: float | None
    peak_mb: float | None
    gross_mj: float | None
    gross_u_mj: float | None
    net_mj: float | None
    net_u_mj: float | None
    energy_kind: str | None
    energy_provenance: str | None
    has_own_energy: bool | None
    accuracy: float | None
    accuracy_kind: str | None
    temperature_c: float | None
    is_throttled: bool | None
    regressor_c: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None


def indexed_run_of(run: RunRecord, row: int, case_number: int, fingerprint: int) -> IndexedRun:
    """Return the figures of a run; those that may not be compared (estimated, published) are left out."""
    energy = run.energy if not_measured(run, "energy") is None else None
    accuracy = run.accuracy if not_measured(run, "accuracy") is None else None
    has_start = not_measured(run, "cold_start") is None
    is_resolved = energy is not None and energy.net_state == "resolved"
    return IndexedRun(
        row=row,
        case_number=case_number,
        fingerprint=fingerprint,
        id=run.id,
        started_at_ns=run.started_at_ns,
        verdict=run.verdict.state,
        is_usable=unusable(run) is None,
        p50_ms=run.latency.p50_ms,
        p50_low_ms=run.latency.p50_low_ms,
        p50_high_ms=run.latency.p50_high_ms,
        p90_ms=run.latency.p90_ms,
        p99_ms=run.latency.p99_ms,
        throughput_per_s=run.throughput_per_s,
        cold_start_ms=sum(getattr(run.cold_start, step) or 0.0 for step in COLD_START_STEPS) if has_start else None,
        peak_mb=run.memory.peak_mb if not_measured(run, "memory") is None else None,
        gross_mj=energy.gross_mj if energy else None,
        gross_u_mj=energy.gross_u_mj if energy else None,
        net_mj=energy.net_mj if energy and is_resolved else None,
        net_u_mj=energy.net_u_mj if energy and is_resolved else None,
        energy_kind=energy_kind_of(run),
        energy_provenance=energy_provenance(run) if energy else None,
        has_own_energy=has_own_energy(run) if energy else None,
        accuracy=accuracy.value if accuracy else None,
        accuracy_kind=f"{accuracy.metric} | {accuracy.images} | {accuracy.dataset_sha256[:12]}" if accuracy else None,
        temperature_c=hottest_c([run]),
        is_throttled=_is_throttled(run),
        regressor_c=regressor_c(run),
        ttft_ms=run.generation.ttft.p50_ms if run.generation else None,
        tpot_ms=run.generation.tpot.p50_ms if run.generation and run.generation.tpot else None,
    )


def energy_kind_of(run: RunRecord) -> str | None:
    """Return what the energy of a run was measured with, and where it comes from; None of an energy that may not be compared."""
    energy = run.energy
    if energy is None or not_measured(run, "energy") is not None:
        return None
    return f"{energy.sensor} | {energy.scope} | {', '.join(energy.excludes)} | {energy_provenance(run)}"


def _is_throttled(run: RunRecord) -> bool | None:
    """Return whether the machine was throttled around the run, None if unknown."""
    flags = [flag for one in run.conditions for flag in (one.throttled_now, one.under_voltage_now) if flag is not None]
    return any(flags) if flags else None


# What is summed up over the runs of a case.
METRICS = ("p50_ms", "p90_ms", "p99_ms", "throughput_per_s", "cold_start_ms", "peak_mb", "gross_mj", "net_mj", "accuracy", "temperature_c")
WITH_INTERVAL = frozenset({"p50_ms", "throughput_per_s", "gross_mj", "net_mj"})
ENERGIES = frozenset({"gross_mj", "net_mj"})
# What says of a figure how it was measured.
KINDS = {"gross_mj": "energy_kind", "net_mj": "energy_kind", "accuracy": "accuracy_kind"}


class FigureSpread(msgspec.Struct, frozen=True):
    """How one figure is spread over runs: its range, the quarters and the median."""

    n: int
    low: float
    quarter: float
    median: float
    three_quarters: float
    high: float
    interval: MedianInterval | None = None

    @property
    def spread(self) -> Spread:
        """The same as `compare` has it."""
        return Spread(self.median, self.low, self.high, self.n, self.interval)


class CaseFigures(msgspec.Struct, frozen=True):
    """One case over its runs. Uncertainties are the largest of the runs, None where one is not known.

    `segment` is since when its usable runs count and why, None where all do.
    """

    runs: int
    usable: int
    suspect: int
    invalid: int
    first_ns: int
    last_ns: int
    spreads: dict[str, FigureSpread]
    gross_u_mj: float | None = None
    net_u_mj: float | None = None
    throttled: int = 0
    throttling_known: int = 0
    energy_kind: str | None = None
    segment: CurrentSegment | None = None

    def spread(self, metric: str) -> Spread | None:
        """Return the spread of a metric of `METRICS`, None where no run has it."""
        found = self.spreads.get(metric)
        return found.spread if found else None


def decode_figures(text: bytes, metrics: tuple[str, ...] = METRICS) -> CaseFigures:
    """Return figures from JSON, with the spreads of these metrics: of what a view does not show nothing is made."""
    if metrics == METRICS:
        return msgspec.json.decode(text, type=CaseFigures)
    found = _decoder_of(metrics).decode(text)
    some = {name: spread for name in metrics if (spread := getattr(found.spreads, name)) is not None}
    return CaseFigures(**{name: getattr(found, name) for name in CaseFigures.__struct_fields__ if name != "spreads"}, spreads=some)


@lru_cache(maxsize=8)
def _decoder_of(metrics: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Return what decodes figures with the spreads of these metrics as attributes; the others are skipped."""
    spreads = msgspec.defstruct("Spreads", [(name, FigureSpread | None, None) for name in metrics])
    fields = [
        (one.name, spreads if one.name == "spreads" else one.type, msgspec.field(default=None))
        for one in msgspec.structs.fields(CaseFigures)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("SomeFigures", fields))


def sum_up(runs: Sequence[IndexedRun], metrics: Sequence[str] = METRICS, intervals: frozenset[str] = WITH_INTERVAL) -> CaseFigures:
    """Return the figures of a case from all its runs, oldest first; the newest determines the kind of energy and of accuracy."""
    usable = [run for run in runs if run.is_usable]
    energy, accuracy = of_newest_kind(usable, "gross_mj"), of_newest_kind(usable, "accuracy")
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


def current_figures(cases: Sequence[Sequence[IndexedRun]], fingerprints: Mapping[int, Fingerprint]) -> list[CaseFigures | None]:
    """Return the figures of the current segment of each case, given all its runs, oldest first; None where all are of one level.

    Many cases at once take a fraction of the time.
    """
    usable = [[run for run in runs if run.is_usable] for runs in cases]
    starts = segment_starts([[(_level_figures(run), fingerprints[run.fingerprint]) for run in own] for own in usable])
    found: list[CaseFigures | None] = []
    for runs, own, start in zip(cases, usable, starts, strict=True):
        if start is None:
            found.append(None)
            continue
        since_ns = own[start.place].started_at_ns
        figures = sum_up([run for run in runs if run.started_at_ns >= since_ns])
        found.append(msgspec.structs.replace(figures, segment=CurrentSegment(since_ns, start.reason, start.place)))
    return found


def _level_figures(run: IndexedRun) -> RunFigures:
    figures = RunFigures(
        run=run.id,
        started_at_ns=run.started_at_ns,
        received_ns=run.started_at_ns,
        day=run.started_at_ns // NS_PER_DAY,
        verdict=run.verdict,
        temperature_c=run.regressor_c,
        energy_mj=run.gross_mj if run.has_own_energy and run.gross_mj and run.gross_mj > 0 else None,
        energy_u=run.gross_u_mj / 2 / run.gross_mj if run.gross_u_mj is not None and run.gross_mj else None,
        net_mj=None,
        net_u=None,
        energy_kind=run.energy_kind.partition(" | ")[2] if run.energy_kind else None,
        p50_ms=run.p50_ms if run.p50_ms and run.p50_ms > 0 else None,
        p50_u=ratio_of_bounds(run.p50_low_ms, run.p50_high_ms, run.p50_ms),
        p90_ms=None,
        p90_u=None,
        accuracy=run.accuracy,
        accuracy_kind=run.accuracy_kind,
        is_throttled=None,
        is_under_voltage=None,
    )
    return level_figures(figures, run.throughput_per_s)


def of_newest_kind(runs: Sequence[IndexedRun], metric: str) -> list[IndexedRun]:
    """Return the runs (oldest first) whose figure is of one kind, the newest's; all of a metric that has no kinds."""
    kind = KINDS.get(metric)
    if kind is None:
        return list(runs)
    newest = next((found for run in reversed(runs) if (found := getattr(run, kind)) is not None), None)
    return [run for run in runs if getattr(run, kind) == newest] if newest is not None else []


def _spreading(runs: Sequence[IndexedRun], metric: str, intervals: frozenset[str]) -> FigureSpread | None:
    valued = [(run, float(value)) for run in runs if (value := getattr(run, metric)) is not None]
    present = sorted(value for _, value in valued)
    if not present:
        return None
    quarter, median, three_quarters = (_quantile(present, share) for share in (0.25, 0.5, 0.75))
    # A case is of one device: its name does not matter here.
    points = [RunPoint(value, "", run.started_at_ns // NS_PER_DAY) for run, value in valued] if metric in intervals else []
    return FigureSpread(
        len(present), present[0], quarter, median, three_quarters, present[-1], interval_of_points(points) if points else None
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by linear interpolation, as numpy's; of a few hundred values this takes a tenth of the time."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None
