"""The columns of a comparison: one row has everything, the same in JSON and in CSV.

A row is flat; `case` is its name in the result. Names are snake_case and end in their unit; a name
without one is a text, a count or a ratio. Every figure is the mean over the `runs` of the case that
count, with bounds of 95% over runs (`*_low*`, `*_high*`), for accuracies over images. A decided
figure has its change against the reference with the deciding interval, the outcome, the confidence
and about how many more runs would decide it. `reference_*` describes the reference. A list (marks,
reasons, run ids) is an array in JSON and joined by ` | ` in CSV; absent is null in JSON and empty
in CSV.
"""

from collections.abc import Callable, Mapping
from typing import Any

from edgemeter.agent.base.decision import Decision
from edgemeter.agent.base.documents import JOINT, Plain, csv_document, json_document
from edgemeter.agent.contract.figures import FIGURES, Figure, FigureView, Group
from edgemeter.collector.compare.choice import Choice, Requirement
from edgemeter.collector.compare.comparison import ComparedCase, Comparison, GateFinding, answers_of
from edgemeter.collector.compare.summary import OF_CALLS, OF_TEXT
from edgemeter.collector.runs.figure_names import JUDGED, with_part


def _at(path: str) -> Callable[[ComparedCase], Plain]:
    """Return a function that reads a path, None if any part of it is None.

    Paths are such as `case.energy.scope` or `decisions.latency_p50_ms.low`.
    """
    parts = path.split(".")

    def value(row: ComparedCase) -> Plain:
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


def _figures(*groups: Group) -> dict[str, Callable[[ComparedCase], Plain]]:
    """Return the columns of the figures of these groups.

    They are the value, its bounds over runs, and the uncertainty of the meter.
    """
    return {
        name: value
        for entry in FIGURES
        if entry.group in groups
        for name, value in _of_figure(entry).items()
    }


def _of_figure(entry: Figure) -> dict[str, Callable[[ComparedCase], Plain]]:
    parts = (
        {"": "value", "_low": "low", "_high": "high"}
        if FigureView.JUDGED in entry.views
        else {"": "value"}
    )
    parts |= {"_u": "u"} if entry.u else {}
    return {
        with_part(entry.name, suffix): _at(f"case.figures.{entry.name}.{part}")
        for suffix, part in parts.items()
    }


def _compared() -> dict[str, str]:
    """Return the columns of decided figures.

    They are the change with its interval, outcome, confidence, and runs that would decide it.
    """
    columns: dict[str, str] = {}
    for name in dict.fromkeys((*OF_CALLS, *OF_TEXT)):
        entry = JUDGED[name]
        columns[entry.change_name] = f"decisions.{name}.value"
        columns |= {
            f"{entry.change_name}_{end}": f"decisions.{name}.{end}" for end in ("low", "high")
        }
        columns |= {
            f"{name}_{part}": f"decisions.{name}.{part}"
            for part in ("outcome", "confidence", "further")
        }
    return columns


