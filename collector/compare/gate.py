"""The gate of a change.

It says how much figures may get worse, and whether they pass, fail or are inconclusive. A limit
passes if the whole interval of the change is within it, fails if the whole interval is beyond it,
and is inconclusive otherwise. All limits of all cases are decided together (Holm). A lost case
fails. If a limit is smaller than the smallest difference that matters, it replaces it for that
change.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from edgemeter.agent.base.decision import ROUNDING, Decision, Scale, decide, holm
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import Better
from edgemeter.agent.contract.figures import ACCURACY, MEMORY
from edgemeter.collector.compare.comparison import (
    ComparedCase,
    Comparison,
    Gate,
    GateFinding,
    GateOutcome,
)
from edgemeter.collector.compare.figure_differences import (
    better_of,
    evidence_of,
    margin_of,
    scale_of,
    speed_of,
    why_not_compared,
)
from edgemeter.collector.compare.limits import SLOWER, GateLimit
from edgemeter.collector.runs.cases import grouped


def with_gate(
    comparison: Comparison,
    limits: Sequence[GateLimit],
    lost: Sequence[tuple[str, str]] = (),
    if_inconclusive: Literal["fail", "pass"] = "fail",
) -> Comparison:
    """Return the comparison with the findings on the limits of a change.

    The limited changes show the gate's decision.

    Raises ConfigError where `judge` does.
    """
    gate = replace(judge(comparison.rows, limits, lost), if_inconclusive=if_inconclusive)
    findings = grouped((finding.case, finding) for finding in gate.findings)
    rows = [replace(row, limited=tuple(findings.get(row.name, ()))) for row in comparison.rows]
    return replace(comparison, rows=tuple(rows), gate=gate)


def judge(
    rows: Sequence[ComparedCase], limits: Sequence[GateLimit], lost: Sequence[tuple[str, str]] = ()
) -> Gate:
    """Return the finding on each limit for each compared case.

    There are also findings on the cases (name, reason) that the new side has lost.

    Raises:
        ConfigError: a limit on speed or energy would be judged across two boards.
    """
    compared = [row for row in rows if not row.is_reference]
    _refuse_other_boards(compared, limits)
    pairs = [
        (limit, row, speed_of(row.case) if limit.figure == SLOWER else limit.figure)
        for limit in limits
        for row in compared
    ]
    reasons = [why_not_compared(name, row.case, row.reference) for _, row, name in pairs]
    evidences = [
        None if reason else evidence_of(name, row.case, row.reference)
        for (_, row, name), reason in zip(pairs, reasons, strict=True)
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
        margin = min(margin_of(name, row.matters_ratio), limit.by)
        limit_on_scale = _limit_on_scale(limit, name, row)
        change = decide(
            evidence, next(confidences), margin, better_of(name, row.case), scale_of(name)
        )
        change = replace(change, limit=limit_on_scale)
        findings.append(
            GateFinding(limit, row.name, _outcome(change, limit_on_scale), name, change)
        )
    findings += [
        GateFinding(limit, name, "fail", reason=reason) for limit in limits for name, reason in lost
    ]
    return Gate(tuple(findings))


def worst_kept(limit: GateLimit, better: Better, scale: Scale) -> float:
    """Return the worst change that meets a limit: a ratio or, in points, a difference."""
    by = limit.by if better == "lower" else -limit.by
    return by if scale == "points" else max(1 + by, 0.0)


def _limit_on_scale(limit: GateLimit, name: str, row: ComparedCase) -> float:
    """Return the largest change for the worse that a limit allows.

    It is on the scale of the evidence, negative if lower is worse.
    """
    worst = worst_kept(limit, better_of(name, row.case), scale_of(name))
    # A positive value falls by 100% at most.
    return worst if scale_of(name) == "points" else math.log(worst) if worst > 0 else -math.inf


def _outcome(change: Decision, limit: float) -> GateOutcome:
    bounds = change.evidence.bounds(change.confidence)
    if bounds is None:
        return "inconclusive"
    # Mirrored if lower is worse, so that the worse side lies above the limit.
    low, high = bounds if change.better == "lower" else (-bounds[1], -bounds[0])
    return (
        "pass"
        if high <= abs(limit) + ROUNDING
        else "fail"
        if low > abs(limit) + ROUNDING
        else "inconclusive"
    )


def _refuse_other_boards(rows: Sequence[ComparedCase], limits: Sequence[GateLimit]) -> None:
    """Refuse one board on each side, which cannot separate a change from the spread of its type.

    At 2% one pair of seven breaks a limit of 3%.
    """
    limit = next((limit for limit in limits if limit.figure not in (MEMORY, ACCURACY)), None)
    other = next((row for row in rows if row.case.device != row.reference.device), None)
    if limit is not None and other is not None:
        raise ConfigError(
            f"{limit.text} cannot be judged across two boards ({other.reference.key.device} and "
            f"{other.case.key.device}), because boards "
            "of one type differ by themselves: measure both sides on one board; memory and ap "
            "can be limited across boards"
        )
