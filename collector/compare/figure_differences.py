"""The difference of two cases.

This says whether a figure can be compared, what the evidence of the runs is, and what is decided in
one comparison.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from edgemeter.agent.base.decision import (
    ALPHA,
    MATTERS_ACCURACY,
    MATTERS_RATIO,
    MATTERS_SHARE,
    Decision,
    Scale,
    decide,
    holm,
)
from edgemeter.agent.base.evidence import Evidence, accuracy_difference, difference
from edgemeter.agent.base.metrics import Better
from edgemeter.agent.contract.figures import (
    ACCURACY,
    ENERGY,
    LATENCY,
    MISSED,
    THROUGHPUT,
    TOKEN_ENERGY,
    Figure,
)
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare.case_figure import scaled
from edgemeter.collector.compare.summary import OF_TEXT, CaseSummary
from edgemeter.collector.runs.figure_names import JUDGED
from edgemeter.collector.runs.relation import why_other_load

# Figures of whole queries in a record; for generated text they compare only if the answers have
# equal lengths.
_OF_WHOLE_QUERIES = ("latency.", "throughput_per_s", "energy.")
Key = TypeVar("Key", bound=Hashable)


def margin_of(name: str, matters_ratio: float) -> float:
    """Return the smallest difference of a figure that matters.

    It is this ratio, for accuracies and shares in points (0..1).
    """
    return (
        MATTERS_ACCURACY
        if name == ACCURACY
        else MATTERS_SHARE
        if scale_of(name) == "points"
        else matters_ratio
    )


def scale_of(name: str) -> Scale:
    """Return how two values of a figure differ: by their ratio, accuracies and shares by points."""
    return "points" if name == ACCURACY or JUDGED[name].is_share else "ratio"


def speed_of(case: CaseSummary) -> str:
    """Return the name of the figure that is a case's speed: throughput for an offline load."""
    return THROUGHPUT if case.key.scenario == "offline" else LATENCY


def deciding(case: CaseSummary, reference: CaseSummary) -> list[str]:
    """Return the names of the compared figures that both cases have.

    The most important comes first.
    """
    if case.generates and reference.generates:
        names = list(OF_TEXT)
    else:
        missed = [MISSED] if case.key.scenario == reference.key.scenario == "steady" else []
        names = [*missed, speed_of(case), ACCURACY, ENERGY]
    return [name for name in names if not why_not_compared(name, case, reference)]


def better_of(name: str, case: CaseSummary) -> Better:
    """Return which way a figure is better, an accuracy by its metric."""
    if name == ACCURACY and case.accuracy:
        return case.accuracy.better
    return "higher" if JUDGED[name].better == "higher" else "lower"


def why_not_compared(name: str, case: CaseSummary, reference: CaseSummary) -> str:
    """Return why a figure of two cases cannot be compared; empty if it can."""
    if name == ACCURACY:
        if case.accuracy and reference.accuracy:
            return (
                ""
                if case.accuracy.measure == reference.accuracy.measure
                else "not the same metric on the same images"
            )
        return reference.accuracy_reason or case.accuracy_reason or "not scored"
    entry = JUDGED[name]
    figure, other = case.figures.get(name), reference.figures.get(name)
    if figure is None or other is None:
        lacking = reference if other is None else case
        return (lacking.energy_reason if entry.group == "energy" else None) or entry.why_absent
    if entry.group == "energy" and not energies_rank(case, reference):
        classes = [str(side.energy.ranks_as) for side in (reference, case) if side.energy]
        return f"{' against '.join(classes)}: these energies are not comparable"
    unknown_meter = (
        bool(entry.u) and not is_one_meter(case, reference) and None in (figure.u, other.u)
    )
    if unknown_meter or (scale_of(name) == "ratio" and not (figure.has_ratio and other.has_ratio)):
        return (
            "the uncertainty of a meter is unknown"
            if unknown_meter
            else "one side is 0, which has no ratio"
        )
    return _other_work(entry, case, reference)


