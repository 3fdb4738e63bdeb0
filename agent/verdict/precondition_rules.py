"""Rules on what should hold before anything is measured: reported before the first run, and part of the verdict of each."""

import os
import time
from collections.abc import Callable
from dataclasses import replace

from edgemeter.agent.contract.record_conditions import Condition, Environment
from edgemeter.agent.machine import conditions, fingerprint, load
from edgemeter.agent.machine.attached import is_on_usb_2
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.verdict.rule import Rule, Rules

# A board warms by some degrees within the first seconds of load: nearer to its limit it throttles in a run of ten seconds.
HEADROOM_C = 5.0

# Where the machine names no limit. Source: Raspberry Pi (80 C) is the lowest of the boards that we know.
ASSUMED_LIMIT_C = 80.0
LITTLE_MEMORY_MB = 300.0
BUSY_RATIO = 0.10
# On two cores this is 100 clock ticks: enough to see a tenth of the machine busy.
PREFLIGHT_S = 0.5


# Each function judges the condition before the run, and the environment.
PRECONDITIONS = Rules()


@PRECONDITIONS.note(
    "the processor's governor is `performance`",
    "under other governors, the clock and so the latency depend on the load; the record holds the governor",
    "`sudo cpupower frequency-set -g performance`",
)
def _governor(before: Condition, _: Environment | None) -> str | None:
    if before.governor in (None, "performance"):
        return None
    return f"the governor is {before.governor!r}: clock and latencies follow the load; `performance` keeps the clock constant"


@PRECONDITIONS.note(
    "the board has not throttled or lacked voltage since boot",
    "such a flag stays set until the next boot, and hides a short event of the same kind",
    "check supply and cooling, then reboot",
)
def _flags_since_boot(before: Condition, _: Environment | None) -> str | None:
    counted = ", ".join(f"{name} {count}" for name, count in before.throttle_events.items() if count)
    if counted:
        return f"throttle events have been counted since the board was switched on ({counted}): check its cooling and power supply"
    if not (before.throttled_since_boot or before.under_voltage_since_boot):
        return None
    event = "throttled" if before.throttled_since_boot else "had too low a supply voltage"
    return f"the board has {event} since it was switched on: a set flag hides a repetition during the run; reboot to clear it"


@PRECONDITIONS.suspect(
    "every temperature is at least 5 C below its limit (80 C where it is unknown)",
    "a board warms by some degrees in the first seconds of load",
    "`--start-below-c`, or wait",
)
def _hot_start(before: Condition, _: Environment | None) -> str | None:
    headrooms_c = {name: before.temperature_limits_c.get(name, ASSUMED_LIMIT_C) - value for name, value in before.temperatures_c.items()}
    nearest = min(headrooms_c, key=lambda name: headrooms_c[name], default=None)
    if nearest is None or headrooms_c[nearest] >= HEADROOM_C:
        return None
    limit_c = before.temperature_limits_c.get(nearest)
    limit = f"{ASSUMED_LIMIT_C:.0f} C, the assumed limit" if limit_c is None else f"its limit of {limit_c:.0f} C"
    return f"{nearest} is at {before.temperatures_c[nearest]:.0f} C, within {HEADROOM_C:.0f} C of {limit}: let it cool"


@PRECONDITIONS.note(
    "swap is off or unused",
    "what is in swap already may never be needed; growth during a run violates `swapping`",
    "`sudo swapoff -a` if memory suffices",
)
def _swap_in_use(before: Condition, _: Environment | None) -> str | None:
    remedy = "run `sudo swapoff -a` before measuring if the memory suffices"
    return f"{before.swap_used_mb:.0f} MB are in swap: {remedy}" if before.swap_used_mb else None


@PRECONDITIONS.note("at least 300 MB of memory are available", "with less, a larger model makes the machine swap", "end other programs")
def _little_memory(before: Condition, _: Environment | None) -> str | None:
    free_mb = before.memory_available_mb
    return None if free_mb is None or free_mb >= LITTLE_MEMORY_MB else f"only {free_mb:.0f} MB of memory are available: end other programs"


@PRECONDITIONS.note(
    "the wall clock is synchronised",
    "the timestamps of records depend on it, durations never do",
    "start a time service: `timedatectl set-ntp true`",
)
def _clock_unknown(before: Condition, _: Environment | None) -> str | None:
    if before.clock_synchronised:
        return None
    if before.clock_synchronised is None:
        return "whether the wall clock is synchronised is unknown: timestamps may be wrong, durations do not depend on it"
    return "the wall clock is not synchronised: timestamps may be wrong, durations do not depend on it"


@PRECONDITIONS.note(
    "a USB Coral is on USB 3",
    "USB 2 moves inputs and weights at 480 Mbit/s instead of 5,000; runs that do not use the Coral are unaffected",
    "use a blue USB 3 port, and Coral's own cable",
)
def _coral_on_usb_2(before: Condition, _: Environment | None) -> str | None:
    slow = [text for text in before.attached if is_on_usb_2(text)]
    return f"{slow[0]}: plug it into a USB 3 port, with a USB 3 cable" if slow else None


@PRECONDITIONS.note(
    "other processes use at most 10% of the cores",
    "checked for half a second before the first run; `busy-machine` checks the run itself",
    "end other programs",
)
def _busy_before(before: Condition, _: Environment | None) -> str | None:
    load = before.other_load_ratio
    return None if load is None or load <= BUSY_RATIO else f"other processes use {load:.0%} of the machine's cores: end them first"


@PRECONDITIONS.note(
    "the machine is not a guest of a hypervisor or a container",
    "the load of other guests shows as `stolen-time` at best",
    "compare on hardware of your own",
)
def _shared_machine(_: Condition, environment: Environment | None) -> str | None:
    guest = environment.virtualisation if environment else None
    return f"the machine is a guest ({guest}): it shares the processor with others" if guest else None


# The rules of the verdict that require the same of every run.
RULES = tuple(
    replace(rule, requirement=f"before the run: {rule.requirement}")
    for rule in PRECONDITIONS.given(lambda facts: next(((before, facts.environment) for before in facts.at("before")), None))
)


def violated(before: Condition, environment: Environment | None) -> list[tuple[Rule, str]]:
    """Return the preconditions that do not hold, each with its evidence."""
    return [(rule, evidence) for rule in PRECONDITIONS if (evidence := rule.evidence(before, environment)) is not None]


def preflight_notes(machine: Machine = THIS_MACHINE, sleep: Callable[[float], None] = time.sleep) -> list[str]:
    """Return the violated preconditions, each as `rule: evidence`; takes half a second, to measure the load of others."""
    since = load.read_usage(machine, None, os.getpid())
    sleep(PREFLIGHT_S)
    before = conditions.inspect("before", machine, since=since)
    return [f"{rule.name}: {evidence}" for rule, evidence in violated(before, fingerprint.read(machine))]
