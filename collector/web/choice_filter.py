"""The filter above a comparison sets limits and the figure to minimise.

It has the outcome of each case, and which are shown.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from edgemeter.agent.base import number_text
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.collector.charts.chart import ViewTable
from edgemeter.collector.compare.choice import WORST_FIRST, Choice, ChoiceCandidate, choose
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.limits import parse_requirements
from edgemeter.collector.runs.figure_names import JUDGED, figure_called
from edgemeter.collector.show.words import (
    change_with_interval,
    listed,
    recommended_text,
    requirement_text,
    requirement_value,
)
from edgemeter.collector.web.view import FormInput, ViewColumn, ViewRequest

# With more cases than this, every interval would be too wide for a choice.
MOST_CASES = 400
# The syntax of limits.
HINT = "p99<=33ms, ap>=.74"
# The address parameter that hides cases that do not meet the limits.
HIDDEN = "met"


@dataclass(frozen=True)
class ChoiceFilter:
    """The choice in an address, and whether cases that do not meet the limits are hidden."""

    choice: Choice
    hides_not_met: bool

    @cached_property
    def _candidates(self) -> dict[int, ChoiceCandidate]:
        """The candidates by the identity of their case, best first."""
        return {id(candidate.case): candidate for candidate in self.choice.candidates}

    @property
    def sentence(self) -> str:
        """The recommended case with the reason, and similar ones."""
        text = recommended_text(self.choice)
        similar = (
            f" Similar: {listed([candidate.name for candidate in self.choice.similar])}."
            if self.choice.similar
            else ""
        )
        return f"{text[0].upper()}{text[1:]}.{similar}"

    def in_order(self, rows: Sequence[ComparedCase]) -> list[ComparedCase]:
        """Return the rows of the candidates, best first, without hidden ones."""
        by_case = {id(row.case): row for row in rows}
        hidden = "not met" if self.hides_not_met else None
        return [
            by_case[identity]
            for identity, candidate in self._candidates.items()
            if candidate.outcome != hidden
        ]

    @property
    def hidden(self) -> int:
        return (
            sum(candidate.outcome == "not met" for candidate in self.choice.candidates)
            if self.hides_not_met
            else 0
        )

    @property
    def column(self) -> ViewColumn[ComparedCase]:
        return ViewColumn(
            "requirements",
            "Limits" if self.choice.required.text else "Choice",
            self.outcome,
            is_text=True,
        )

    @property
    def table(self) -> ViewTable:
        """The outcome of each case in plain form."""
        columns = (
            "case",
            "device",
            "outcome",
            "is_recommended",
            "is_similar",
            "not_ranked_reason",
            "requirements",
        )
        rows = [
            (
                candidate.name,
                candidate.case.key.device,
                candidate.outcome,
                candidate is self.choice.recommended,
                self._is_similar(candidate),
                candidate.out or None,
                list(map(requirement_text, candidate.requirements)),
            )
            for candidate in self.choice.candidates
        ]
        return ViewTable("choice", columns, tuple(rows))

    def outcome(self, row: ComparedCase) -> str | None:
        """Return the outcome of a case, None if it is not a candidate."""
        candidate = self._candidates.get(id(row.case))
        if candidate is None:
            return None
        return "recommended" if candidate is self.choice.recommended else candidate.outcome

    def reasons(self, row: ComparedCase) -> list[str]:
        """Return the reasons for the outcome of a candidate.

        Its distance from the recommended one is returned too.
        """
        candidate = self._candidates[id(row.case)]
        # The requirement with the worst outcome decides; a met requirement needs no reason.
        deciding = min(
            candidate.requirements,
            key=lambda requirement: WORST_FIRST.index(requirement.outcome),
            default=None,
        )
        texts = [candidate.out]
        if deciding and deciding.outcome != "met" and not candidate.out:
            texts.append(f"{deciding.limit.text}: {requirement_value(deciding)}")
        best, cheapest = self.choice.recommended, self.choice.cheapest
        # A change against the reference is shown with the figure.
        if (
            candidate.against_best
            and best
            and not (row.reference is best.case and cheapest.name in row.decisions)
        ):
            change = change_with_interval(cheapest.name, candidate.against_best)
            texts.append(number_text.typeset(f"{cheapest.title} {change} against the recommended"))
        texts.append("similar" if self._is_similar(candidate) else "")
        return [text for text in texts if text]

    def is_met(self, row: ComparedCase) -> bool:
        """Return whether a candidate meets every limit."""
        return self._candidates[id(row.case)].outcome == "met"

    def _is_similar(self, candidate: ChoiceCandidate) -> bool:
        return any(other is candidate for other in self.choice.similar)


def choice_filter(
    request: ViewRequest, comparison: Comparison, picked: Collection[CaseKey]
) -> tuple[ChoiceFilter | None, str]:
    """Return the choice in an address, and the faults of its limits.

    The choice is among the rows whose cases were selected.
    """
    limits, cheapest = request.get("require"), request.get("cheapest")
    if not limits and not cheapest:
        return None, ""
    cases = [row.case for row in comparison.rows if row.boards or row.case.key in picked]
    if len(cases) > MOST_CASES:
        return (
            None,
            (
                f"There are {len(cases):,} cases: pick a model, a board or a device until at "
                f"most {MOST_CASES} are left."
            ),
        )
    try:
        figure = figure_called(cheapest, JUDGED.values()).name if cheapest else None
        return ChoiceFilter(
            choose(cases, parse_requirements(limits), figure), request.get("show") == HIDDEN
        ), ""
    except ConfigError as error:
        return None, f"{error}."


def choice_inputs(request: ViewRequest, comparison: Comparison) -> tuple[FormInput, ...]:
    """Return the fields of the form.

    They are the limits, the figure to minimise, and whether all cases are shown.
    """
    cases = [row.case for row in comparison.rows]
    valued = [
        entry for entry in JUDGED.values() if any(entry.name in case.figures for case in cases)
    ]
    cheapest = [("", "energy or latency"), *((entry.name, entry.title) for entry in valued)]
    visible = (("", "all cases"), (HIDDEN, "hide not met"))
    return (
        FormInput("require", "Limits", request.get("require"), HINT),
        FormInput("cheapest", "Keep cheapest", request.get("cheapest"), options=tuple(cheapest)),
        FormInput("show", "Show", request.get("show"), options=visible),
    )
