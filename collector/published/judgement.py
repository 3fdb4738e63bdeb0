"""The judgement of a published figure: each piece of evidence in one sentence, and how the figure compares with own runs and other rows."""

from typing import Literal

import msgspec

from edgemeter.collector.published.row import PublishedRow

# impossible: what is stated contradicts physics, arithmetic or statistics. unclear: a bound would need a fact that is not stated.
PublishedState = Literal["impossible", "unclear", "plausible"]
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
    """One row, judged: impossible if any evidence is, plausible if a bound was checked and is not exceeded, else unclear."""

    row: PublishedRow
    evidence: tuple[Evidence, ...]
    comparisons: tuple[PublishedComparison, ...] = ()
    not_stated: tuple[str, ...] = ()

    @property
    def state(self) -> PublishedState:
        """The worst that any evidence says, where `plausible` outweighs what is merely unclear."""
        states = {entry.state for entry in self.evidence}
        return "impossible" if "impossible" in states else "plausible" if "plausible" in states else "unclear"

    @property
    def sentence(self) -> str:
        """The sentence of the evidence that decides."""
        return next((entry.sentence for entry in self.evidence if entry.state == self.state), "no bound is known for this figure")
