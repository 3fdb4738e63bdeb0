"""Conclusions in words: what the figures of a comparison support, and no more."""

import math
from collections.abc import Sequence
from operator import attrgetter

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import ACCURACY, ENERGY, LATENCY, Decision, percent
from edgemeter.agent.base.metrics import metric_name
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.wording import listed, names, runtime_name

REFERENCE = "the reference"


def _fastest(rows: Sequence[ComparisonRow]) -> ComparisonRow:
    """Return the case of the lowest p50, else the first one. A case that is not ranked only if there is no other."""
    return min(rows, key=lambda row: (row.not_ranked is not None, row.case.p50_ms.median if row.case.p50_ms else math.inf))


def title(comparison: Comparison) -> str:
    """Return the heading: the compared sides."""
    devices = names(row.case.key.device for row in comparison.rows if not row.is_reference)
    models = names(row.case.key.model for row in comparison.rows if not row.is_reference)
    references = names(row.reference.key.device for row in comparison.rows)
    if not devices:
        return f"{listed(references)}: nothing to compare with yet" if references else "Nothing could be compared"
    subject = f"{models[0]} on {listed(devices)}" if len(models) == 1 else f"{figures.count(len(models), 'model')} on {listed(devices)}"
    return subject if devices == references else f"{subject}, against {listed(references)}"


def conclusions(comparison: Comparison) -> list[str]:
    """Return what the models cost on the devices in sentences, the most important first."""
    identity = attrgetter("fleet", "device", "model", "dataset_sha256", "scenario")
    groups = list(grouped((identity(row.case.key), row) for row in comparison.rows if not row.is_reference).values())
    if not groups:
        return ["No device case matches a reference case; what was left out, and why, is listed below."]
    fastest = [_fastest(rows) for rows in groups]
    return [_speed(fastest[0]), *_accuracy(groups[0], fastest[0]), energy(fastest[0])] if len(groups) == 1 else _overall(fastest)


def cautions(comparison: Comparison) -> list[str]:
    """Return what a reader has to know before trusting the figures."""
    cases = [row.case for row in comparison.rows]
    sentences = []
    counts = [case.p50_ms.n for case in cases if case.p50_ms]
    if counts and max(counts) == 1:
        sentences.append("Each case was measured once: the run-to-run variation is unknown.")
    elif counts:
        runs = figures.count(max(counts), "run") if min(counts) == max(counts) else f"{min(counts)} to {max(counts)} runs"
        sentences.append(f"Each figure is the median over {runs}, each in its own process.")
    disturbed = sum(case.disturbed > 0 for case in cases)
    if disturbed:
        sentences.append(
            f"{disturbed} of {figures.count(len(cases), 'case')} {'is' if disturbed == 1 else 'are'} disturbed (marked ?): see why below."
        )
    changed = sum(case.segment is not None for case in cases)
    if changed:
        sentences.append(f"The level of {figures.count(changed, 'case')} changed: only the runs since then count, as the table says.")
    if comparison.left_out:
        sentences.append(f"Left out, with the reason below: {figures.count(len(comparison.left_out), 'run')}.")
    return sentences


def speed(row: ComparisonRow, against: str = "") -> str:
    """Return a case's latency against the reference's in words, as it was judged; `against` is what the reference is."""
    judged, reference = row.judgements[LATENCY], f"{REFERENCE} ({against})" if against else REFERENCE
    if judged is None or judged.decision.value is None:
        return f"with no ratio to {reference}"
    caution = f" ({judged.decision.caution})" if judged.decision.caution else ""
    return _decided(judged.decision, judged.decision.value, reference) + caution


def _decided(decision: Decision, ratio: float, reference: str) -> str:
    if decision.outcome == "alike":
        return f"as fast as {reference} within {percent(decision.matters)}"
    if decision.outcome == "not settled" and not decision.reason:
        return f"not settled against {reference} by these runs"
    factor = max(ratio, 1 / ratio)
    times = f"{figures.significant(factor, 2 if factor >= 2 else 3)} times as {'fast' if ratio < 1 else 'long'} as"
    if decision.outcome in ("not settled", "not judged"):
        return f"{times} {reference}, {decision.outcome}: {decision.reason}"
    doubt = "" if decision.is_beyond_margin else f", perhaps by less than the {percent(decision.matters)} that matter"
    return f"{times} {reference}{doubt}"