def evidence_of(name: str, case: CaseSummary, reference: CaseSummary) -> Evidence:
    """Return the evidence of the runs on the difference of a comparable figure."""
    if name == ACCURACY and case.accuracy and reference.accuracy:
        parts, other = case.accuracy.without_parts, reference.accuracy.without_parts
        if len(parts) == len(other) > 1:
            return accuracy_difference(parts, other, case.accuracy.value - reference.accuracy.value)
        return case.accuracy.evidence.minus(reference.accuracy.evidence)
    figure, other_figure = case.figures[name], reference.figures[name]
    if case.device != reference.device and "run" not in (
        figure.evidence.unit,
        other_figure.evidence.unit,
    ):
        # Runs of two devices are not paired: those of many days need not be read.
        evidence = figure.evidence.minus(other_figure.evidence)
    else:
        evidence = difference(
            *(scaled(side.run_values(name), figure.scale) for side in (case, reference))
        )
    if JUDGED[name].u and not is_one_meter(case, reference):
        evidence = evidence.with_error(figure.meter_error).with_error(other_figure.meter_error)
    shares = case.counted_ratio, reference.counted_ratio
    # A pair is lost with either of its runs.
    return replace(
        evidence,
        counted_ratio={"pair": shares[0] * shares[1], "run": min(shares)}.get(evidence.unit, 1.0),
    )


class Contrast(NamedTuple):
    """A figure, by its name, of a case against a reference."""

    name: str
    case: CaseSummary
    reference: CaseSummary


def decided(
    contrasts: Mapping[Key, Contrast],
    matters_ratio: float,
    alpha: float = ALPHA,
) -> dict[Key, Decision]:
    """Return the decisions on contrasts that are taken together."""
    evidences = [evidence_of(*contrast) for contrast in contrasts.values()]
    confidences = holm(evidences, alpha)
    return {
        key: decide(
            evidence,
            confidence,
            margin_of(contrast.name, matters_ratio),
            better_of(contrast.name, contrast.case),
            scale_of(contrast.name),
        )
        for (key, contrast), evidence, confidence in zip(
            contrasts.items(), evidences, confidences, strict=True
        )
    }


def energies_rank(case: CaseSummary, reference: CaseSummary) -> bool:
    """Return whether both have an energy of one scope and provenance.

    Then the two may be ranked together.
    """
    energy, other = case.energy, reference.energy
    return energy is not None and other is not None and energy.ranks_as == other.ranks_as


def is_one_meter(case: CaseSummary, reference: CaseSummary) -> bool:
    """Return whether one meter measured both, so that its error cancels in the ratio."""
    energy, other = case.energy, reference.energy
    return (
        energy is not None
        and other is not None
        and energy.sensor == other.sensor
        and case.device == reference.device
    )


def _other_work(entry: Figure, case: CaseSummary, reference: CaseSummary) -> str:
    """Return why a figure cannot be compared, empty if it can.

    The reason is another load or other generated text.
    """
    if entry.group != "memory" and (why := why_other_load(case.key, reference.key)):
        return why
    if not (case.generates and reference.generates):
        return ""
    runs = reference.newest, case.newest
    # The energy per token contains the prefill, a smaller part of it in longer answers.
    is_of_other_lengths = (
        entry.name == TOKEN_ENERGY and case.key.output_tokens != reference.key.output_tokens
    )
    if is_of_other_lengths or entry.path.startswith(_OF_WHOLE_QUERIES):
        return _other_prompts(*runs) or _other_lengths(*runs)
    return _other_prompts(*runs) if entry.path.startswith("generation.") else ""


def _other_prompts(first: RunRecord, other: RunRecord) -> str:
    """Return why two runs used different prompts of one file.

    It is empty if both used all of them equally often, or the same ones.
    """
    if (
        first.generation is None
        or other.generation is None
        or first.generation.prompts_sha256 is None
    ):
        return ""
    if first.generation.prompts_sha256 != other.generation.prompts_sha256:
        return ""
    prompts = first.dataset.images
    # The order, and a random subset, depend on the case's seed, to which a run adds its repeat.
    if (prompts, first.seed - first.repeat) != (other.dataset.images, other.seed - other.repeat):
        return "another subset or order of the file was used"
    counts = [
        run.latency.count + (run.load.failed_queries if run.load else 0) for run in (first, other)
    ]
    if counts[0] == counts[1] or not any(count % max(prompts, 1) for count in counts):
        return ""
    return (
        f"{counts[1]} against {counts[0]} queries use other prompts of a file of {prompts}: "
        "choose a --subset that each run uses in full"
    )


def _other_lengths(first: RunRecord, other: RunRecord) -> str:
    """Return why whole queries of two runs are different work.

    The lengths of the answers differ; it is empty if they are about as long.
    """
    if first.generation is None or other.generation is None:
        return ""
    tokens = first.generation.mean_output_tokens, other.generation.mean_output_tokens
    if abs(tokens[1] - tokens[0]) <= MATTERS_RATIO * tokens[0]:
        return ""
    return (
        f"answers of {tokens[1]:.4g} against {tokens[0]:.4g} tokens on average are other work: "
        "compare TPOT"
    )
