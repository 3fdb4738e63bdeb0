"""The verdict: named rules, each looks at one thing and says with evidence why a run should not, or not quite, be believed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.engine.job import Measured
from edgemeter.agent.records import Condition, Verdict

# What a value may differ by between the timed and the later pass: float kernels may sum in another order, nothing more.
OUTPUT_RATIO = 1e-3
DRIFT_RATIO = 0.05
LOAD_RATIO = 0.10
STEAL_RATIO = 0.02
BOUND_RATIO = 0.10


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules may look at."""

    measured: Measured
    conditions: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its name, what breaking it makes of a run, and what it asks; `evidence` returns None while it holds."""

    name: str
    state: Literal["suspect", "invalid"]
    asks: str
    evidence: Callable[[Facts], str | None]


def _outputs_differ(facts: Facts) -> str | None:
    check = facts.measured.output_check
    if check.worst_ratio is None or check.worst_ratio <= OUTPUT_RATIO:
        return None
    return f"{check.compared - check.identical} of {check.compared} outputs kept while timing differ from those for the same input later"


def _not_steady(facts: Facts) -> str | None:
    warm = facts.measured.warm_up
    return None if warm.steady else f"the median latency had not settled after {warm.queries} queries ({warm.duration_ms / 1000:.1f} s)"


def _drift(facts: Facts) -> str | None:
    thirds = facts.measured.thirds_p50_ms
    if len(thirds) < 3 or abs(thirds[-1] / thirds[0] - 1) <= DRIFT_RATIO:
        return None
    return f"median latency went from {thirds[0]:.4g} ms in the first third to {thirds[-1]:.4g} ms in the last"


def _wide_bounds(facts: Facts) -> str | None:
    latency = facts.measured.latency
    if latency.p50_ms is None or latency.p50_low_ms is None or latency.p50_high_ms is None:
        return None
    width = (latency.p50_high_ms - latency.p50_low_ms) / latency.p50_ms
    return None if width <= BOUND_RATIO else f"the 95 % bounds of p50 are {width:.0%} of it apart"


def _too_few(facts: Facts) -> str | None:
    latency = facts.measured.latency
    return None if latency.p50_ms is not None else f"{latency.count} queries do not support a median: it needs {latency.refused['p50']}"


def _worst(facts: Facts, field: str) -> float | None:
    values = [getattr(c, field) for c in facts.conditions if c.when == "during" and getattr(c, field) is not None]
    return max(values) if values else None


def _busy(facts: Facts) -> str | None:
    load = _worst(facts, "other_load_ratio")
    return None if load is None or load <= LOAD_RATIO else f"other processes used {load:.0%} of the machine's cores during the run"


def _steal(facts: Facts) -> str | None:
    steal = _worst(facts, "steal_ratio")
    return None if steal is None or steal <= STEAL_RATIO else f"the hypervisor took {steal:.0%} of the processor time during the run"


def _throttled(facts: Facts) -> str | None:
    seen = [c.when for c in facts.conditions if c.throttled_now]
    return f"the board throttled ({', '.join(dict.fromkeys(seen))} the run): cool it" if seen else None


def _under_voltage(facts: Facts) -> str | None:
    seen = [c.when for c in facts.conditions if c.under_voltage_now]
    return f"the supply voltage was too low ({', '.join(dict.fromkeys(seen))} the run): use a stronger power supply" if seen else None


def _swapping(facts: Facts) -> str | None:
    used = [c.swap_used_mb for c in facts.conditions if c.swap_used_mb is not None]
    grown = max(used) - used[0] if used else 0.0
    return None if grown < 16 else f"{grown:.0f} MB went to swap during the run: close programs, or use a smaller model"


RULES: tuple[Rule, ...] = (
    Rule("outputs-differ", "invalid", "the outputs of timed queries equal those for the same inputs afterwards", _outputs_differ),
    Rule("too-few-queries", "invalid", "there are enough queries for a median", _too_few),
    Rule("throttled", "invalid", "the board did not throttle", _throttled),
    Rule("under-voltage", "suspect", "the supply voltage held", _under_voltage),
    Rule("not-steady", "suspect", "latency had settled before timing began", _not_steady),
    Rule("drift", "suspect", "median latency moved by at most 5 % from the first to the last third", _drift),
    Rule("wide-bounds", "suspect", "the 95 % bounds of p50 lie within 10 % of it", _wide_bounds),
    Rule("busy-machine", "suspect", "other processes used at most 10 % of the cores", _busy),
    Rule("stolen-time", "suspect", "a hypervisor took at most 2 % of the processor time", _steal),
    Rule("swapping", "suspect", "less than 16 MB went to swap during the run", _swapping),
)


def judge(measured: Measured, conditions: Sequence[Condition]) -> Verdict:
    """Return the verdict on a run: the worst state of all broken rules, and a reason `rule: evidence` for each."""
    facts = Facts(measured, conditions)
    broken = [(rule, evidence) for rule in RULES if (evidence := rule.evidence(facts)) is not None]
    states = {rule.state for rule, _ in broken}
    state: Literal["valid", "suspect", "invalid"] = "invalid" if "invalid" in states else "suspect" if states else "valid"
    return Verdict(state=state, reasons=tuple(f"{rule.name}: {evidence}" for rule, evidence in broken))
