"""A published figure against own runs of its case, and against other published rows of it: as far as both sides state their conditions.

The own side is a case of the ledger, whose median no published figure enters. What one side does not state is compared, and named. Of
several own cases of a device that fit, or rows of another edition, the nearest is taken: a figure is read as favourably as it may be.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from edgemeter.agent.base.decision import ONE_DAY, Bounds, Decision, decide, percent
from edgemeter.agent.base.figures import count, significant, span
from edgemeter.agent.base.run_statistics import FEWEST, MATTERS_ACCURACY, MATTERS_RATIO, interval_of_ratio
from edgemeter.agent.contract.energy_provenance import MEASURED, group_provenance
from edgemeter.agent.contract.figures import FIGURES, Figure
from edgemeter.agent.contract.record_conditions import rule_of
from edgemeter.collector.compare.judgement import is_within_a_day
from edgemeter.collector.compare.spread import Spread, widened_interval
from edgemeter.collector.compare.summary import CaseSummary, spread_of_figure
from edgemeter.collector.published.conditions import ConditionDifferences, conditions_of, device_of, differences
from edgemeter.collector.published.judgement import Agreement, PublishedComparison
from edgemeter.collector.published.name_matching import device_name, model_name
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.published.rule import largest, smallest
from edgemeter.collector.runs.cases import grouped, named

# Published figures of one case agree within this: pages round, and state no interval.
ROWS_AGREE = 0.10
# MLCommons' messaging guidelines.
_APART = "MLPerf\N{TRADE MARK SIGN} results may only be compared with compatible MLPerf\N{TRADE MARK SIGN} results"
_ENTRIES = {entry.choice: entry for entry in FIGURES}
_LATENCY_OF = {"mean": "latency-mean", "p90": "latency-p90", "p99": "latency-p99"}
# Of one figure's comparisons with own runs, and with other rows, so many are written out: the nearest, and the farthest.
NEAREST, FARTHEST = 6, 2
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class _OwnFigure:
    """The figure of an own case that a published one is compared with; `note` says how the two are unlike."""

    entry: Figure
    spread: Spread
    bounds: Bounds | None
    why_open: str
    note: str


class OwnCases:
    """Own cases by the names of their models."""

    def __init__(self, summaries: Sequence[CaseSummary]) -> None:
        cases = [(case, _devices_of(case), conditions_of(case)) for case in summaries]
        self._cases = grouped((name, entry) for entry in cases for name in _model_names(entry[0]))

    def comparisons(self, row: PublishedRow) -> list[PublishedComparison]:
        """Return how a figure compares with the cases that are, or may be, of its case: the nearest of each device."""
        name, device = model_name(row.model).name, device_name(row.device).name
        cases = [entry for entry in self._cases.get(name, ()) if device in entry[1]] if name and device else []
        values = conditions_of(row) if cases else ()
        compared: list[tuple[CaseSummary, PublishedComparison]] = []
        refused: list[tuple[int, PublishedComparison]] = []
        for case, _, case_values in cases:
            differs = differences(row, values, case_values, is_case=True)
            figure = _own_figure(row, case)
            if (why := _why_not(row, case, differs)) or isinstance(figure, str):
                reason = why or str(figure)
                sentence = f"not compared with {named(case.key)}: {reason}"
                refused.append((len(differs.decisive), _comparison("own run", named(case.key), "not compared", sentence, differs)))
            else:
                compared.append((case, _against_case(row, case, figure, differs)))
        if not compared:
            return [min(refused, key=lambda pair: pair[0])[1]] if refused else []
        of_devices = grouped((case.device, comparison) for case, comparison in compared).values()
        return [_nearest(comparisons, "own cases that fit as far as stated") for comparisons in of_devices]


def few(entries: Sequence[Entry], distance_of: Callable[[Entry], float]) -> list[Entry]:
    """Return the nearest entries, and the farthest, in their order."""
    by_distance = sorted(range(len(entries)), key=lambda index: distance_of(entries[index]))
    indices = by_distance if len(entries) <= NEAREST + FARTHEST else [*by_distance[:NEAREST], *by_distance[-FARTHEST:]]
    return [entries[index] for index in sorted(indices)]


def _model_names(case: CaseSummary) -> set[str]:
    """Return the names of a case's model: of its file, and as a server states it."""
    served = (case.key.served_model or "").partition(", ")[0]
    return {model_name(name).name for name in (case.key.model, served) if name}


