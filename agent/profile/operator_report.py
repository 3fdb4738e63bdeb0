"""The times of one-operator models, each next to the least time that this machine could need: its place under the roofline.

The roof is measured in the same run: the fastest product of matrices that the same runtime ran on the same threads (its fastest query: a
peak is what the machine can do), and how fast memory is copied. An operator cannot be faster than bytes / bandwidth or FLOPs / peak; which
of the two is longer says what binds it. Either is measured twice, apart in time, and refused if the two differ (`machine/roof.py`).
A share above 100% is refused too. Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, plain_digits
from edgemeter.agent.base.terminal import plain_table, print_lines, print_text
from edgemeter.agent.contract.energy_provenance import EnergyProvenance, energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.machine.roof import unsteady
from edgemeter.agent.profile.operator_models import PEAKS, OperatorModel, Shape

_PRODUCTS = ("Gemm", "MatMul", "FULLY_CONNECTED", "linear", "matmul", "mm", "bmm", "addmm")
_ABOVE = {
    "memory": "its data stay in caches, and do not come from memory",
    "compute": "it needs fewer operations than its definition has, or other kernels than products of matrices",
}


class MeasuredOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator, timed alone; what cannot be known is null.

    `share_ratio` is `count` x `p50_ms` over the whole model's p50, `profiled_ratio` its share by the runtime's profiler inside the model.
    `roof_ratio` is null where the roof is unknown, or not one: then `roof_reason` says why.
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
    roof_reason: str | None
    share_ratio: float | None
    profiled_ratio: float | None
    energy_mj: float | None
    energy_u_mj: float | None
    energy_provenance: EnergyProvenance | None
    verdict: str
    run: str


class OperatorProfile(msgspec.Struct, frozen=True, kw_only=True):
    """All operators of one run, and the machine's roof: the peak of each precision, and copying; without what was disturbed.

    `sum_ms` is that of the operators by their counts, null if one is unknown.
    """

    model: str | None
    runtime: str
    backend: str
    threads: int
    peaks_gflop_per_s: dict[str, float]
    copy_gbyte_per_s: float | None
    whole_p50_ms: float | None
    sum_ms: float | None
    sum_ratio: float | None
    profiled_sum_ratio: float | None
    operators: tuple[MeasuredOperator, ...]
    left_out: tuple[str, ...]
    doubts: tuple[str, ...] = ()


def measured_operators(
    models: Sequence[OperatorModel], records: Sequence[RunRecord], copies_gbyte_per_s: Sequence[float], left_out: Sequence[str] = ()
) -> OperatorProfile:
    """Return the operators in the order given with what was measured of each; `records` may hold the whole model's run too.

    `copies_gbyte_per_s` is how fast memory was copied before and after the runs; of `PEAK` there are several runs.
    """
    by_file = {record.model.file: record for record in reversed(records)}
    whole_run = next((record for record in records if record.model.task != "operator"), None)
    whole_ms = whole_run.latency.p50_ms if whole_run else None
    measured = [(model, by_file[model.file.name]) for model in models if model.file.name in by_file]
    doubts: list[str] = []
    peaks: dict[str, float] = {}
    for peak_shape in PEAKS:
        peak, peak_doubts = _peak(models, records, peak_shape)
        doubts += peak_doubts
        peaks |= {} if peak is None else {peak_shape.precision: peak}
    copy_doubts = unsteady(copies_gbyte_per_s, "GB/s of copying memory")
    copied = None if copy_doubts else max(copies_gbyte_per_s)
    doubts += copy_doubts
    listed = [(model, record) for model, record in measured if whole_run is None or model.profiled_ratio is not None]
    rows = [_row(model, record, peaks.get(model.precision), copied, whole_ms) for model, record in listed]
    spent = [row.p50_ms * row.count for row in rows if row.p50_ms is not None]
    total = sum(spent) if spent and len(spent) == len(rows) else None
    profiled = [row.profiled_ratio for row in rows if row.profiled_ratio is not None]
    first = records[0]
    return OperatorProfile(
        model=whole_run.model.name if whole_run else None,
        runtime=f"{first.runtime.package} {first.runtime.version}",
        backend=first.runtime.backend,
        threads=first.runtime.threads,
        peaks_gflop_per_s=peaks,
        copy_gbyte_per_s=copied,
        whole_p50_ms=whole_ms,
        sum_ms=total,
        sum_ratio=total / whole_ms if total is not None and whole_ms else None,
        profiled_sum_ratio=sum(profiled) if profiled else None,
        operators=tuple(rows),
        left_out=tuple(left_out),
        doubts=tuple(doubts),
    )


def _peak(models: Sequence[OperatorModel], records: Sequence[RunRecord], shape: Shape) -> tuple[float | None, list[str]]:
    """Return the peak in the precision of `shape`, GFLOP/s, None if its runs differ, and what is wrong with it."""
    products = {model.file.name: model for model in models if model.kind in _PRODUCTS and model.precision == shape.precision}
    runs = [(products[run.model.file], run) for run in records if run.model.file in products]
    speeds = [(model.flops / run.latency.min_ms / 1e6, run, model.name == shape.name) for model, run in runs if model.flops]
    if not speeds:
        return None, []
    if doubts := unsteady([speed for speed, _, is_repeated in speeds if is_repeated], f"GFLOP/s of {shape.name}"):
        return None, doubts
    peak, fastest, _ = max(speeds, key=lambda speed: speed[0])
    if fastest.verdict.state == "valid":
        return peak, []
    run = f"the run that gave the peak ({fastest.model.name}) is {fastest.verdict.state}"
    return peak, [f"{run}: the peak may be too low, and shares of the roof too high"]


def _row(model: OperatorModel, record: RunRecord, peak: float | None, copied: float | None, whole_ms: float | None) -> MeasuredOperator:
    p50_ms = record.latency.p50_ms
    bound: Literal["compute", "memory"] | None = None
    roof_ratio = roof_reason = None
    if model.flops is not None and peak and copied:
        memory_ms, compute_ms = model.bytes / copied / 1e6, model.flops / peak / 1e6
        bound = "compute" if compute_ms > memory_ms else "memory"
        roof_ratio = max(memory_ms, compute_ms) / p50_ms if p50_ms else None
        if roof_ratio is not None and roof_ratio > 1:
            roof_ratio, roof_reason = None, _ABOVE[bound]
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
        roof_ratio=roof_ratio,
        roof_reason=roof_reason,
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
    peaks = ", ".join(f"{plain_digits(peak)} GFLOP/s in {precision}" for precision, peak in profile.peaks_gflop_per_s.items()) or ABSENT
    copied = f"{plain_digits(profile.copy_gbyte_per_s)} GB/s (copying memory)"
    notes = [f"roof, measured in this run: {peaks} (the fastest product of matrices here), {copied}"]
    above = {reason: [row.operator for row in profile.operators if row.roof_reason == reason] for reason in _ABOVE.values()}
    notes += [f"no share of the roof for {', '.join(names)}: {reason}" for reason, names in above.items() if names]
    if profile.sum_ms is not None and profile.sum_ratio is not None:
        alone = f"{plain_digits(profile.sum_ms)} ms, {profile.sum_ratio:.1%} of the whole model's {plain_digits(profile.whole_p50_ms)} ms"
        inside = f"inside it the profiler gives them {_percent(profile.profiled_sum_ratio)}"
        why = "alone, an operator finds its data in caches, is not fused with its neighbours and pays for a call of its own"
        notes.append(f"sum: by their counts the operators alone take {alone}; {inside}. They differ: {why}")
    return [*notes, *profile.doubts, *(f"left out: {reason}" for reason in profile.left_out)]


def _percent(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"{ratio:.1%}"
