"""The gate of a change: by how much figures may be worse, and whether that is kept, broken or cannot be seen.

A limit passes where the whole interval of the change lies within it, fails where the whole interval lies beyond it, and is inconclusive
else. All limits of all cases are decided together (Holm). What the new side has lost fails. Where a limit is narrower than what matters
otherwise, it is what matters of the change that it limits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from edgemeter.agent.base.decision import ROUNDING, Decision, Scale, decide, holm
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import Better
from edgemeter.agent.contract.figures import ACCURACY, MEMORY
from edgemeter.collector.compare.differences import Margins, better_of, evidence_of, scale_of, speed_of, why_not_compared
from edgemeter.collector.compare.limits import SLOWER, GateLimit
from edgemeter.collector.compare.summary import CaseSummary

GateOutcome = Literal["pass", "fail", "inconclusive"]
WORST_FIRST: tuple[GateOutcome, ...] = ("fail", "inconclusive", "pass")


class _GatedCase(Protocol):
    """A case with its reference, as a comparison has them."""

    @property
    def case(self) -> CaseSummary: ...
    @property
    def reference(self) -> CaseSummary: ...
    @property
    def name(self) -> str: ...
    @property
    def margins(self) -> Margins: ...
    @property
    def is_reference(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class GateFinding:
    """A limit for a case, and its outcome: the change of the `figure` that decides it, None without one, and the reason for that."""

    limit: GateLimit
    case: str
    outcome: GateOutcome
    figure: str = ""
    change: Decision | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """The findings of a change, by limit and case; and what becomes of the check where they are inconclusive."""

    findings: tuple[GateFinding, ...]
    if_inconclusive: Literal["fail", "pass"] = "fail"

    @property
    def outcome(self) -> GateOutcome:
        """The worst of them; inconclusive where nothing was compared."""
        return min((finding.outcome for finding in self.findings), key=WORST_FIRST.index, default="inconclusive")

    @property
    def is_passed(self) -> bool:
        """Whether the check passes."""
        return (self.if_inconclusive if self.outcome == "inconclusive" else self.outcome) == "pass"


def judge(rows: Sequence[_GatedCase], limits: Sequence[GateLimit], lost: Sequence[tuple[str, str]] = ()) -> Gate:
    """Return what became of each limit for each compared case, and of the cases (name, reason) that the new side has lost.

    Raises:
        ConfigError: a limit on speed or energy would be judged across two boards.
    """
    compared = [row for row in rows if not row.is_reference]
    _refuse_other_boards(compared, limits)
    pairs = [(limit, row, speed_of(row.case) if limit.figure == SLOWER else limit.figure) for limit in limits for row in compared]
    reasons = [why_not_compared(name, row.case, row.reference) for _, row, name in pairs]
    evidences = [
        None if reason else evidence_of(name, row.case, row.reference) for (_, row, name), reason in zip(pairs, reasons, strict=True)
    ]
    distances = [
        evidence.shifted(_limit_on_scale(limit, name, row))
        for (limit, row, name), evidence in zip(pairs, evidences, strict=True)
        if evidence is not None
    ]
    confidences = iter(holm(distances))
    findings = []
    for (limit, row, name), reason, evidence in zip(pairs, reasons, evidences, strict=True):
        if evidence is None:
            findings.append(GateFinding(limit, row.name, "inconclusive", name, reason=reason))
            continue
        margin = min(row.margins.of(name), limit.by)
        limit_on_scale = _limit_on_scale(limit, name, row)
        change = decide(evidence, next(confidences), margin, better_of(name, row.case), scale_of(name))
        change = replace(change, limit=limit_on_scale)
        findings.append(GateFinding(limit, row.name, _outcome(change, limit_on_scale), name, change))
    findings += [GateFinding(limit, name, "fail", reason=reason) for limit in limits for name, reason in lost]
    return Gate(tuple(findings))


def worst_kept(limit: GateLimit, better: Better, scale: Scale) -> float:
    """Return the worst change that keeps a limit: a ratio or, in points, a difference."""
    by = limit.by if better == "lower" else -limit.by
    return by if scale == "points" else max(1 + by, 0.0)


def _limit_on_scale(limit: GateLimit, name: str, row: _GatedCase) -> float:
    """Return the largest change for the worse that a limit allows, on the scale of the evidence; negative where lower is worse."""
    worst = worst_kept(limit, better_of(name, row.case), scale_of(name))
    # What is above 0 falls by 100% at most.
    return worst if scale_of(name) == "points" else math.log(worst) if worst > 0 else -math.inf


def _outcome(change: Decision, limit: float) -> GateOutcome:
    bounds = change.evidence.bounds(change.confidence)
    if bounds is None:
        return "inconclusive"
    # Mirrored where lower is worse, so that what is worse lies above the limit.
    low, high = bounds if change.better == "lower" else (-bounds[1], -bounds[0])
    return "pass" if high <= abs(limit) + ROUNDING else "fail" if low > abs(limit) + ROUNDING else "inconclusive"


def _refuse_other_boards(rows: Sequence[_GatedCase], limits: Sequence[GateLimit]) -> None:
    """One board on each side does not tell a change from the spread of its type: at 2% one pair of seven breaks a limit of 3%."""
    limit = next((limit for limit in limits if limit.figure not in (MEMORY, ACCURACY)), None)
    other = next((row for row in rows if row.case.device != row.reference.device), None)
    if limit is not None and other is not None:
        raise ConfigError(
            f"{limit.text} cannot be judged across two boards ({other.reference.key.device} and {other.case.key.device}), because boards "
            "of one type differ by themselves: measure both sides on one board; memory and ap can be limited across boards"
        )