def _devices_of(case: CaseSummary) -> set[str]:
    """Return the names of the device that did the work: the user's own, and the board's, or that of an accelerator attached to it."""
    return {device_name(case.key.device).name, device_of(case).name}


def _why_not(row: PublishedRow, case: CaseSummary, differs: ConditionDifferences) -> str:
    """Return why a row is not compared with an own case; empty where it is."""
    key = case.key
    reasons = (
        (row.is_mlperf, _APART),
        (key.provenance != MEASURED, f"its runs are {key.provenance or 'not known to be measured'}"),
        (bool(differs.decisive), ", ".join(differs.decisive)),
        (key.target_per_s is not None, f"its queries came at a rate, {key.target_per_s} per s"),
        (bool(key.together), f"its runs are beside other models, {key.together}"),
        (key.samples_per_query > key.batch, f"each query had {key.samples_per_query} samples"),
    )
    return next((why for is_so, why in reasons if is_so), "")


def _own_figure(row: PublishedRow, case: CaseSummary) -> _OwnFigure | str:
    """Return what a case has of the figure, or why it has nothing to compare."""
    if row.kind.entry is None or row.kind.entry.group == "cold_start":
        # Each tool counts other steps as loading, and the caches of files decide.
        return f"own runs have no {row.kind.title}{', as others count it' if row.kind.entry else ''}"
    if row.figure == "accuracy":
        return _own_accuracy(row, case)
    entry, note = _entry_of(row, row.kind.entry)
    if entry is None:
        return note
    if why := _not_measured(entry, case):
        return why
    spread = spread_of_figure(case, entry)
    if spread is None or spread.median <= 0:
        return f"own runs have no {entry.title}: {entry.why_absent}"
    bounds, why_open = _bounds(entry, case, spread)
    return _OwnFigure(entry, spread, bounds, why_open, note)


def _not_measured(entry: Figure, case: CaseSummary) -> str:
    """Return why a figure of a case was not measured; empty where it was."""
    if entry.group == "energy" and case.energy is None:
        return f"own energy: {case.energy_reason}"
    provenances = {group_provenance(run, entry.provenance_group) or "unknown" for run in case.runs} - {MEASURED}
    return f"the provenance of its {entry.title} is {', '.join(sorted(provenances))}" if provenances else ""


def _own_accuracy(row: PublishedRow, case: CaseSummary) -> _OwnFigure | str:
    accuracy = case.accuracy
    if accuracy is None or row.kind.entry is None:
        return f"own accuracy: {case.accuracy_reason}"
    metric, data = row.accuracy_metric or "", case.newest.dataset.name
    is_one_metric = metric.casefold() == accuracy.metric or (accuracy.metric == "coco_ap" and "50-95" in metric)
    if not is_one_metric or (row.dataset or "").casefold() != data.casefold() or row.images != accuracy.images:
        published = f"{metric or 'no metric stated'} over {row.images or 'unstated'} images of {row.dataset or 'unstated data'}"
        return f"accuracies of other data or metrics: {published}, own {accuracy.metric} over {accuracy.images} images of {data}"
    low, high = accuracy.low, accuracy.high
    bounds = None if low is None or high is None or low <= 0 else (low, high)
    return _OwnFigure(row.kind.entry, accuracy.value, bounds, accuracy.interval_reason or "no bounds recorded", "")


