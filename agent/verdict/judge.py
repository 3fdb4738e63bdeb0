"""The verdict on a run, and the runs of a case that count."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.record_conditions import Verdict, worst
from edgemeter.agent.verdict import (
    condition_rules,
    energy_rules,
    environment_rules,
    output_rules,
    run_rules,
    siblings,
)
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.rule import Rule, violations

RUN_RULES = (*output_rules.RULES, *run_rules.RULES, *condition_rules.RULES, *energy_rules.RULES)
_APART = Rule(
    siblings.APART,
    "disturbed",
    (
        "a p50 of {latency_p50_ms:.4g} ms is far from {siblings_p50_ms:.4g} ms, the median of the "
        "{siblings:.0f} runs of that session"
    ),
    "The slower runs were probably disturbed: run the case again on a quiet machine.",
    lambda _: None,
)
RULES = (*RUN_RULES, _APART, *environment_rules.RULES)


def judge(facts: Facts) -> Verdict:
    return _verdict(RUN_RULES, facts)


def judge_outputs(facts: Facts) -> Verdict:
    return _verdict(output_rules.RULES, facts)


def _verdict(rules: Iterable[Rule], facts: Facts) -> Verdict:
    violated = violations(rules, facts)
    return Verdict(
        state=worst([rule.effect for rule, _ in violated]),
        violations=tuple(violation for rule, violation in violated if rule.effect != "note"),
        notes=tuple(violation for rule, violation in violated if rule.effect == "note"),
    )


class _Judged(Protocol):
    @property
    def verdict(self) -> Verdict: ...


Run = TypeVar("Run", bound=_Judged)


def counted(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the runs of a case that its figures use.

    They are the ok runs if these are enough for an interval, else all but invalid ones.
    """
    ok = [run for run in runs if run.verdict.state == "ok"]
    return ok if len(ok) >= FEWEST else [run for run in runs if run.verdict.state != "invalid"]
