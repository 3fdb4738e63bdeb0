"""The columns of a comparison: one row carries everything, the same in JSON and in CSV.

A row is flat. Names are snake_case and end in their unit; a name without one is a text, a count or a ratio. Every figure is the median over
the `runs` of the case; `*_min_*` and `*_max_*` are its range over runs, `*_low*` and `*_high*` bounds of 95 % (`interval_over` says over
what). `reference_*` says what the row was compared with. A list (marks, reasons, run ids) is an array in JSON and joined by ` | ` in CSV;
absent is null in JSON and empty in CSV.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.collector.compare.comparison import Comparison, Row
from edgemeter.collector.compare.energy_summary import EnergySummary
from edgemeter.collector.compare.judgement import Judgement
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.compare.summary import Summary

Value = str | int | float | bool | list[str] | None
JOINT = " | "


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, and how it is read from a row."""

    name: str
    value: Callable[[Row], Value]


def _of_case(name: str, value: Callable[[Summary], Value]) -> Column:
    return Column(name, lambda row: value(row.case))


def _key(name: str) -> Column:
    return _of_case(name, lambda case: getattr(case.key, name))


def _environment(name: str) -> Column:
    return _of_case(name, lambda case: case.around.environment[name])


def _spread(name: str, unit: str, figure: Callable[[Summary], Spread | None]) -> tuple[Column, ...]:
    def part(which: str) -> Callable[[Summary], Value]:
        return lambda case: None if (found := figure(case)) is None else getattr(found, which)

    def end(which: str) -> Callable[[Summary], Value]:
        return lambda case: getattr(found.interval, which) if (found := figure(case)) and found.interval else None

    return (
        _of_case(f"{name}_{unit}", part("median")),
        _of_case(f"{name}_min_{unit}", part("low")),
        _of_case(f"{name}_max_{unit}", part("high")),
        _of_case(f"{name}_low_{unit}", end("low")),
        _of_case(f"{name}_high_{unit}", end("high")),
    )


def _energy(name: str, value: Callable[[EnergySummary], Value]) -> Column:
    return _of_case(name, lambda case: value(case.energy) if case.energy else None)


_IDENTITY = (
    _key("device"),
    _key("fleet"),
    _key("role"),
    _key("model"),
    _key("precision"),
    _key("runtime"),
    _key("runtime_package"),
    _key("runtime_version"),
    _key("backend"),
    _key("threads"),
    _key("batch"),
    _key("scenario"),
    _key("samples_per_query"),
    _key("target_per_s"),
    _key("task"),
    _of_case("dataset", lambda case: case.newest.dataset.name),
    _of_case("dataset_images", lambda case: case.newest.dataset.images),
    _key("dataset_sha256"),
    _of_case("model_file", lambda case: case.newest.model.file),
    _of_case("model_format", lambda case: case.newest.model.format),
    _of_case("model_size_bytes", lambda case: case.newest.model.size_bytes),
    _key("model_sha256"),
    _of_case("mode", lambda case: JOINT.join(case.around.modes)),
    _key("provenance"),
    _of_case("runs", lambda case: len(case.runs)),
    _of_case("interval_over", lambda case: found.over if (found := case.throughput_per_s.interval) else None),
    _of_case("queries", lambda case: case.around.queries),
)

_FIGURES = (
    *_spread("latency_p50", "ms", lambda case: case.p50_ms),
    *_spread("latency_p90", "ms", lambda case: case.p90_ms),
    *_spread("latency_p99", "ms", lambda case: case.p99_ms),
    *_spread("throughput", "per_s", lambda case: case.throughput_per_s),
    _of_case("preprocess_p50_ms", lambda case: median_of(case.preprocess_p50_ms)),
    _of_case("postprocess_p50_ms", lambda case: median_of(case.postprocess_p50_ms)),
    _of_case("cold_start_process_ms", lambda case: median_of(case.cold_start.process_ms) if case.cold_start else None),
    _of_case("cold_start_import_ms", lambda case: case.cold_start.import_ms.median if case.cold_start else None),
    _of_case("cold_start_load_ms", lambda case: case.cold_start.load_ms.median if case.cold_start else None),
    _of_case("cold_start_first_ms", lambda case: case.cold_start.first_ms.median if case.cold_start else None),
    *_spread("memory_peak", "mb", lambda case: case.peak_mb),
    _of_case("memory_prepared_inputs_mb", lambda case: case.memory.prepared_inputs_mb.median if case.memory else None),
    _of_case("accuracy_metric", lambda case: case.accuracy.metric if case.accuracy else None),
    _of_case("accuracy_value", lambda case: median_of(case.accuracy_value)),
    _of_case("accuracy_images", lambda case: case.accuracy.images if case.accuracy else None),
    _of_case("accuracy_reason", lambda case: case.accuracy_reason),
)