def _entry_of(row: PublishedRow, entry: Figure) -> tuple[Figure | None, str]:
    """Return which own figure a published statistic is of, and how it is unlike; or None and why there is none."""
    statistic = row.statistic
    if row.figure == "latency" and statistic in _LATENCY_OF:
        return _ENTRIES[_LATENCY_OF[statistic]], ""
    if row.figure.removeprefix("latency-") == statistic or (row.figure == "memory" and statistic == "max"):
        return entry, ""
    if statistic not in (None, "mean", "median"):
        return None, f"own runs have no {statistic} of the {entry.title.removesuffix(' p50')}"
    is_median = entry.path.endswith(".p50_ms")
    if statistic is None:
        return entry, "statistic not stated (own: median)" if is_median else ""
    return entry, "" if is_median == (statistic == "median") else f"{statistic} against the own {'median' if is_median else 'mean'}"


def _bounds(entry: Figure, case: CaseSummary, spread: Spread) -> tuple[Bounds | None, str]:
    """Return the 95% bounds of an own median, of an energy or power with the meter's uncertainty; or why there are none."""
    if spread.interval is None:
        missing = max(FEWEST - spread.n, 0)
        return (
            None,
            f"{count(missing, 'run')} too few ({spread.n}; an interval takes {FEWEST})" if missing else "the runs lie too far apart",
        )
    bounds = spread.interval.low, spread.interval.high
    if entry.group != "energy":
        return bounds, ""
    u_value = case.uncertainties.get(entry.name)
    if not entry.u and case.gross_mj and case.gross_u_mj is not None:
        # Power is energy over time, which is known much better.
        u_value = spread.median * case.gross_u_mj / case.gross_mj.median
    return (None, "the meter's uncertainty is unknown") if u_value is None else (widened_interval(bounds, spread.median, u_value), "")


def _against_case(row: PublishedRow, case: CaseSummary, figure: _OwnFigure, differs: ConditionDifferences) -> PublishedComparison:
    value, unit = row.canonical
    spread, interval = figure.spread, figure.spread.interval
    ratio = value / spread.median
    bounds = interval_of_ratio(value, _range(row), spread.median, figure.bounds) if figure.bounds else None
    matters, is_accuracy = MATTERS_RATIO, figure.entry.choice == "accuracy"
    if is_accuracy:
        # What matters of accuracies are points.
        matters = MATTERS_ACCURACY / spread.median
    decision = decide(ratio, bounds, matters, reason=figure.why_open)
    if interval and not is_accuracy and is_within_a_day(row.figure, interval):
        decision = decision.of_one_day()
    reason = f"own runs of one day: measure on {FEWEST} days" if decision.reason == ONE_DAY else decision.reason
    over = interval.over if interval else count(spread.n, "run")
    statistic = "p50" if figure.entry.path.endswith(".p50_ms") else "median"
    sentence = (
        f"{as_published(row)} is {significant(ratio)} times the {significant(spread.median)} {unit} of {named(case.key)}"
        f" ({statistic} over {over}{f'; 95% of the ratio {span(*bounds)}' if bounds else ''})"
    )
    notes = [reason] if reason else []
    low, high = (math.log(bound / value) for bound in _range(row))
    if decision.outcome == "not settled" and not reason and high - low > 2 * matters:
        notes.append(f"with its rounding and range it may be {span(*_range(row))} {unit}")
    notes += [interval.suspicion] if interval and interval.suspicion else []
    # What is suspect accuses nobody.
    agreement = _agreement(decision, is_open=differs.is_open or bool(case.suspect))
    doubts = (figure.note, f"own runs are suspect: {', '.join(map(rule_of, case.verdict_reasons))}" if case.suspect else "")
    extended = ConditionDifferences(differs.decisive, (*differs.named, *filter(None, doubts)))
    return _comparison("own run", named(case.key), agreement, "; ".join([sentence, *notes]), extended, ratio, bounds)


