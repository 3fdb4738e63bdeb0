"""Runs of one case in one session, judged together: an outlier is disturbed."""

import math
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Verdict, Violation

# A smaller distance does not matter for a comparison.
APART_RATIO = 0.10
# Three standard deviations, in units of the median absolute deviation of normal values.
APART_DEVIATIONS = 3 * 1.4826
APART = "apart-from-siblings"


def judged_together(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the runs in their order, judged together.

    A run whose p50 is an outlier among its siblings is disturbed. Siblings are the runs of a case
    in a session. A record is published when its run ends, before its siblings exist, so readers of
    several runs judge them.
    """
    judged = list(runs)
    sessions: dict[Hashable, list[int]] = {}
    for index, run in enumerate(judged):
        if has_siblings(run):
            sessions.setdefault(case_in_session(run), []).append(index)
    for siblings in sessions.values():
        middle_ms, apart = apart_among([judged[index].latency.p50_ms or 0.0 for index in siblings])
        for index in (siblings[number] for number in apart):
            verdict = judged_apart(
                judged[index].verdict, judged[index].latency.p50_ms or 0.0, middle_ms, len(siblings)
            )
            judged[index] = msgspec.structs.replace(judged[index], verdict=verdict)
    return judged


def case_in_session(run: RunRecord) -> Hashable:
    """Return the key that siblings share."""
    return run.session_started_at_ns, key_of(run)


def has_siblings(run: RunRecord) -> bool:
    """Return whether a run can have siblings.

    It can if it belongs to a session, is not invalid, and its p50 was measured or replayed.
    """
    is_timed = (run.latency.p50_ms or 0.0) > 0 and run.provenance.get("latency") in (
        "measured",
        "replayed",
    )
    return is_timed and run.session_started_at_ns > 0 and run.verdict.state != "invalid"


def apart_among(p50s_ms: Sequence[float]) -> tuple[float, set[int]]:
    """Return the median of the p50s of siblings, in ms, and the indices of outliers.

    Outliers are found on the log scale.
    """
    logs = [math.log(p50_ms) for p50_ms in p50s_ms]
    middle = _median(logs)
    if len(logs) < FEWEST:
        return math.exp(middle), set()
    limit = max(
        math.log(1 + APART_RATIO),
        APART_DEVIATIONS * _median([abs(value - middle) for value in logs]),
    )
    return math.exp(middle), {
        index for index, value in enumerate(logs) if abs(value - middle) > limit
    }


def _median(values: Sequence[float]) -> float:
    # Not `statistics`: a list of runs takes no longer to import.
    ordered, half = sorted(values), len(values) // 2
    return (ordered[half] + ordered[~half]) / 2


def judged_apart(verdict: Verdict, p50_ms: float, siblings_p50_ms: float, siblings: int) -> Verdict:
    """Return the verdict on an outlier; `siblings` is the number of runs, including this one."""
    numbers = {"latency_p50_ms": p50_ms, "siblings_p50_ms": siblings_p50_ms, "siblings": siblings}
    return Verdict(
        state="disturbed",
        violations=(*verdict.violations, Violation(rule=APART, numbers=numbers)),
        notes=verdict.notes,
    )
