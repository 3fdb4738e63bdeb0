"""The times of one-operator models, each next to the least time that this machine could need: its place under the roofline.

The roof is measured in the same run: the fastest product of matrices that the same runtime ran on the same threads (its fastest query: a
peak is what the machine can do), and how fast memory is copied. An operator cannot be faster than bytes / bandwidth or FLOPs / peak; which
of the two is longer says what binds it. Above 100% of the roof, its data stayed in caches, or the algorithm needs fewer operations than
the definition. Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import msgspec
import numpy as np
from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, plain_digits
from edgemeter.agent.base.terminal import plain_table, print_lines, print_text
from edgemeter.agent.contract.energy_provenance import EnergyProvenance, energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.profile.operator_models import OperatorModel

# Far beyond the caches of boards, within the memory of small ones; half of it is read, half written.
_COPIED_BYTES = 128_000_000
_COPIES = 5
_PRODUCTS = ("Gemm", "MatMul")


class MeasuredOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator, timed alone; what cannot be known is null.

    `share_ratio` is `count` x `p50_ms` over the whole model's p50, `profiled_ratio` its share by the runtime's profiler inside the model.
    `energy_mj` is gross, with its expanded uncertainty (None if unknown) and where it comes from.
    """

    operator: str
    kind: str
    count: int
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None
    flops: int | None
    bytes: int
    intensity_flop_per_byte: float | None
    gflop_per_s: float | None
    gbyte_per_s: float | None
    bound: Literal["compute", "memory"] | None
    roof_ratio: float | None
    share_ratio: float | None
    profiled_ratio: float | None
    energy_mj: float | None
    energy_u_mj: float | None
    energy_provenance: EnergyProvenance | None
    verdict: str
    run: str


class OperatorProfile(msgspec.Struct, frozen=True, kw_only=True):
    """All operators of one run, and the machine's roof. `sum_ms` is that of the operators by their counts, null if one is unknown."""

    model: str | None
    runtime: str
    backend: str
    threads: int
    peak_gflop_per_s: float | None
    copy_gbyte_per_s: float
    whole_p50_ms: float | None
    sum_ms: float | None
    sum_ratio: float | None
    profiled_sum_ratio: float | None
    operators: tuple[MeasuredOperator, ...]
    left_out: tuple[str, ...]
    doubts: tuple[str, ...] = ()


def copy_gbyte_per_s(threads: int) -> float:
    """Return how fast this many threads copy memory, GB/s, read and written bytes together; the fastest of 5."""
    source, target = np.ones(_COPIED_BYTES // 2, np.uint8), np.empty(_COPIED_BYTES // 2, np.uint8)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    durations = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_COPIES):
            begin = time.monotonic_ns()
            list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))
            durations.append(time.monotonic_ns() - begin)
    # Bytes by ns are GB by s.
    return _COPIED_BYTES / min(durations)


def measured_operators(
    models: Sequence[OperatorModel], records: Sequence[RunRecord], copy_gbyte_per_s: float, left_out: Sequence[str] = ()
) -> OperatorProfile:
    """Return the operators in the order given with what was measured of each; `records` may hold the whole model's run too."""
    by_file = {record.model.file: record for record in records}
    whole_run = next((record for record in records if record.model.task != "operator"), None)
    whole_ms = whole_run.latency.p50_ms if whole_run else None
    measured = [(model, by_file[model.file.name]) for model in models if model.file.name in by_file]
    products = [(model.flops / run.latency.min_ms / 1e6, run) for model, run in measured if model.kind in _PRODUCTS and model.flops]
    peak, fastest = max(products, key=lambda product: product[0], default=(None, None))
    doubts = []
    if fastest is not None and fastest.verdict.state != "valid":
        run = f"the run that gave the peak ({fastest.model.name}) is {fastest.verdict.state}"
        doubts.append(f"{run}: the peak may be too low, and shares of the roof too high")
    listed = [(model, record) for model, record in measured if whole_run is None or model.profiled_ratio is not None]
    rows = [_row(model, record, peak, copy_gbyte_per_s, whole_ms) for model, record in listed]
    spent = [row.p50_ms * row.count for row in rows if row.p50_ms is not None]
    total = sum(spent) if spent and len(spent) == len(rows) else None
    profiled = [row.profiled_ratio for row in rows if row.profiled_ratio is not None]
    first = records[0]
    return OperatorProfile(
        model=whole_run.model.name if whole_run else None,
        runtime=f"{first.runtime.package} {first.runtime.version}",
        backend=first.runtime.backend,
        threads=first.runtime.threads,
        peak_gflop_per_s=peak,
        copy_gbyte_per_s=copy_gbyte_per_s,
        whole_p50_ms=whole_ms,
        sum_ms=total,
        sum_ratio=total / whole_ms if total is not None and whole_ms else None,
        profiled_sum_ratio=sum(profiled) if profiled else None,
        operators=tuple(rows),
        left_out=tuple(left_out),
        doubts=tuple(doubts),
    )


