"""Notes on the machine that hold for all runs of a session.

They are shown once, before the first run.
"""

from edgemeter.agent.contract.record_conditions import Condition, Violation
from edgemeter.agent.machine import clock, conditions, fingerprint
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.rule import Rule, RuleEvidence, violations


def governor(facts: Facts) -> RuleEvidence | None:
    """Under other governors than `performance` clock and latency depend on the load."""
    before = _before(facts)
    return (
        RuleEvidence(subject=before.governor)
        if before.governor not in (None, "performance")
        else None
    )


def shared_machine(facts: Facts) -> RuleEvidence | None:
    """The load of other guests shows as `stolen-time` at best."""
    guest = facts.environment.virtualisation if facts.environment else None
    return RuleEvidence(subject=guest) if guest else None


def swap_in_use(facts: Facts) -> RuleEvidence | None:
    """Pages in swap may never be needed; growth during a run violates `swapping`."""
    used_mb = _before(facts).swap_used_mb
    return RuleEvidence({"swap_used_mb": used_mb}) if used_mb else None


def clock_unknown(facts: Facts) -> RuleEvidence | None:
    """The timestamps of records depend on the wall clock, durations never do."""
    return None if facts.clock_synchronised else RuleEvidence()


def _before(facts: Facts) -> Condition:
    return next(iter(facts.at("before")), Condition(when="before"))


RULES = (
    Rule(
        "governor", "note", "the governor is {subject}, so clock and latency follow the load",
        "Run `sudo cpupower frequency-set -g performance`, or `sudo jetson_clocks` on a Jetson.",
        governor,
    ),
    Rule(
        "shared-machine", "note",
        "the machine is a guest ({subject}), and others share its processor",
        "Measure on your own hardware.", shared_machine,
    ),
    Rule(
        "swap-in-use", "note", "{swap_used_mb:,.0f} MB are in swap",
        "Run `sudo swapoff -a` if the memory is large enough.", swap_in_use,
    ),
    Rule(
        "clock-unknown", "note",
        "nothing synchronises the wall clock: timestamps may be wrong, durations are not",
        "Start a time service with `timedatectl set-ntp true`.", clock_unknown,
    ),
)  # fmt: skip


def environment_notes(machine: Machine = THIS_MACHINE) -> list[Violation]:
    facts = Facts(
        conditions=(conditions.inspect("before", machine),),
        environment=fingerprint.read(machine),
        clock_synchronised=clock.synchronised(machine),
    )
    return [violation for _, violation in violations(RULES, facts)]
