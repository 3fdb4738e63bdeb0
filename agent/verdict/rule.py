"""A rule of the verdict, and the facts that it judges."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_conditions import Condition, Environment, Verdict, worst
from edgemeter.agent.contract.record_figures import CoolDown, Energy
from edgemeter.agent.engine.job import MeasuredRun

# `note`: worth knowing, but no reason to doubt the figures.
Effect = Literal["note", "suspect", "invalid"]
Evidence = TypeVar("Evidence", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class SensorFaults:
    """Power sensors that failed: ids of those that repeated one value, and `name: reason` of those whose place another took."""

    frozen: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts by which the rules judge."""

    measured: MeasuredRun
    conditions: Sequence[Condition]
    environment: Environment | None = None
    cool_down: CoolDown | None = None
    energies: Sequence[Energy] = ()
    power_warnings: Sequence[str] = ()
    sensor_faults: SensorFaults = SensorFaults()

    def at(self, *when: str) -> list[Condition]:
        """Return the machine's conditions `before`, `during` or `after` the run; without an argument all, in their order."""
        return [condition for condition in self.conditions if not when or condition.when in when]

    def latency_ms(self) -> NDArray[np.float64]:
        """Return the latencies of the timed queries in their order, float64 [n]; empty where they were not kept."""
        latency = next((series for series in self.measured.samples if series.name == "latency"), None)
        return np.zeros(0) if latency is None else samples.unpack(latency) / 1e6

    def service_ms(self) -> NDArray[np.float64]:
        """Return the latencies less the waits in line, which wander by chance; empty also where queries of an open loop overlap."""
        raw = {series.name: samples.unpack(series) for series in self.measured.samples if series.name in ("query_start", "arrival")}
        if "arrival" not in raw:
            return self.latency_ms()
        if self.measured.load is None or self.measured.load.utilisation_ratio is None:
            return np.zeros(0)
        return self.latency_ms() - (raw["query_start"].astype(np.int64) - raw["arrival"].astype(np.int64)) / 1e6


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the verdict: a run that violates it gets `state`; `evidence` returns None where the requirement is met."""

    name: str
    state: Effect
    requirement: str
    evidence: Callable[..., str | None]
    rationale: str = ""
    remedy: str = ""


def verdict_of(violated: Sequence[tuple[Rule, str]]) -> Verdict:
    """Return the worst state of the violated rules, and `rule: evidence` for each, reasons apart from notes."""
    notes, reasons = (
        tuple(f"{rule.name}: {evidence}" for rule, evidence in violated if (rule.state == "note") is is_note) for is_note in (True, False)
    )
    return Verdict(state=worst([rule.state for rule, _ in violated]), reasons=reasons, notes=notes)


class Rules(list[Rule]):
    """The rules of one subject in the order of their functions, which return the evidence; a rule has the name of its function."""

    def invalid(self, requirement: str, rationale: str, remedy: str) -> Callable[[Evidence], Evidence]:
        """Make a rule of the function below: a run that violates it is invalid."""
        return self._added("invalid", requirement, rationale, remedy)

    def suspect(self, requirement: str, rationale: str, remedy: str) -> Callable[[Evidence], Evidence]:
        """Make a rule of the function below: a run that violates it is suspect."""
        return self._added("suspect", requirement, rationale, remedy)

    def note(self, requirement: str, rationale: str, remedy: str) -> Callable[[Evidence], Evidence]:
        """Make a rule of the function below: it casts no doubt on a run that violates it."""
        return self._added("note", requirement, rationale, remedy)

    def given(self, judged: Callable[[RunFacts], tuple[Any, ...] | None]) -> tuple[Rule, ...]:
        """Return the rules for runs: their functions take what `judged` finds in the facts; where that is None, none is violated."""

        def of_run(rule: Rule, facts: RunFacts) -> str | None:
            arguments = judged(facts)
            return None if arguments is None else rule.evidence(*arguments)

        return tuple(replace(rule, evidence=partial(of_run, rule)) for rule in self)

    def _added(self, state: Effect, requirement: str, rationale: str, remedy: str) -> Callable[[Evidence], Evidence]:
        def add(evidence: Evidence) -> Evidence:
            name = evidence.__name__.strip("_").replace("_", "-")
            self.append(Rule(name, state, requirement, evidence, rationale, remedy))
            return evidence

        return add
