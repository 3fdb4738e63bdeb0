"""Rules on the conditions of the run: load of others, stolen time, throttling, supply, memory, changed settings."""

from collections.abc import Iterable

from edgemeter.agent.machine import throttling
from edgemeter.agent.machine.load import LOAD_RATIO, by_whom
from edgemeter.agent.verdict.rule import Rules, RunFacts

# Stolen time adds to latency one to one.
STEAL_RATIO = 0.02
SWAPPED_MB = 16.0
# A third of the smallest difference that matters, 3%.
UNDER_VOLTAGE_COUNTER = "oc1"


RULES = Rules()


@RULES.suspect(
    "the requested start temperature was reached",
    "runs that start warmer throttle earlier",
    "raise `cool_down_limit_s` in a suite, or cool the room",
)
def _not_cooled(facts: RunFacts) -> str | None:
    cooled = facts.cool_down
    if cooled is None or cooled.is_reached is not False or cooled.temperature_c is None:
        return None
    return (
        f"after {cooled.waited_s:.0f} s the hottest sensor still read {cooled.temperature_c:.0f} C, not below {cooled.below_c:g} C: "
        "raise cool_down_limit_s or start_below_c"
    )


@RULES.invalid(
    "the board did not throttle: no flag is set, none was set during the run, no event counter rose",
    "latency is then the heat sink's, not the model's",
    "cool the board, or choose a lower power mode",
)
def _throttled(facts: RunFacts) -> str | None:
    return None if facts.measured.is_long_schedule else throttling_evidence(facts)


def throttling_evidence(facts: RunFacts) -> str | None:
    """Return how it shows that the board throttled; None if it does not."""
    rose = _events_that_rose(facts)
    rose.pop(UNDER_VOLTAGE_COUNTER, None)
    if rose:
        counted = ", ".join(f"{name} +{count}" for name, count in rose.items())
        return f"throttle events were counted during the run ({counted}): cool the board, or use a stronger power supply"
    moments = [condition.when for condition in facts.at() if condition.throttled_now]
    if moments:
        return f"the board throttled ({', '.join(dict.fromkeys(moments))} the run): cool it"
    came_up = _came_up(condition.throttled_since_boot for condition in facts.at())
    return "the board's flag `throttled since boot` was set during the run: cool it" if came_up else None


@RULES.suspect(
    "the supply voltage was sufficient: no flag is set, none was set during the run, no event counter rose",
    "a weak supply lowers clocks briefly and falsifies energy figures",
    "a stronger supply and a shorter cable",
)
def _under_voltage(facts: RunFacts) -> str | None:
    moments = [condition.when for condition in facts.at() if condition.under_voltage_now]
    if moments:
        return f"the supply voltage was too low ({', '.join(dict.fromkeys(moments))} the run): use a stronger power supply"
    came_up = _came_up(condition.under_voltage_since_boot for condition in facts.at())
    if came_up or UNDER_VOLTAGE_COUNTER in _events_that_rose(facts):
        return "the supply voltage fell too low for a moment during the run: use a stronger power supply"
    return None


def _events_that_rose(facts: RunFacts) -> dict[str, int]:
    events = [condition.throttle_events for condition in facts.at() if condition.throttle_events]
    return throttling.rose(events[0], events[-1]) if events else {}


def _came_up(flags: Iterable[bool | None]) -> bool:
    known_flags = [flag for flag in flags if flag is not None]
    return bool(known_flags) and known_flags[-1] and not known_flags[0]


@RULES.suspect(
    "processes other than the measured one and the agent used at most 10% of the cores while queries were timed",
    "where the timed part is below 0.5 s of one core, warm-up and loading count too",
    "end what the reason names, then measure again",
)
def _busy_machine(facts: RunFacts) -> str | None:
    during = next((condition for condition in facts.at("during") if condition.other_load_ratio is not None), None)
    if during is None or during.other_load_ratio is None or during.other_load_ratio <= LOAD_RATIO:
        return None
    if facts.measured.runtime.facts.get("server_machine") == "this" and during.served_load_ratio is None:
        # Most of it may be the server's, which is measured.
        return None
    named = by_whom(during.busiest_other, during.other_load_ratio)
    return f"other processes used {during.other_load_ratio:.0%} of the machine's cores during the run{named}"


@RULES.suspect(
    "a hypervisor took at most 2% of the processor time", "stolen time adds to latency one to one", "measure on hardware of your own"
)
def _stolen_time(facts: RunFacts) -> str | None:
    steal = max((condition.steal_ratio for condition in facts.at("during") if condition.steal_ratio is not None), default=None)
    return None if steal is None or steal <= STEAL_RATIO else f"the hypervisor took {steal:.1%} of the processor time during the run"


@RULES.suspect(
    "less than 16 MB went to swap during the run",
    "a query that waits for the disk takes milliseconds longer",
    "end other programs, or `sudo swapoff -a`",
)
def _swapping(facts: RunFacts) -> str | None:
    return swapping_evidence(facts, "during the run: close programs, or use a smaller model")


def swapping_evidence(facts: RunFacts, remedy: str) -> str | None:
    """Return by how much the used swap grew over a run, with `remedy`; None below 16 MB."""
    used = [condition.swap_used_mb for condition in facts.at() if condition.swap_used_mb is not None]
    grown = max(used) - used[0] if used else 0.0
    return None if grown < SWAPPED_MB else f"{grown:.0f} MB went to swap {remedy}"


@RULES.suspect(
    "governor and power mode were the same before and after",
    "else parts of the run differ",
    "stop what changes governor or power mode",
)
def _settings_changed(facts: RunFacts) -> str | None:
    before, after = facts.at("before"), facts.at("after")
    if not before or not after:
        return None
    pairs = [("governor", before[0].governor, after[-1].governor), ("power mode", before[0].power_mode, after[-1].power_mode)]
    changed = [f"{name} was {first!r} before and {last!r} after" for name, first, last in pairs if first and last and first != last]
    return "; ".join(changed) or None


@RULES.note(
    "no Python module had to be compiled during the cold start",
    "compiling makes imports two to three times longer; only the cold start contains them, no timed query does",
    "measure again: the modules are compiled now",
)
def _compiled_at_start(facts: RunFacts) -> str | None:
    modules = facts.measured.cold_start.compiled_modules
    if not modules:
        return None
    return (
        f"{modules} Python modules had no valid bytecode and were compiled during the cold start: run it once more; if they are compiled "
        "every time, let `python -m compileall` write their bytecode as a user who may"
    )
