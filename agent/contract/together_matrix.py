"""The contention matrix: how much slower each model of a session is beside others than alone, from the records of its runs.

The slow-down is that of the mean latency. Of queries one after the other it is the inverse of the share of its speed that a model keeps,
however a core is shared: the median of calls that are shorter than the kernel's turns does not show that every other turn is another's.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec
from msgspec.structs import replace

from edgemeter.agent.contract.case_identity import CaseKey, key_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Neighbour


class TogetherCell(msgspec.Struct, frozen=True, kw_only=True):
    """A model beside `neighbours`, alone where there are none: medians over its runs, and the slow-down over pairs of blocks."""

    neighbours: tuple[Neighbour, ...]
    runs: int
    p50_ms: float | None
    mean_ms: float
    overlap_ms: float | None = None
    mean_power_w: float | None = None
    slow_down_ratio: float | None = None
    slow_down_low_ratio: float | None = None
    slow_down_high_ratio: float | None = None
    blocks: int = 0


class TogetherRow(msgspec.Struct, frozen=True, kw_only=True):
    """A model alone and beside others; `mean_power_w` of a cell is that of all models in it."""

    model: Neighbour
    alone: TogetherCell | None
    beside: tuple[TogetherCell, ...]


class TogetherMatrix(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, and the cores that several models were pinned to."""

    rows: tuple[TogetherRow, ...]
    shared_cpus: tuple[int, ...] = ()


def slow_down(log_ratios: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the slow-down with its 95% bounds from ln(together / alone) of pairs of blocks; None where these are too few."""
    if not log_ratios:
        return None, None, None
    from edgemeter.agent.base import run_statistics  # noqa: PLC0415 - it brings numpy, and most runs are alone

    interval = run_statistics.pair_interval(log_ratios)
    ratio = math.exp(run_statistics.centre(log_ratios))
    return (ratio, math.exp(interval.low), math.exp(interval.high)) if interval else (ratio, None, None)


def matrix_of(runs: Iterable[RunRecord]) -> TogetherMatrix | None:
    """Return the matrix of a session's runs; None where none ran beside others. Invalid runs do not count."""
    by_model: dict[CaseKey, dict[str, list[RunRecord]]] = {}
    for run in runs:
        if run.verdict.state != "invalid":
            key = key_of(run)
            by_model.setdefault(replace(key, together=""), {}).setdefault(key.together, []).append(run)
    rows = [_row(of_model) for of_model in by_model.values() if any(of_model.keys() - {""})]
    if not rows:
        return None
    pinned = [core for row in rows for core in row.model.cpus or ()]
    return TogetherMatrix(rows=tuple(rows), shared_cpus=tuple(sorted({core for core in pinned if pinned.count(core) > 1})))


def _row(companies: dict[str, list[RunRecord]]) -> TogetherRow:
    alone = {run.repeat: run for run in companies.get("", [])}
    first = next(iter(companies.values()))[0]
    cells = [_cell(of_company, alone) for company, of_company in companies.items() if company]
    return TogetherRow(
        model=Neighbour(
            model=first.model.name,
            sha256=first.model.sha256,
            runtime=first.runtime.name,
            threads=first.runtime.threads,
            cpus=first.cpus,
        ),
        alone=_cell([*alone.values()], {}) if alone else None,
        beside=tuple(sorted(cells, key=lambda cell: len(cell.neighbours))),
    )


def _cell(runs: Sequence[RunRecord], alone: dict[int, RunRecord]) -> TogetherCell:
    pairs = [(alone[run.repeat], run) for run in runs if run.repeat in alone]
    ratio, low, high = slow_down([math.log(run.latency.mean_ms / by_itself.latency.mean_ms) for by_itself, run in pairs])
    medians_ms = [run.latency.p50_ms for run in runs if run.latency.p50_ms is not None]
    powers_w = [run.energy.mean_power_w for run in runs if run.energy]
    overlaps_ms = [run.together.overlap_ms for run in runs if run.together]
    return TogetherCell(
        neighbours=runs[0].together.neighbours if runs[0].together else (),
        runs=len(runs),
        p50_ms=median(medians_ms) if medians_ms else None,
        mean_ms=median(run.latency.mean_ms for run in runs),
        overlap_ms=median(overlaps_ms) if overlaps_ms else None,
        mean_power_w=median(powers_w) if powers_w else None,
        slow_down_ratio=ratio,
        slow_down_low_ratio=low,
        slow_down_high_ratio=high,
        blocks=len(pairs),
    )