def energy(row: ComparisonRow) -> str:
    """Return what an inference costs in energy, or why that is not known."""
    measured, other = row.case.energy, row.reference.energy
    gross_mj, net_mj = row.case.gross_mj, row.case.spreads.get("energy_net_mj")
    if measured is None or gross_mj is None:
        return f"Its energy was not measured: {row.case.energy_reason}."
    gross = f"An inference costs {figures.with_uncertainty(gross_mj.median, row.case.gross_u_mj)} mJ gross ({measured.ranks_as})"
    net = f", {figures.with_uncertainty(net_mj.median, row.case.uncertainties.get('energy_net_mj'))} mJ net of idle" if net_mj else ""
    if (judged := row.judgements[ENERGY]) is not None:
        return f"{gross}{net}; gross that is {figures.significant(judged.decision.value, 2)} times {REFERENCE}'s ({judged.verdict})."
    if other is not None:
        return f"{gross}{net}; {REFERENCE}'s is of another scope or provenance ({other.ranks_as}), so the two are not compared."
    return f"{gross}{net}; {REFERENCE}'s energy was not measured."


def _speed(row: ComparisonRow) -> str:
    case, other = row.case, row.reference
    if case.p50_ms is None:
        return f"{case.key.device} ran {case.key.model} too few times for a median latency."
    how = f"{case.key.precision} on {runtime_name(case)}"
    against = f"{other.key.precision} on {runtime_name(other)}, {other.key.device}"
    doubtful = [*(["this figure"] if case.disturbed else []), *(["the reference's"] if other.disturbed and not row.is_reference else [])]
    disturbed = f" Disturbed: {' and '.join(doubtful)}." if doubtful else ""
    if row.not_ranked:
        return f"On {case.key.device} no case of {case.key.model} ranks: {row.not_ranked}."
    return (
        f"{case.key.device} runs {case.key.model} in {figures.significant(case.p50_ms.median)} ms at best (p50, {how}):"
        f" {speed(row, against)}.{disturbed}"
    )


def _accuracy(rows: Sequence[ComparisonRow], fastest: ComparisonRow) -> list[str]:
    accuracy, other = fastest.case.accuracy, fastest.reference.accuracy
    if accuracy is None:
        return [f"Its accuracy is unknown: {fastest.case.accuracy_reason}."]
    _, most_accurate = max(grouped((scored.gain, row) for row in rows if (scored := row.case.accuracy)).items())
    best = _fastest(most_accurate)
    name = metric_name(accuracy.metric)
    judged = fastest.judgements[ACCURACY]
    against = f" against {figures.accuracy(other.value.median)} of {REFERENCE} ({judged.verdict})" if other and judged else ""
    sentences = [f"Its {name} is {figures.accuracy(accuracy.value.median)}{against}."]
    highest = figures.accuracy(median_of(best.case.accuracy_value))
    if best is not fastest and best.case.p50_ms and highest != figures.accuracy(accuracy.value.median):
        how, p50_ms = f"{best.case.key.precision} on {runtime_name(best.case)}", figures.significant(best.case.p50_ms.median)
        sentences.append(f"The most accurate case, {how}, reaches {highest} in {p50_ms} ms.")
    return sentences


def _overall(fastest: Sequence[ComparisonRow]) -> list[str]:
    compared_rows = sorted((row for row in fastest if row.ratios.p50 is not None), key=lambda row: row.ratios.p50 or math.inf)
    if not compared_rows:
        return ["No latency could be compared: too few queries for a median."]
    nearest, farthest = compared_rows[0], compared_rows[-1]
    losses = [loss for row in compared_rows if (loss := row.ratios.values.get(ACCURACY)) is not None]
    sentences = [f"Nearest to {REFERENCE}, or ahead of it, comes {_case(nearest)}.", f"Farthest from it is {_case(farthest)}."]
    if losses:
        extremes = " to ".join(dict.fromkeys(figures.typeset(figures.difference(loss)) for loss in (min(losses), max(losses))))
        sentences.append(f"In accuracy these fastest cases differ from {REFERENCE} by {extremes}.")
    unmeasured = names(row.case.key.device for row in compared_rows if row.case.energy is None)
    if unmeasured:
        sentences.append(f"Energy was not measured on {listed(unmeasured)}.")
    return sentences


def _case(row: ComparisonRow) -> str:
    case = row.case
    how = speed(row)
    p50 = figures.significant(case.p50_ms.median) if case.p50_ms else figures.ABSENT
    doubted = ", disturbed" if case.disturbed else ""
    return f"{case.key.device} with {case.key.model}, {case.key.precision} on {runtime_name(case)}: {p50} ms (p50{doubted}), {how}"
