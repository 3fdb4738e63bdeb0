"""Predicts before a case is measured which energies a sensor cannot resolve, by the minimum lengths that later refuse an energy."""

from collections.abc import Mapping

from edgemeter.agent.contract.suite import MODES, Case, Suite
from edgemeter.agent.energy.refusals import shortest_idle_s, shortest_window_s
from edgemeter.agent.power import Description, PowerSensor
from edgemeter.agent.power.detect import described


def outlook(suite: Suite, sensors: Mapping[str, PowerSensor]) -> list[str]:
    """Return what each sensor will not resolve of each case, in words, and what would do; a sensor without a description has no line."""
    notes: dict[str, None] = {}
    for name, description in described(sensors).items():
        notes |= dict.fromkeys(f"{name}: {note}" for case in suite.cases if (note := shortcoming(case, description)))
    return list(notes)


def shortcoming(case: Case, description: Description) -> str | None:
    """Return what a case leaves unresolved with a sensor that reads as described; None where its lengths suffice."""
    needed_s, idle_s = shortest_window_s(description), shortest_idle_s(description)
    is_long, idles = case.seconds >= needed_s, case.idle_seconds >= idle_s or case.idle_seconds == 0
    if is_long and idles:
        return None
    takes = f"an energy takes {needed_s:,.4g} s of timed queries, a net energy {idle_s:,.4g} s of idle before and after"
    # A run that is too short for an energy does not idle for it.
    idling = f", and idles {case.idle_seconds:,.4g} s" if is_long else ""
    has = f"mode {case.mode} times {case.queries:,} queries and {case.seconds:,.4g} s{idling}"
    # From some length of a query on the number of queries makes the timed part long enough.
    lacking = "net energy" if is_long else f"energy, unless a query takes {needed_s / case.queries:.3g} s or more"
    remedy = f"set idle_seconds = {idle_s:.4g} in a suite" if is_long else _longer(needed_s, idle_s)
    return f"with a reading every {description.period_ms:,.5g} ms {takes}; {has}: there will be no {lacking}; {remedy}"


def _longer(needed_s: float, idle_s: float) -> str:
    """Return the shortest mode that gives both energies, or the gross energy with another length of idle; else the lengths."""
    long = {name: mode.idle_seconds >= idle_s for name, mode in MODES.items() if mode.seconds >= needed_s}
    if not long:
        return f"set seconds = {needed_s:.4g} and idle_seconds = {idle_s:.4g} in a suite"
    able = next((name for name, idles in long.items() if idles), None)
    return f"use mode {able}" if able else f"use mode {next(iter(long))} with idle_seconds = {idle_s:.4g}, in a suite"