def _row(model: OperatorModel, record: RunRecord, peak: float | None, copied: float, whole_ms: float | None) -> MeasuredOperator:
    p50_ms = record.latency.p50_ms
    memory_ms = model.bytes / copied / 1e6
    compute_ms = model.flops / peak / 1e6 if model.flops is not None and peak else None
    bound: Literal["compute", "memory"] | None = None
    if compute_ms is not None:
        bound = "compute" if compute_ms > memory_ms else "memory"
    least_ms = max(memory_ms, compute_ms) if compute_ms is not None else None
    return MeasuredOperator(
        operator=model.name,
        kind=model.kind,
        count=model.count,
        p50_ms=p50_ms,
        p50_low_ms=record.latency.p50_low_ms,
        p50_high_ms=record.latency.p50_high_ms,
        flops=model.flops,
        bytes=model.bytes,
        intensity_flop_per_byte=model.flops / model.bytes if model.flops is not None and model.bytes else None,
        gflop_per_s=model.flops / p50_ms / 1e6 if model.flops is not None and p50_ms else None,
        gbyte_per_s=model.bytes / p50_ms / 1e6 if p50_ms else None,
        bound=bound,
        roof_ratio=least_ms / p50_ms if least_ms is not None and p50_ms else None,
        share_ratio=model.count * p50_ms / whole_ms if p50_ms and whole_ms else None,
        profiled_ratio=model.profiled_ratio,
        energy_mj=record.energy.gross_mj if record.energy else None,
        energy_u_mj=record.energy.gross_u_mj if record.energy else None,
        energy_provenance=energy_provenance(record),
        verdict=record.verdict.state,
        run=record.id,
    )


def show_operators(profile: OperatorProfile, console: Console) -> None:
    """Print the operators as a table, and below it what the sum and the roof mean."""
    table = plain_table()
    has_energy = any(row.energy_mj is not None for row in profile.operators)
    in_model = profile.whole_p50_ms is not None
    table.add_column("operator", overflow="fold")
    numbers = [*(["x", "share", "in model"] if in_model else []), "p50 ms", "+-", "GFLOP/s", "FLOP/B", "bound", "of roof"]
    for heading in [*numbers, *(["mJ"] if has_energy else []), "verdict"]:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in profile.operators:
        spread = (row.p50_high_ms - row.p50_low_ms) / 2 if row.p50_low_ms is not None and row.p50_high_ms is not None else None
        cells = [
            *([str(row.count), _percent(row.share_ratio), _percent(row.profiled_ratio)] if in_model else []),
            plain_digits(row.p50_ms),
            _percent(spread / row.p50_ms if spread is not None and row.p50_ms else None),
            plain_digits(row.gflop_per_s),
            plain_digits(row.intensity_flop_per_byte),
            row.bound or ABSENT,
            _percent(row.roof_ratio),
        ]
        table.add_row(row.operator, *cells, *([_energy_text(row)] if has_energy else []), row.verdict)
    threads = f"{profile.threads} thread{'s' * (profile.threads > 1)}"
    print_text(console, f"{profile.model or 'operators'} on {profile.runtime} ({profile.backend}, {threads})")
    console.print(table)
    print_lines(console, operator_notes(profile))


def _energy_text(row: MeasuredOperator) -> str:
    """Return an energy with its uncertainty; one that was not measured says so."""
    if row.energy_mj is None:
        return ABSENT
    if row.energy_provenance != "measured":
        return f"{plain_digits(row.energy_mj)} ({row.energy_provenance or 'of unknown origin'})"
    return f"{plain_digits(row.energy_mj)} ±{'?' if row.energy_u_mj is None else plain_digits(row.energy_u_mj, 2)}"


def operator_notes(profile: OperatorProfile) -> list[str]:
    """Return what the table does not show: the roof, the sum beside the whole, and what is not in it."""
    peak, copied = plain_digits(profile.peak_gflop_per_s), plain_digits(profile.copy_gbyte_per_s)
    roof = f"roof, measured in this run: {peak} GFLOP/s (the fastest product of matrices here), {copied} GB/s (copying memory)"
    notes = [f"{roof}; above 100% of it, data stay in caches or the algorithm needs fewer operations"]
    if profile.sum_ms is not None and profile.sum_ratio is not None:
        alone = f"{plain_digits(profile.sum_ms)} ms, {profile.sum_ratio:.1%} of the whole model's {plain_digits(profile.whole_p50_ms)} ms"
        inside = f"inside it the profiler gives them {_percent(profile.profiled_sum_ratio)}"
        why = "alone, an operator finds its data in caches, is not fused with its neighbours and pays for a call of its own"
        notes.append(f"sum: by their counts the operators alone take {alone}; {inside}. They differ: {why}")
    return [*notes, *profile.doubts, *(f"left out: {reason}" for reason in profile.left_out)]


def _percent(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"{ratio:.1%}"
