"""The judgement of a published figure: each piece of evidence in one sentence, and how the figure compares with own runs and other rows."""

from typing import Literal

import msgspec

from edgemeter.collector.published.row import PublishedRow

# impossible: what is stated contradicts physics, arithmetic or statistics. unclear: a bound needs a fact that is not stated, or only such a
# fact would explain a bound that is exceeded.
PublishedState = Literal["impossible", "unclear", "plausible"]
_WEIGHT: dict[PublishedState, int] = {"impossible": 0, "plausible": 2, "unclear": 3}  # A doubt stands between the first two.
Agreement = Literal["agrees", "contradicts", "not settled", "not compared"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One check: `sentence` says what was compared, with the arithmetic and the source of the bound.

    `value` and `limit` are the two sides in `unit`; None where the check is no inequality, or lacks a fact.
    """

    rule: str
    state: PublishedState
    sentence: str
    value: float | None = None
    limit: float | None = None
    unit: str = ""

    @property
    def is_doubt(self) -> bool:
        """Whether a bound is exceeded, which only something that is not stated would explain; else unclear lacks a fact."""
        return self.state == "unclear" and self.limit is not None


class PublishedComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The figure against one own case, or another published row of the same case: `ratio` is published / other, with its 95% bounds.

    `differs` names what is not the same, or not stated, on the two sides.
    """

    kind: Literal["own run", "published row"]
    name: str
    outcome: Agreement
    sentence: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    differs: tuple[str, ...] = ()


class RowJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """One row, judged by the evidence that decides: an impossibility, else a doubt, else a bound that holds, else what lacks a fact.

    A doubt goes before a bound that holds: that a board can draw so much does not make an energy true that is too small.
    """

    row: PublishedRow
    evidence: tuple[Evidence, ...]
    comparisons: tuple[PublishedComparison, ...] = ()
    not_stated: tuple[str, ...] = ()
    further_comparisons: int = 0

    @property
    def state(self) -> PublishedState:
        """The state of the evidence that decides; unclear without any."""
        return self._deciding.state if self._deciding else "unclear"

    @property
    def sentence(self) -> str:
        """The sentence of the evidence that decides."""
        return self._deciding.sentence if self._deciding else "no bound is known for this figure"

    @property
    def _deciding(self) -> Evidence | None:
        return min(self.evidence, key=lambda entry: 1 if entry.is_doubt else _WEIGHT[entry.state], default=None)
