"""MLPerf Inference's `summary_results.json`: official results, as rows to be judged.

Their source begins with `MLPerf`: by MLCommons' rules they are compared with no result of another origin. SingleStream states the 90th
percentile of latency, MultiStream the 99th of a query of eight samples. Power is of the whole system at the wall; an energy is taken where
the round states one of a sample, not of a query of eight. Accuracies are left out: the file does not say over how many items they are.
"""

from collections.abc import Mapping
from typing import Any

from edgemeter.collector.published import ReadTable, RowCollector
from edgemeter.collector.reference import mlperf

SOURCE = "MLPerf Inference"
_PERCENTILES = {"SingleStream": "p90", "MultiStream": "p99"}
_SAMPLES = {"MultiStream": 8}  # Of a query.
_RATES = {"samples_per_s": ("throughput", "per s"), "queries_per_s": ("throughput", "per s"), "tokens_per_s": ("output-tokens", "tokens/s")}


class MlperfInference:
    """Reads a round's results."""

    def recognises(self, name: str, text: str) -> bool:  # noqa: ARG002 - the text suffices
        """Return whether it is a list of objects with the keys of a round."""
        return text.lstrip().startswith("[") and '"Performance_Units"' in text and '"Scenario"' in text

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return the performance of each result, and its power or energy where stated."""
        collector = RowCollector(defaults)
        parsed = mlperf.parse(text, skip_refused=True)
        for words in (*parsed.refused, *parsed.repeated):
            collector.leave_out(*words.split(": ", 1))
        if parsed.dropped:
            collector.leave_out("file", f"{parsed.dropped} results that the round marks as faulty")
        if with_accuracy := sum(bool(row.accuracy) for row in parsed.rows):
            collector.leave_out("file", f"the accuracies of {with_accuracy} results: over how many items is not stated")
        for row in parsed.rows:
            _add(collector, row)
        return collector.table()


def _add(collector: RowCollector, row: mlperf.MlperfRow) -> None:
    chips = f"{row.accelerators} x {row.accelerator}" if row.accelerator and row.accelerators else row.accelerator or row.processor
    conditions = [row.id, row.submitter, row.suite, row.division, row.availability, row.scenario, chips]
    conditions += [f"model used: {row.used_model}"] * (row.used_model not in (None, row.model))
    conditions += ["inferred by the round from another result, not measured"] * row.is_inferred + [row.notes]
    facts = {
        "source": f"{SOURCE} {row.round}",
        "version": row.round,
        "stated_by": "vendor",
        "address": row.details if row.details.startswith("https://") else None,
        "model": row.model,
        "device": row.system or None,
        "software": row.software or None,
        "precision": row.weight_data_types or None,
        "batch": _SAMPLES.get(row.scenario) if row.measure == "latency_ms" else None,
        "conditions": " ".join(", ".join(filter(None, conditions)).split()),
    }
    where = f"line {row.line}, {row.scenario} of {row.model}"
    if row.measure != "latency_ms":
        figure, unit = _RATES[row.measure]
        collector.add(where, figure=figure, value=row.value, unit=unit, **facts)
    elif row.scenario in _PERCENTILES:
        percentile = _PERCENTILES[row.scenario]
        collector.add(where, figure=f"latency-{percentile}", statistic=percentile, value=row.value, unit="ms", **facts)
    else:
        collector.leave_out(where, "a latency of which no percentile is known")
    if row.power_unit == "watts":
        collector.add(f"{where}, power", figure="power", value=row.power_value, unit="W", scope="wall-ac", **facts)
    elif row.power_unit and row.scenario in _SAMPLES:
        collector.leave_out(f"{where}, energy", f"it is of a query of {_SAMPLES[row.scenario]} samples: no energy of an inference")
    elif row.power_unit:
        collector.add(f"{where}, energy", figure="energy", value=row.power_value, unit="mJ", scope="wall-ac", **facts)
