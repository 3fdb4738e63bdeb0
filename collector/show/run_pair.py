"""Two runs of one model against each other: the figures with their ratios, and the facts in which they differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import Decision
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.case_relation import relation
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare.judged_figures import ACCURACY, JUDGED
from edgemeter.collector.compare.judgement import (
    Ratios,
    SmallestDifferences,
    change_text,
    decide_figure,
    interval_text,
    ratios,
    why_not_compared,
)
from edgemeter.collector.compare.summary import CaseSummary, summarise
from edgemeter.collector.runs.cases import CaseRuns, unusable
from edgemeter.collector.show.run_facts import Facts, grouped_facts

NO_INTERVAL = "two runs support no interval of their ratio: how far runs of one case lie apart is not known from one run each"


@dataclass(frozen=True, slots=True)
class PairedFigure:
    """One figure of A and of B, with the 95% bounds that each record has; `decision` is B against A, else `reason` is why there is none."""

    name: str
    heading: str
    values: tuple[float | None, float | None]
    bounds: tuple[tuple[float, float] | None, tuple[float, float] | None]
    decision: Decision | None
    reason: str
    shown: Callable[[float | None], str]

    def text(self, side: int) -> str:
        """Return the value of A (0) or B (1) with its bounds."""
        ends = self.bounds[side]
        within = f" ({figures.span(*ends) if self.name != ACCURACY else ' to '.join(map(figures.accuracy, ends))})" if ends else ""
        return f"{self.shown(self.values[side])}{within}"

    @property
    def change(self) -> str:
        """B against A: a ratio as `1.07x`, of an accuracy the difference in points; empty where there is none."""
        value = self.decision.value if self.decision else None
        return "" if value is None else change_text(self.name, value)

    @property
    def interval(self) -> str:
        """The 95% interval of that, or why there is none."""
        if self.decision is None:
            return self.reason if None not in self.values else ""
        if self.decision.bounds is None:
            return self.decision.reason
        return interval_text(self.name, self.decision.bounds)


@dataclass(frozen=True, slots=True)
class FactPair:
    """A fact of A and of B in words, None where it is not reported; `group` is what it is about."""

    group: str
    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs: their figures, the facts that differ and those that are equal, and why no ratio is given (empty where one is)."""

    a: RunRecord
    b: RunRecord
    figures: tuple[PairedFigure, ...]
    differing: tuple[FactPair, ...]
    equal: tuple[FactPair, ...]
    no_ratio: str

    @property
    def is_one_case(self) -> bool:
        """Whether both are runs of one case."""
        return key_of(self.a) == key_of(self.b)


def pair_of(a: RunRecord, b: RunRecord) -> RunPair:
    """Return the two runs against each other; raises ConfigError if they are one run, or of two models."""
    if a.id == b.id:
        raise ConfigError(f"A and B are the same run, {a.id!r}: pick two")
    if a.model.name != b.model.name:
        raise ConfigError(
            f"run {a.id!r} is of {a.model.name} and run {b.id!r} of {b.model.name}: they do different work; pick two of one model"
        )
    facts = _fact_pairs(grouped_facts(a), grouped_facts(b))
    no_ratio = _why_no_ratio(a, b)
    sides = None if no_ratio else (_alone(a), _alone(b))
    return RunPair(
        a, b, _figures(a, b, sides), tuple(fact for fact in facts if fact.a != fact.b), tuple(fact for fact in facts if fact.a == fact.b),
        no_ratio,
    )  # fmt: skip


def decisions(a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> dict[str, Decision]:
    """Return the decision on every figure of `b` against `a` that has a ratio or a difference, by the names in options."""
    compared: Ratios = ratios(b, a)
    decided = {name: decide_figure(name, b, a, compared, matters.of(name)) for name in (*JUDGED, ACCURACY)}
    return {name: decision for name, decision in decided.items() if decision is not None}


def _why_no_ratio(a: RunRecord, b: RunRecord) -> str:
    unlike = relation(key_of(b), key_of(a)).unlike
    if unlike:
        named = [f"{field.name.replace('_', ' ')} ({field.text(key_of(a))} against {field.text(key_of(b))})" for field in unlike]
        return f"the runs differ in {', '.join(named)}, so no ratio of them means anything"
    reasons = [f"{side}: {reason}" for side, run in (("A", a), ("B", b)) if (reason := unusable(run))]
    return f"no ratio, because {'; '.join(reasons)}" if reasons else ""


def _alone(run: RunRecord) -> CaseSummary:
    return summarise(CaseRuns(key_of(run), (run,)))


def _figures(a: RunRecord, b: RunRecord, sides: tuple[CaseSummary, CaseSummary] | None) -> tuple[PairedFigure, ...]:
    decided = decisions(*sides, SmallestDifferences()) if sides else {}
    paired = [
        PairedFigure(
            name, entry.heading_with_unit, (entry.value(a), entry.value(b)), (entry.bounds(a), entry.bounds(b)),
            decided.get(name), _why_absent(name, sides), entry.shown,
        )
        for name, entry in JUDGED.items()
    ]  # fmt: skip
    scores = (a.accuracy, b.accuracy)
    metric = next((metric_name(score.metric) for score in scores if score), "")
    if metric and all(score is None or metric_name(score.metric) == metric for score in scores):
        values = tuple(None if score is None else score.value for score in scores)
        ends = tuple(None if score is None or score.low is None or score.high is None else (score.low, score.high) for score in scores)
        paired.append(PairedFigure(ACCURACY, metric, values, ends, decided.get(ACCURACY), _why_absent(ACCURACY, sides), figures.accuracy))  # type: ignore[arg-type]
    return tuple(figure for figure in paired if figure.values != (None, None))


def _why_absent(name: str, sides: tuple[CaseSummary, CaseSummary] | None) -> str:
    return why_not_compared(name, sides[1], sides[0]) if sides else ""


def _fact_pairs(of_a: dict[str, Facts], of_b: dict[str, Facts]) -> Sequence[FactPair]:
    pairs = [
        FactPair(group, name, of_a.get(group, {}).get(name), of_b.get(group, {}).get(name))
        for group in dict.fromkeys((*of_a, *of_b))
        for name in dict.fromkeys((*of_a.get(group, ()), *of_b.get(group, ())))
    ]
    return [pair for pair in pairs if pair.a is not None or pair.b is not None]
