"""The columns of a comparison: one row carries everything, the same in JSON and in CSV.

A row is flat. Names are snake_case and end in their unit; a name without one is a text, a count or a ratio. Every figure is the median over
the `runs` of the case; `*_min_*` and `*_max_*` are its range over runs, `*_low*` and `*_high*` bounds of 95% (`interval_over` says over
what). `reference_*` says what the row was compared with. A list (marks, reasons, run ids) is an array in JSON and joined by ` | ` in CSV;
absent is null in JSON and empty in CSV.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgemeter.agent.base.decision import LATENCY
from edgemeter.agent.base.documents import JOINT, Plain, csv_document, json_document
from edgemeter.agent.contract.figures import FIGURES, Figure, FigureView, Group
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow, answers_of
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.runs.figure_names import with_part


def _at(path: str) -> Callable[[ComparisonRow], Plain]:
    """Return what reads `case.energy.scope`, or `ratios.intervals.latency_p50_ms.0`; None where any part on the way is None."""
    parts = path.split(".")

    def value(row: ComparisonRow) -> Plain:
        result: Any = row
        for part in parts:
            if result is None:
                return None
            result = (
                result.get(part)
                if isinstance(result, Mapping)
                else result[int(part)]
                if isinstance(result, tuple)
                else getattr(result, part)
            )
        return list(result) if isinstance(result, tuple) else result

    return value


def _under(path: str, *names: str, prefix: str = "") -> dict[str, str]:
    return {f"{prefix}{name}": f"{path}.{name}" for name in names}


def _figures(*groups: Group) -> dict[str, Callable[[ComparisonRow], Plain]]:
    """Return the columns of the figures of these groups: the median, its range and bounds over runs, and the uncertainty of the meter."""
    return {name: value for entry in FIGURES if entry.group in groups for name, value in _of_figure(entry).items()}


def _of_figure(entry: Figure) -> dict[str, Callable[[ComparisonRow], Plain]]:
    parts = {"": "median", "_min": "low", "_max": "high", "_low": "interval.low", "_high": "interval.high"}
    # Of an accuracy the bounds are over the images.
    if entry.group == "accuracy":
        return {name: _at(f"case.accuracy.{field}") for name, field in _OF_ACCURACY.items()}
    selected = parts if FigureView.JUDGED in entry.views else {"": "median"}
    columns = {with_part(entry.name, suffix): _at(f"case.spreads.{entry.name}.{part}") for suffix, part in selected.items()}
    return columns | ({with_part(entry.name, "_u"): _at(f"case.uncertainties.{entry.name}")} if entry.u else {})


_OF_ACCURACY = {"accuracy_value": "value.median", "accuracy_low": "low", "accuracy_high": "high"}


def _compared() -> dict[str, str]:
    """Return the columns of the ratios: value, range over runs of the median latency, 95% interval, outcome and words."""
    columns: dict[str, str] = {}
    for name, entry in JUDGED.items():
        columns[entry.change_name] = f"ratios.values.{name}"
        if name == LATENCY:
            columns |= {f"{entry.change_name}_min": "ratios.p50_low", f"{entry.change_name}_max": "ratios.p50_high"}
        columns |= {f"{entry.change_name}_{end}": f"ratios.intervals.{name}.{index}" for index, end in enumerate(("low", "high"))}
        columns |= {f"{name}_outcome": f"judgements.{name}.outcome", f"{name}_words": f"judgements.{name}.words"}
    return columns


_PATHS: dict[str, str | Callable[[ComparisonRow], Plain]] = {
    **_under("case.key", "device", "fleet", "role", "model", "precision", "runtime", "runtime_package", "runtime_version", "backend"),
    **_under("case.key", "threads", "batch", "scenario", "target_per_s", "deadline", "together", "operating_point"),
    **_under("case.key", "concurrency", "task"),
    "dataset": "case.newest.dataset.name",
    "dataset_images": "case.newest.dataset.images",
    "dataset_sha256": "case.key.dataset_sha256",
    **_under("case.newest.model", "file", "size_bytes", prefix="model_"),
    "model_sha256": "case.key.model_sha256",
    "mode": lambda row: JOINT.join(row.case.around.modes),
    "provenance": "case.key.provenance",
    "runs": lambda row: len(row.case.runs),
    "level_since_ns": "case.segment.since_ns",
    "level_reason": "case.segment.reason",
    "earlier_runs": "case.segment.earlier",
    "interval_over": "case.throughput_per_s.interval.over",
    "interval_within": "case.throughput_per_s.interval.within",
    "queries": "case.around.queries",
    **_figures("latency", "throughput"),
    "prompt_tokens": "case.newest.generation.prompt_tokens",
    "output_tokens": "case.newest.generation.output_tokens",
    **_figures("generation", "preprocess", "postprocess", "cold_start", "memory"),
    "accuracy_metric": "case.accuracy.metric",
    **_figures("accuracy"),
    "accuracy_images": "case.accuracy.images",
    "accuracy_reason": "case.accuracy_reason",
    **_under("case.energy", "provenance", "sensor", "scope", "excludes", prefix="energy_"),
    **_figures("energy"),
    "energy_net_state": "case.energy.net_state",
    "energy_reason": "case.energy_reason",
    **_under("case.around.environment", "board", "cpu", "cores", "os", "kernel", "virtualisation", "governor", "power_mode", "agent"),
    "temperature_max_c": "case.around.hottest_c",
    "verdict": "case.verdict",
    "violations": "case.violations",
    "disturbed_runs": "case.disturbed",
    "is_reference": "is_reference",
    "marks": "marks",
    "not_ranked_reason": "not_ranked",
    **_under("reference.key", "device", "precision", "runtime", "runtime_version", "threads", "batch", "model_sha256", prefix="reference_"),
    "reference_choice": "choice",
    "reference_level_since_ns": "reference.segment.since_ns",
    "reference_latency_p50_ms": "reference.p50_ms.median",
    "reference_verdict": "reference.verdict",
    **_compared(),
    "first_started_at_ns": "case.around.first_started_at_ns",
    "last_started_at_ns": "case.newest.started_at_ns",
    "run_ids": lambda row: list(row.case.run_ids),
    "reference_run_ids": lambda row: list(row.reference.run_ids),
}
COLUMNS = {name: _at(path) if isinstance(path, str) else path for name, path in _PATHS.items()}


def flat(row: ComparisonRow) -> dict[str, Plain]:
    """Return all values of a row, by column name."""
    return {name: value(row) for name, value in COLUMNS.items()}


def to_json(comparison: Comparison) -> str:
    """Return `{"rows": [...], "left_out": [{"run": id, "reason": text}, ...]}`, with the `answer` of power modes, if there is one."""
    answers = answers_of(comparison)
    document = {"rows": [flat(row) for row in comparison.rows], "left_out": comparison.left_out}
    return json_document(document | ({"answer": answers} if answers else {}))


def to_csv(rows: Sequence[ComparisonRow]) -> str:
    """Return the rows as CSV, the same columns as in JSON."""
    return csv_document(list(COLUMNS), (flat(row).values() for row in rows))
