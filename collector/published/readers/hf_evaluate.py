"""Hugging Face `evaluate`: JSON that `evaluate.save` writes: scores, parameters and versions.

It has no place for the number of items: only where the writer added one (`num_samples`, `eval_samples`, ...) is a score a row. Parameters
that are read: `model`, `dataset`, `batch_size`. Read of release 0.4.6. Format: https://github.com/huggingface/evaluate
"""

from collections.abc import Mapping
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import parse_json
from edgemeter.collector.published import ReadTable, RowCollector

_SHARES = ("accuracy", "balanced_accuracy", "exact_match", "f1", "precision", "recall", "mean_iou", "overall_accuracy", "overall_f1")
_ITEMS = ("num_samples", "n_samples", "number_of_samples", "num_examples", "eval_samples", "predict_samples", "test_samples")
# What `evaluate.evaluator` adds: of the whole pipeline, processing of inputs and outputs included.
_TIMES = {"latency_in_seconds": ("latency-mean", "s", "mean"), "samples_per_second": ("throughput", "per s", None)}
_PARAMETERS = {"model", "dataset", "batch_size"}


class HfEvaluateReader:
    """Reads a file of `evaluate.save`."""

    def recognises(self, name: str, text: str) -> bool:
        """Return whether it is JSON with the version that `evaluate.save` adds."""
        return name.lower().endswith(".json") and '"_evaluate_version"' in text

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return a row for each score that is a share of a stated number of items, and for the times of an evaluator."""
        try:
            saved = parse_json(text)
        except ConfigError as error:
            raise ConfigError(f"not JSON: {error}: give the file as `evaluate.save` wrote it") from error
        if not isinstance(saved, dict):
            raise ConfigError(f"not a file of `evaluate.save`: {type(saved).__name__} in place of an object")
        collector = RowCollector(defaults)
        items = next((saved[name] for name in _ITEMS if _is_count(saved.get(name))), None)
        facts = _facts(saved)
        for name, value in saved.items():
            if name.startswith("_") or name in _PARAMETERS or name in _ITEMS:
                continue
            if name in _TIMES:
                figure, unit, statistic = _TIMES[name]
                collector.add(name, figure=figure, value=value, unit=unit, statistic=statistic, count=items, **facts)
            elif name not in _SHARES:
                collector.leave_out(name, "not known as a score that is a share of items")
            elif items is None:
                collector.leave_out(name, f"it states no number of items ({', '.join(_ITEMS)})")
            else:
                collector.add(name, figure="accuracy", value=value, unit="ratio", images=items, accuracy_metric=name, **facts)
        return collector.table()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _facts(saved: Mapping[str, Any]) -> dict[str, Any]:
    version, model, dataset = (saved.get(name) for name in ("_evaluate_version", "model", "dataset"))
    program = f"evaluate {version}" if isinstance(version, str) else "evaluate"
    data = dataset if isinstance(dataset, str) else None
    return {
        "model": model if isinstance(model, str) else None,
        "dataset": data,
        "batch": saved["batch_size"] if _is_count(saved.get("batch_size")) else None,
        "software": program,
        "conditions": f"{program}, {data}" if data else program,
    }
