"""The verdict on a run, and on runs of one case together."""

import math
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from edgemeter.agent.base.evidence import FEWEST
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Verdict, Violation, worst
from edgemeter.agent.verdict import condition_rules, energy_rules, environment_rules, output_rules, run_rules
from edgemeter.agent.verdict.rule import Facts, Rule, violations

# A smaller distance cannot reverse a comparison that is worth making.
APART_RATIO = 0.10
# Of the scatter of the siblings, by the median of their distances. Source: 1.4826 times it is the standard deviation of normal values.
APART_DEVIATIONS = 3 * 1.4826
APART = Rule(
    "apart-from-siblings", "disturbed",
    "a p50 of {latency_p50_ms:.4g} ms lies apart from {siblings_p50_ms:.4g} ms, the median of the {siblings:.0f} runs of that session",
    "Run the case again on a quiet machine.", lambda _: None,
)  # fmt: skip
RUN_RULES = (*output_rules.RULES, *run_rules.RULES, *condition_rules.RULES, *energy_rules.RULES)
RULES = (*RUN_RULES, APART, *environment_rules.RULES)


def judge(facts: Facts) -> Verdict:
    """Return the verdict on a run."""
    return _verdict(RUN_RULES, facts)


def judge_outputs(facts: Facts) -> Verdict:
    """Return the verdict on a model that was only scored."""
    return _verdict(output_rules.RULES, facts)


def _verdict(rules: Iterable[Rule], facts: Facts) -> Verdict:
    violated = violations(rules, facts)
    return Verdict(
        state=worst([rule.effect for rule, _ in violated]),
        violations=tuple(violation for rule, violation in violated if rule.effect != "note"),
        notes=tuple(violation for rule, violation in violated if rule.effect == "note"),
    )


def judged_together(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the runs in their order; one whose p50 lies apart from its siblings', the runs of its case in its session, is disturbed.

    The record of a run is published as soon as it ends, before its siblings are there. So each reader of several runs judges them.
    """
    judged = list(runs)
    indices = {id(run): index for index, run in enumerate(judged)}
    for siblings in _sessions(judged):
        middle_ms, apart = _apart(siblings)
        for run in apart:
            numbers = {"latency_p50_ms": run.latency.p50_ms or 0.0, "siblings_p50_ms": middle_ms, "siblings": len(siblings)}
            violation = Violation(rule=APART.name, numbers=numbers)
            verdict = Verdict(state="disturbed", violations=(*run.verdict.violations, violation), notes=run.verdict.notes)
            judged[indices[id(run)]] = msgspec.structs.replace(run, verdict=verdict)
    return judged


def counted(runs: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """Return the runs of a case that its figures are of: those that are ok, where they are enough for an interval, else all but invalid."""
    ok = [run for run in runs if run.verdict.state == "ok"]
    return ok if len(ok) >= FEWEST else [run for run in runs if run.verdict.state != "invalid"]


def _sessions(runs: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Return the runs with a p50 that are not invalid by case and session; a run of no session has no siblings."""
    sessions: dict[object, list[RunRecord]] = {}
    for run in runs:
        if run.session_started_at_ns and run.verdict.state != "invalid" and run.latency.p50_ms:
            sessions.setdefault((key_of(run), run.session_started_at_ns), []).append(run)
    return list(sessions.values())


def _apart(siblings: Sequence[RunRecord]) -> tuple[float, list[RunRecord]]:
    """Return the median of the p50s in ms, and the runs that lie apart from it on the log scale."""
    logs = [math.log(run.latency.p50_ms or 1.0) for run in siblings]
    middle = median(logs)
    if len(siblings) < FEWEST:
        return math.exp(middle), []
    limit = max(math.log(1 + APART_RATIO), APART_DEVIATIONS * median(abs(value - middle) for value in logs))
    return math.exp(middle), [run for run, value in zip(siblings, logs, strict=True) if abs(value - middle) > limit]