def _agreement(decision: Decision, *, is_open: bool) -> Agreement:
    if decision.outcome == "alike":
        return "agrees"
    is_beyond = decision.outcome in ("lower", "higher") and decision.is_beyond_margin
    return "contradicts" if is_beyond and not is_open else "not settled"


def against_row(row: PublishedRow, other: PublishedRow, differs: ConditionDifferences, *, is_nearest: bool) -> PublishedComparison:
    """Return how a figure compares with another row; `is_nearest` of several of its edition."""
    ratio = row.canonical[0] / other.canonical[0]
    bounds = interval_of_ratio(row.canonical[0], _range(row), other.canonical[0], _range(other))
    outcome = _agreement(decide(ratio, bounds, ROWS_AGREE), is_open=differs.is_open)
    times = row.kind.entry.times if row.kind.entry else f"times the {row.kind.title}"
    if row.figure == "power":
        # Of a peak, as of a mean.
        times = "times the power"
    source = "the same source" if other.source == row.source else other.source
    sentence = f"{source} says {as_published(other)} ({other.version}, {other.date}): {significant(1 / ratio)} {times}"
    notes = [] if outcome != "agrees" else [f"within {percent(ROWS_AGREE)}"]
    unstated = [title for title, values in _NAMED_ABSENT.items() if not any(getattr(side, values) for side in (row, other))]
    absent = [f"{' and '.join(unstated)} stated on neither side"] if unstated and outcome != "agrees" else []
    notes += ["the nearest of several rows of that edition that fit as far as stated"] if is_nearest else []
    extended = ConditionDifferences((), (*differs.named, *absent))
    return _comparison("published row", other.key, outcome, "; ".join([sentence, *notes]), extended, ratio, bounds)


# What changes a figure most often between two editions.
_NAMED_ABSENT = {"software": "software", "power mode": "power_mode"}


def _nearest(comparisons: Sequence[PublishedComparison], kind: str) -> PublishedComparison:
    """Return the comparison whose ratio is nearest to 1, and say of how many."""
    nearest = min(comparisons, key=distance)
    if len(comparisons) == 1:
        return nearest
    return msgspec.structs.replace(nearest, sentence=f"{nearest.sentence}; the nearest of {len(comparisons)} {kind}")


def distance(comparison: PublishedComparison) -> float:
    """Return how far the ratio is from 1, on a logarithmic scale."""
    return abs(math.log(comparison.ratio or math.inf))


def _range(row: PublishedRow) -> Bounds:
    """Return the values that a published figure may stand for, in our unit; above 0, as every figure is.

    A range beside a mean, a median or a percentile is that of the queries.
    """
    figure = row if row.statistic is None else msgspec.structs.replace(row, low=None, high=None)
    low, high = smallest(figure), largest(figure)
    return low if low > 0 else high * 1e-6, high


def as_published(row: PublishedRow, title: str = "") -> str:
    """Return a figure with its unit, title and range as its source states them: `20 t/s decoding rate (18 to 22)`."""
    low_high = f"({row.low:g} to {row.high:g})" if row.low is not None and row.high is not None else ""
    return " ".join(filter(None, (f"{row.value:g} {row.unit}", title, low_high)))


def _comparison(
    kind: Literal["own run", "published row"],
    name: str,
    outcome: Agreement,
    sentence: str,
    differs: ConditionDifferences,
    ratio: float | None = None,
    bounds: Bounds | None = None,
) -> PublishedComparison:
    low, high = bounds or (None, None)
    text = f"{sentence}; {'; '.join(differs.named)}" if differs.named and ratio is not None else sentence
    return PublishedComparison(
        kind=kind,
        name=name,
        outcome=outcome,
        sentence=text,
        ratio=ratio,
        low=low,
        high=high,
        differs=(*differs.decisive, *differs.named),
    )
