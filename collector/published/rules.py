"""The rules by which a published figure is judged, and what its reader would have to know and the source does not state."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from edgemeter.collector.published.consistency_rules import CONSISTENCY_RULES
from edgemeter.collector.published.energy_rules import ENERGY_RULES
from edgemeter.collector.published.judgement import Evidence
from edgemeter.collector.published.row import SIZE, PublishedRow
from edgemeter.collector.published.rule import JudgedRow, PublishedRule
from edgemeter.collector.published.speed_rules import SPEED_RULES
from edgemeter.collector.published.statistics_rules import STATISTICS_RULES

RULES: tuple[PublishedRule, ...] = (*SPEED_RULES, *ENERGY_RULES, *STATISTICS_RULES, *CONSISTENCY_RULES)

_GENERATED = frozenset({"tokens", "output-tokens", "user-tokens", "tpot", "ttft", "prefill-tokens", "goodput"})
_DECODED = frozenset({"tokens", "output-tokens", "user-tokens", "tpot"})
_TIMES = frozenset({"latency", "ttft", "tpot", "image-encode"})


def evidence_of(row: PublishedRow, companions: Sequence[PublishedRow]) -> tuple[Evidence, ...]:
    """Return what the rules find in a row, each with its arithmetic in one sentence; `companions` are the other rows of its case."""
    judged, ends = JudgedRow(row, companions), [("lower", row.low), ("upper", row.high)]
    further = {
        f"its {name} end, {end:g} {row.unit}": JudgedRow(msgspec.structs.replace(row, value=end, low=None, high=None), companions)
        for name, end in ends
        if end is not None and end != row.value
    }
    checked = ((rule, _with_ends(rule, rule.evidence(judged), further)) for rule in RULES)
    return tuple(msgspec.structs.replace(evidence, rule=rule.name) for rule, evidence in checked if evidence is not None)


def _with_ends(rule: PublishedRule, evidence: Evidence | None, ends: Mapping[str, JudgedRow]) -> Evidence | None:
    """Return the evidence, in doubt where an end of the range is impossible that the value is not."""
    if evidence and evidence.state == "impossible":
        return evidence
    for words, judged in ends.items():
        at_end = rule.evidence(judged)
        if at_end and at_end.state == "impossible":
            sentence = f"{evidence.sentence}; but {words}: {at_end.sentence}" if evidence else f"{words}: {at_end.sentence}"
            return msgspec.structs.replace(at_end, state="unclear", sentence=sentence)
    return evidence


def not_stated(row: PublishedRow) -> tuple[str, ...]:
    """Return in words which facts that bear on the figure the source does not state, the most important first."""
    return tuple(words for words, is_missing in _NOT_STATED if is_missing(row))


def _is_speed(row: PublishedRow) -> bool:
    return row.kind.unit in {"ms", "per s", "tokens/s"}


def _is_measured(row: PublishedRow) -> bool:
    return row.figure not in {SIZE, "accuracy"}


def _is_energy(row: PublishedRow) -> bool:
    return row.kind.unit in {"mJ", "W"}


_NOT_STATED: tuple[tuple[str, Callable[[PublishedRow], bool]], ...] = (
    ("the runtime", lambda row: row.runtime is None and row.figure != SIZE),
    ("the runtime's version", lambda row: row.software is None and _is_measured(row)),
    ("the backend (cores, GPU or NPU)", lambda row: row.backend is None and _is_measured(row)),
    ("the precision of the weights", lambda row: row.precision is None and JudgedRow(row).bits is None),
    ("the batch", lambda row: JudgedRow(row).users is None and (_is_speed(row) or row.kind.unit == "mJ")),
    ("whether decoding is speculative", lambda row: row.figure in _DECODED and JudgedRow(row).speculates is None),
    ("the length of the prompt", lambda row: row.prompt_tokens is None and row.figure in _GENERATED),
    ("the length of the answer", lambda row: row.output_tokens is None and row.figure in _GENERATED - {"ttft", "prefill-tokens"}),
    ("the size of the input", lambda row: _has_input(row) and JudgedRow(row).side(1 << 16) is None),
    ("the power mode", lambda row: row.power_mode is None and "jetson" in row.device.casefold() and (_is_speed(row) or _is_energy(row))),
    ("what the energy or power covers (wall, board, module, rails)", lambda row: row.scope is None and _is_energy(row)),
    ("whether it is a mean, a median or an extreme", lambda row: row.statistic is None and row.figure in _TIMES | {"power"}),
    ("the number of queries", lambda row: row.count is None and (_is_speed(row) or row.kind.unit == "mJ")),
    ("the number of items", lambda row: row.images is None and row.figure == "accuracy"),
    ("the dataset", lambda row: row.dataset is None and row.figure == "accuracy"),
    ("the metric", lambda row: row.accuracy_metric is None and row.figure == "accuracy"),
)


def _has_input(row: PublishedRow) -> bool:
    return row.figure in {"latency", "latency-mean", "throughput"} and JudgedRow(row).model is not None and row.prompt_tokens is None
