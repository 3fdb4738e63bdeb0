"""The headline of a comparison: what is compared, what it comes to, and what to know before trusting the figures."""

import math
from operator import attrgetter

from edgemeter.agent.base import figures
from edgemeter.agent.base.evidence import FEWEST
from edgemeter.agent.contract.figures import figure
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.differences import better_of, deciding, speed_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.show.figure_words import change_with_interval, figure_text
from edgemeter.collector.show.sentence import decisions_text, figure_name
from edgemeter.collector.show.wording import listed, names, runtime_name

# With more devices than this the title counts them, and of so many cases the lead has the figures.
NAMED = 3


def title(comparison: Comparison) -> str:
    """Return the compared sides."""
    compared = [row for row in comparison.rows if not row.is_reference]
    references = names(row.reference.key.device for row in comparison.rows)
    devices = names(row.case.key.device for row in compared or comparison.rows)
    models = names(row.case.key.model for row in compared or comparison.rows)
    if not models:
        return "Nothing could be compared"
    is_short = len(devices) <= NAMED
    subject = f"{listed(models, NAMED)} on {listed(devices) if is_short else figures.count(len(devices), 'device')}"
    return f"{subject}, against {listed(references, NAMED)}" if compared and devices != references else subject


def lead(comparison: Comparison) -> str:
    """Return what the models come to on the devices: of a few the figures, of many which are nearest to the reference and farthest."""
    identity = attrgetter("fleet", "device", "model", "dataset_sha256", "scenario")
    compared = [row for row in comparison.rows if not row.is_reference]
    groups = grouped((identity(row.case.key), row) for row in compared or comparison.rows).values()
    fastest = [min(rows, key=lambda row: (row.not_ranked is not None, _duration(row.case))) for rows in groups]
    if len(fastest) <= NAMED:
        return " ".join(map(_sentence, fastest))
    ranked = sorted((row for row in fastest if _slowness(row) < math.inf), key=_slowness)
    if not compared or not ranked:
        return ""
    return f"Nearest to the reference, or ahead of it, comes {_speed(ranked[0])}. Farthest from it is {_speed(ranked[-1])}."


def cautions(comparison: Comparison) -> list[str]:
    """Return what a reader has to know before trusting the figures."""
    cases = [row.case for row in comparison.rows]
    few = sum(len(case.runs) < FEWEST for case in cases)
    disturbed = sum(case.disturbed > 0 for case in cases)
    changed = sum(case.segment is not None for case in cases)
    sentences = [
        (few, f"{figures.count(few, 'case')} of {len(cases)} with fewer than {FEWEST} runs: no interval."),
        (disturbed, f"{figures.count(disturbed, 'case')} of {len(cases)} disturbed: see why below."),
        (changed, f"The level of {figures.count(changed, 'case')} changed: only the runs since then count."),
        (comparison.left_out, f"Left out, with the reason below: {figures.count(len(comparison.left_out), 'run')}."),
    ]
    return [text for is_so, text in sentences if is_so]


def _duration(case: CaseSummary) -> float:
    """Return what stands for the time of a case, of a throughput its inverse; infinite where it has none."""
    name = speed_of(case)
    value = case.figures[name].value if name in case.figures else 0.0
    return math.inf if value <= 0 else value if better_of(name, case) == "lower" else 1 / value


def _slowness(row: ComparedCase) -> float:
    """Return how many times as slow as its reference a case is; infinite where its speed is not ranked or not compared."""
    is_compared = not row.not_ranked and speed_of(row.case) in deciding(row.case, row.reference)
    return _duration(row.case) / _duration(row.reference) if is_compared else math.inf


def _speed(row: ComparedCase) -> str:
    """Return the speed of a case, and how it differs from that of its reference."""
    case, name = row.case, speed_of(row.case)
    text = f"{case.key.device} with {case.key.model}, {case.key.precision} on {runtime_name(case)}: {_figure_text(case, name)}"
    change = row.decisions.get(name)
    if change is None:
        return text
    return f"{text}, {figures.typeset(change_with_interval(name, change))}"


def _figure_text(case: CaseSummary, name: str) -> str:
    return f"{figure_name(name, case)} {figure_text(figure(name), case.figures[name], figure(name).unit)}"


def _sentence(row: ComparedCase) -> str:
    """Return the figures of a case, and how they differ from those of its reference."""
    case, other = row.case, row.reference
    texts = [_figure_text(case, name) for name in deciding(case, case)]
    kind = f"{case.key.precision} on {runtime_name(case)}"
    text = f"{case.key.device} with {case.key.model}, {kind}: {', '.join(texts) or 'too few queries'}."
    if row.is_reference:
        return text
    against = f"{other.key.precision} on {runtime_name(other)}, {other.key.device}"
    return f"{text} Against {against}: {decisions_text(row)}."