_ENERGY = (
    _energy("energy_provenance", lambda energy: energy.provenance),
    _energy("energy_sensor", lambda energy: energy.sensor),
    _energy("energy_scope", lambda energy: energy.scope),
    _energy("energy_excludes", lambda energy: list(energy.excludes)),
    *_spread("energy_gross", "mj", lambda case: case.gross_mj),
    _energy("energy_gross_u_mj", lambda energy: energy.gross_u_mj),
    *_spread("energy_net", "mj", lambda case: case.net_mj),
    _energy("energy_net_u_mj", lambda energy: energy.net_u_mj),
    _energy("energy_net_state", lambda energy: energy.net_state),
    _energy("mean_power_w", lambda energy: energy.mean_power_w.median),
    _of_case("energy_reason", lambda case: case.energy_reason),
)

_SURROUNDINGS = (
    _environment("board"),
    _environment("soc"),
    _environment("cpu"),
    _environment("cores"),
    _environment("os"),
    _environment("kernel"),
    _environment("virtualisation"),
    _environment("governor"),
    _environment("power_mode"),
    _environment("agent"),
    _of_case("temperature_max_c", lambda case: case.around.hottest_c),
    _of_case("verdict", lambda case: case.verdict),
    _of_case("verdict_reasons", lambda case: list(case.verdict_reasons)),
    _of_case("suspect_runs", lambda case: case.suspect),
)


def _bounds(name: str, bounds: Callable[[Row], tuple[float, float] | None]) -> tuple[Column, Column]:
    def end(which: int) -> Callable[[Row], Value]:
        return lambda row: None if (found := bounds(row)) is None else found[which]

    return Column(f"{name}_low", end(0)), Column(f"{name}_high", end(1))


def _judged(name: str, judgement: Callable[[Row], Judgement | None]) -> tuple[Column, Column]:
    return (
        Column(f"{name}_verdict", lambda row: found.state if (found := judgement(row)) else None),
        Column(f"{name}_verdict_words", lambda row: found.words if (found := judgement(row)) else None),
    )


_AGAINST = (
    Column("is_reference", lambda row: row.is_reference),
    Column("marks", lambda row: list(row.marks)),
    Column("not_ranked_reason", lambda row: row.not_ranked),
    Column("reference_device", lambda row: row.reference.key.device),
    Column("reference_precision", lambda row: row.reference.key.precision),
    Column("reference_runtime", lambda row: row.reference.key.runtime),
    Column("reference_runtime_version", lambda row: row.reference.key.runtime_version),
    Column("reference_threads", lambda row: row.reference.key.threads),
    Column("reference_batch", lambda row: row.reference.key.batch),
    Column("reference_model_sha256", lambda row: row.reference.key.model_sha256),
    Column("reference_choice", lambda row: row.choice),
    Column("reference_latency_p50_ms", lambda row: median_of(row.reference.p50_ms)),
    Column("reference_verdict", lambda row: row.reference.verdict),
    Column("latency_p50_ratio", lambda row: row.ratios.p50),
    Column("latency_p50_ratio_min", lambda row: row.ratios.p50_low),
    Column("latency_p50_ratio_max", lambda row: row.ratios.p50_high),
    *_bounds("latency_p50_ratio", lambda row: row.ratios.p50_interval),
    *_judged("latency", lambda row: row.judgements.latency),
    Column("latency_p90_ratio", lambda row: row.ratios.p90),
    Column("throughput_ratio", lambda row: row.ratios.throughput),
    *_bounds("throughput_ratio", lambda row: row.ratios.throughput_interval),
    *_judged("throughput", lambda row: row.judgements.throughput),
    Column("memory_peak_ratio", lambda row: row.ratios.peak_memory),
    Column("energy_gross_ratio", lambda row: row.ratios.energy_gross),
    *_bounds("energy_gross_ratio", lambda row: row.ratios.energy_gross_interval),
    *_judged("energy", lambda row: row.judgements.energy),
    Column("energy_net_ratio", lambda row: row.ratios.energy_net),
    *_bounds("energy_net_ratio", lambda row: row.ratios.energy_net_interval),
    Column("accuracy_difference", lambda row: row.ratios.accuracy_difference),
    *_bounds("accuracy_difference", lambda row: row.ratios.accuracy_interval),
    *_judged("accuracy", lambda row: row.judgements.accuracy),
    _of_case("first_started_at_ns", lambda case: case.around.first_started_at_ns),
    _of_case("last_started_at_ns", lambda case: case.newest.started_at_ns),
    _of_case("run_ids", lambda case: list(case.around.run_ids)),
    Column("reference_run_ids", lambda row: list(row.reference.around.run_ids)),
)

COLUMNS: tuple[Column, ...] = (*_IDENTITY, *_FIGURES, *_ENERGY, *_SURROUNDINGS, *_AGAINST)


def flat(row: Row) -> dict[str, Value]:
    """Return everything that a row carries, by column name."""
    return {column.name: column.value(row) for column in COLUMNS}


def to_json(comparison: Comparison) -> bytes:
    """Return `{"rows": [...], "left_out": [{"run": id, "reason": text}, ...]}`."""
    document = {"rows": [flat(row) for row in comparison.rows], "left_out": comparison.left_out}
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV (RFC 4180, header first), the same columns as in JSON."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.name for column in COLUMNS])
    writer.writerows([[_cell(value) for value in flat(row).values()] for row in rows])
    return text.getvalue()


def _cell(value: Value) -> Value:
    if isinstance(value, bool):
        return str(value).lower()
    return JOINT.join(value) if isinstance(value, list) else value