_PATHS: dict[str, str | Callable[[ComparedCase], Plain]] = {
    "case": "name",
    **_under(
        "case.key",
        "device",
        "fleet",
        "role",
        "model",
        "precision",
        "runtime",
        "runtime_package",
        "runtime_version",
        "backend",
    ),
    **_under(
        "case.key",
        "threads",
        "batch",
        "scenario",
        "target_per_s",
        "deadline",
        "together",
        "operating_point",
    ),
    **_under("case.key", "concurrency", "task"),
    "dataset": "case.subject.dataset.name",
    "dataset_images": "case.subject.dataset.images",
    "dataset_sha256": "case.key.dataset_sha256",
    **_under("case.subject.model", "file", "size_bytes", prefix="model_"),
    "model_sha256": "case.key.model_sha256",
    "mode": lambda row: JOINT.join(row.case.around.modes),
    "provenance": "case.key.provenance",
    "runs": lambda row: len(row.case.verdicts),
    "level_since_ns": "case.segment.since_ns",
    "level_reason": "case.segment.reason",
    "earlier_runs": "case.segment.earlier",
    "interval_units": "case.figures.throughput_per_s.evidence.units",
    "interval_unit": "case.figures.throughput_per_s.evidence.unit",
    "queries": "case.around.queries",
    **_figures("latency", "throughput"),
    **_under("case.generation", "prompt_tokens", "output_tokens"),
    **_figures("generation", "preprocess", "postprocess", "cold_start", "memory"),
    "accuracy_metric": "case.accuracy.metric",
    **_figures("accuracy"),
    "accuracy_images": "case.accuracy.images",
    "accuracy_reason": "case.accuracy_reason",
    **_under("case.energy", "provenance", "sensor", "scope", "excludes", prefix="energy_"),
    **_figures("energy"),
    "energy_net_state": "case.net_state",
    "energy_reason": "case.energy_reason",
    **_under(
        "case.around.environment",
        "board",
        "cpu",
        "cores",
        "os",
        "kernel",
        "virtualisation",
        "governor",
        "power_mode",
        "agent",
    ),
    "temperature_max_c": "case.around.hottest_c",
    "verdict": "case.verdict",
    "violations": "case.violations",
    "disturbed_runs": "case.disturbed",
    "not_counted_runs": "case.not_counted",
    "is_reference": "is_reference",
    "marks": "marks",
    "not_ranked_reason": "not_ranked",
    **_under(
        "reference.key",
        "device",
        "precision",
        "runtime",
        "runtime_version",
        "threads",
        "batch",
        "model_sha256",
        prefix="reference_",
    ),
    "reference_choice": "choice",
    "reference_level_since_ns": "reference.segment.since_ns",
    "reference_latency_p50_ms": "reference.p50_ms.value",
    "reference_verdict": "reference.verdict",
    **_compared(),
    "first_started_at_ns": "case.around.first_started_at_ns",
    "last_started_at_ns": "case.last_started_at_ns",
    "run_ids": "case.run_ids",
    "reference_run_ids": "reference.run_ids",
}
COLUMNS = {name: _at(path) if isinstance(path, str) else path for name, path in _PATHS.items()}


def flat(row: ComparedCase) -> dict[str, Plain]:
    return {name: value(row) for name, value in COLUMNS.items()}


def to_json(comparison: Comparison) -> str:
    """Return the comparison as JSON.

    It is `{"rows": [...], "left_out": [{"run": id, "reason": text}, ...]}`, with the `choice`, the
    `gate` and the `answer` of power modes, if there are any.
    """
    document: dict[str, object] = {
        "rows": [flat(row) for row in comparison.rows],
        "left_out": comparison.left_out,
    }
    if comparison.choice:
        document["choice"] = _choice_document(comparison.choice)
    if comparison.gate:
        document["gate"] = {
            "outcome": comparison.gate.outcome,
            "findings": list(map(_finding_document, comparison.gate.findings)),
        }
    answers = answers_of(comparison)
    return json_document(document | ({"answer": answers} if answers else {}))


def to_csv(comparison: Comparison) -> str:
    """Return the rows as CSV, with the columns of JSON.

    With a choice they have the outcomes of the requirements and whether a case is recommended.
    """
    choice = comparison.choice
    outcomes = (
        {id(candidate.case): candidate.outcome for candidate in choice.candidates} if choice else {}
    )
    recommended = choice.recommended.case if choice and choice.recommended else None
    header = [*COLUMNS, *(("requirements", "is_recommended") if choice else ())]
    return csv_document(
        header,
        (
            [
                *flat(row).values(),
                *((outcomes.get(id(row.case)), row.case is recommended) if choice else ()),
            ]
            for row in comparison.rows
        ),
    )


def _choice_document(choice: Choice) -> dict[str, object]:
    return {
        "required": choice.required.text,
        "cheapest": choice.cheapest.name,
        "recommended": choice.recommended.name if choice.recommended else None,
        "similar": [candidate.name for candidate in choice.similar],
        "other_cases": choice.unlike,
        "candidates": [
            {
                "case": candidate.name,
                "outcome": candidate.outcome,
                "reason": candidate.out or None,
                "requirements": list(map(_requirement_document, candidate.requirements)),
                "against_best": _decided(candidate.against_best),
            }
            for candidate in choice.candidates
        ],
    }


def _requirement_document(requirement: Requirement) -> dict[str, Plain]:
    limit = {"limit": requirement.limit.text, "figure": requirement.limit.figure.name}
    return {**limit, **(_decided(requirement) or {}), "reason": requirement.reason or None}


def _finding_document(finding: GateFinding) -> dict[str, object]:
    facts = {
        "limit": finding.limit.text,
        "case": finding.case,
        "figure": finding.figure,
        "outcome": finding.outcome,
    }
    return {**facts, "change": _decided(finding.change), "reason": finding.reason or None}


def _decided(decided: Decision | Requirement | None) -> dict[str, Plain] | None:
    names = ("outcome", "value", "low", "high", "confidence", "further")
    return None if decided is None else {name: getattr(decided, name) for name in names}
