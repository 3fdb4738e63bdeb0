"""lm-evaluation-harness (EleutherAI): `results_*.json`, the scores of a language model, each a share of its task's items.

Only metrics that are such shares are read: a perplexity or a BLEU is no accuracy. A group is a mean of tasks and states no number of items.
Read of release 0.4.13; older ones name a metric `acc`, not `acc,none`. Format: https://github.com/EleutherAI/lm-evaluation-harness
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import ReadTable, RowCollector

_SHARES = {
    "acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "em", "f1", "pass@1", "prompt_level_strict_acc",
    "inst_level_strict_acc", "prompt_level_loose_acc", "inst_level_loose_acc",
}  # fmt: skip


class _Samples(msgspec.Struct):
    original: int | None = None
    effective: int | None = None


class _Config(msgspec.Struct):
    model: str | None = None
    model_dtype: str | None = None
    model_num_parameters: float | None = None
    batch_size: Any = None
    device: str | None = None


class _Results(msgspec.Struct):
    results: dict[str, dict[str, Any]]
    groups: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    shots: dict[str, int | None] = msgspec.field(default_factory=dict, name="n-shot")
    samples: dict[str, _Samples] = msgspec.field(default_factory=dict, name="n-samples")
    config: _Config = msgspec.field(default_factory=_Config)
    model_name: str | None = None
    lm_eval_version: str | None = None
    transformers_version: str | None = None


class LmEvalReader:
    """Reads `results_*.json`."""

    def recognises(self, name: str, text: str) -> bool:
        """Return whether it is JSON with results, versions of tasks, and shots."""
        return name.lower().endswith(".json") and all(f'"{key}"' in text for key in ("results", "versions", "n-shot"))

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return a row for each share of a task's items."""
        try:
            # Python's JSON: a score may be NaN.
            results = msgspec.convert(json.loads(text), _Results)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"not results of lm-evaluation-harness: {error}: give results_*.json as `lm_eval --output_path` wrote it"
            ) from error
        collector = RowCollector(defaults)
        run_facts = _run_facts(results)
        for task, scores in results.results.items():
            for name, value in scores.items():
                metric, _, selection = name.partition(",")
                if not isinstance(value, int | float) or metric.endswith("_stderr") or metric == "sample_len":
                    continue
                where = f"{task}, {name}"
                if metric not in _SHARES:
                    collector.leave_out(where, f"{metric!r} is not known as a share of items")
                elif (items := _items(results, task)) is None:
                    collector.leave_out(where, "a group of tasks" if task in results.groups else "it states no number of items")
                else:
                    error = scores.get(f"{metric}_stderr,{selection}" if selection else f"{metric}_stderr")
                    collector.add(
                        where,
                        figure="accuracy",
                        value=value,
                        unit="ratio",
                        standard_error=error if isinstance(error, int | float) and error > 0 else None,
                        images=items,
                        dataset=task,
                        accuracy_metric=name,
                        conditions=_conditions(results, task, selection),
                        **run_facts,
                    )
        return collector.table()


def _items(results: _Results, task: str) -> int | None:
    samples = results.samples.get(task)
    return samples.effective if samples else None


def _run_facts(results: _Results) -> dict[str, Any]:
    config = results.config
    versions = {"lm_eval": results.lm_eval_version, "transformers": results.transformers_version}
    is_number = str(config.batch_size).isdecimal() and int(config.batch_size) > 0
    return {
        "model": results.model_name or None,
        "runtime": config.model,
        "software": ", ".join(f"{name} {version}" for name, version in versions.items() if version and version != "N/A") or None,
        # Of a server, `device` is a default of this program.
        "backend": config.device if config.model_dtype else None,
        "precision": config.model_dtype.removeprefix("torch.") if config.model_dtype else None,
        "parameters": config.model_num_parameters if (config.model_num_parameters or 0) > 0 else None,
        "batch": int(config.batch_size) if is_number else None,
    }


def _conditions(results: _Results, task: str, selection: str) -> str:
    samples, version, shots = results.samples.get(task, _Samples()), results.versions.get(task), results.shots.get(task)
    is_part = samples.original is not None and samples.effective != samples.original
    words = (
        f"{task} version {version}" if version is not None else task,
        f"{shots}-shot" if shots is not None else None,
        f"filter {selection}" if selection not in ("", "none") else None,
        f"{samples.effective} of {samples.original} items" if is_part else None,
    )
    return ", ".join(filter(None, words))
