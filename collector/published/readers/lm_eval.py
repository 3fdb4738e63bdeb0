"""lm-evaluation-harness (EleutherAI): `results_*.json`, scores of a language model, each a ratio over the items of its task.

Only metrics that are such shares are read: a perplexity or a BLEU is no accuracy. A group is a mean of tasks and states no number of items.
Read of release 0.4.13. Format: https://github.com/EleutherAI/lm-evaluation-harness
"""

from collections.abc import Mapping
from typing import Any

from edgemeter.agent.quality.lm_eval_results import ImportedScore, parse_results
from edgemeter.collector.published import ReadTable, RowCollector

_SHARES = {
    "acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "em", "f1", "pass@1", "prompt_level_strict_acc",
    "inst_level_strict_acc", "prompt_level_loose_acc", "inst_level_loose_acc",
}  # fmt: skip


class LmEvalReader:
    """Reads `results_*.json`."""

    def recognises(self, name: str, text: str) -> bool:
        """Return whether it is JSON with results, versions of tasks, and shots."""
        return name.lower().endswith(".json") and all(f'"{key}"' in text for key in ("results", "versions", "n-shot"))

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return a row for each share of a task's items."""
        results, collector = parse_results(text), RowCollector(defaults)
        for score in results.scores:
            where = f"{score.task}, {score.metric},{score.filter}"
            if score.metric not in _SHARES:
                collector.leave_out(where, f"{score.metric!r} is not known as a share of items")
            elif score.items is None:
                collector.leave_out(where, "a group of tasks" if score.task in results.groups else "it states no number of items")
            else:
                collector.add(
                    where,
                    model=results.model_name,
                    figure="accuracy",
                    value=score.value,
                    unit="ratio",
                    standard_error=score.standard_error if (score.standard_error or 0) > 0 else None,
                    images=score.items,
                    dataset=score.task,
                    accuracy_metric=f"{score.metric},{score.filter}",
                    conditions=_conditions(score),
                    runtime=results.runtime,
                    software=results.source,
                    precision=results.precision,
                    parameters=results.parameters,
                    batch=results.batch,
                    backend=results.device,
                )
        return collector.table()


def _conditions(score: ImportedScore) -> str:
    words = (
        score.task if score.task_version is None else f"{score.task} version {score.task_version}",
        None if score.shots is None else f"{score.shots}-shot",
        None if score.filter == "none" else f"filter {score.filter}",
        f"{score.items} of {score.items_in_all} items" if score.items_in_all not in (None, score.items) else None,
    )
    return ", ".join(filter(None, words))
