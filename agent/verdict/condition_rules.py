"""Rules on what disturbed a run.

They are on throttling, the supply, other processes, the hypervisor, swap, and Edgemeter itself.
"""

from collections.abc import Iterable

from edgemeter.agent.contract.model_formats import SERVED
from edgemeter.agent.engine.job import IN_PROCESS
from edgemeter.agent.machine import throttling
from edgemeter.agent.machine.attached import is_on_usb_2
from edgemeter.agent.machine.load import LEAST_NAMED, LOAD_RATIO
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.rule import Rule, RuleEvidence

# Stolen time adds to latency one to one.
STEAL_RATIO = 0.02
SWAPPED_MB = 16.0
# The event counter of a Jetson that counts a supply voltage that is too low.
UNDER_VOLTAGE_COUNTER = "oc1"
# On a quiet machine threads wait less than 0.1% of the time. Latency grows by about the share that
# they wait.
WAITED_RATIO = 0.03
# A thread that holds Python's lock costs as much as one that holds the core.
OTHER_THREADS_RATIO = 0.03
# Above this share of a core, part of each latency is the client's (Python, copies, TLS).
MOST_BUSY_RATIO = 0.7
# Late wake-ups may cause this share of the missed frames, and this share of the latency.
OF_MISSED_RATIO = 0.10
OF_LATENCY_RATIO = 0.03


def throttled(facts: Facts) -> RuleEvidence | None:
    """A flag is set, one was set during the run, or an event counter rose."""
    rose = _events_that_rose(facts)
    rose.pop(UNDER_VOLTAGE_COUNTER, None)
    if rose:
        return RuleEvidence({"throttle_events": sum(rose.values())})
    is_flagged = any(condition.throttled_now for condition in facts.at()) or _came_up(
        condition.throttled_since_boot for condition in facts.at()
    )
    return RuleEvidence() if is_flagged else None


def under_voltage(facts: Facts) -> RuleEvidence | None:
    """A flag is set, one was set during the run, or the event counter rose."""
    is_low = any(condition.under_voltage_now for condition in facts.at()) or _came_up(
        condition.under_voltage_since_boot for condition in facts.at()
    )
    return RuleEvidence() if is_low or UNDER_VOLTAGE_COUNTER in _events_that_rose(facts) else None


def _events_that_rose(facts: Facts) -> dict[str, int]:
    events = [condition.throttle_events for condition in facts.at() if condition.throttle_events]
    return throttling.rose(events[0], events[-1]) if events else {}


def _came_up(flags: Iterable[bool | None]) -> bool:
    known_flags = [flag for flag in flags if flag is not None]
    return bool(known_flags) and known_flags[-1] and not known_flags[0]


def busy_machine(facts: Facts) -> RuleEvidence | None:
    """Where the timed part is below 0.5 s of one core, warm-up and loading count too."""
    during = next(
        (condition for condition in facts.at("during") if condition.other_load_ratio is not None),
        None,
    )
    if during is None or during.other_load_ratio is None or during.other_load_ratio <= LOAD_RATIO:
        return None
    if facts.run.runtime.facts.get("server_machine") == "this" and during.served_load_ratio is None:
        # Most of the load may be that of the measured server.
        return None
    busiest = next(
        (name for name, ratio in during.busiest_other.items() if ratio >= LEAST_NAMED), None
    )
    return RuleEvidence({"other_load_ratio": during.other_load_ratio}, busiest)


def waited_for_core(facts: Facts) -> RuleEvidence | None:
    """A run with more threads than cores waits for itself, so it is not judged.

    Neither is a run with other models at the same time, which is to wait.
    """
    scheduling, threads = facts.run.scheduling, facts.run.runtime.threads
    if (
        scheduling is None
        or scheduling.waited_ms is None
        or scheduling.window_ms <= 0
        or threads > scheduling.cores
    ):
        return None
    share = scheduling.waited_ms / (scheduling.window_ms * min(threads, scheduling.cores))
    return (
        RuleEvidence({"waited_ratio": share})
        if share > WAITED_RATIO and facts.run.together is None
        else None
    )


def stolen_time(facts: Facts) -> RuleEvidence | None:
    """Time that the hypervisor gave to other machines."""
    steal = max(
        (
            condition.steal_ratio
            for condition in facts.at("during")
            if condition.steal_ratio is not None
        ),
        default=0.0,
    )
    return RuleEvidence({"steal_ratio": steal}) if steal > STEAL_RATIO else None


def swapping(facts: Facts) -> RuleEvidence | None:
    """A query that waits for the disk takes milliseconds longer."""
    used = [
        condition.swap_used_mb for condition in facts.at() if condition.swap_used_mb is not None
    ]
    grown_mb = max(used) - used[0] if used else 0.0
    return RuleEvidence({"swap_grown_mb": grown_mb}) if grown_mb >= SWAPPED_MB else None


def settings_changed(facts: Facts) -> RuleEvidence | None:
    """Governor and power mode, before and after."""
    before, after = facts.at("before"), facts.at("after")
    if not before or not after:
        return None
    pairs = [
        ("governor", before[0].governor, after[-1].governor),
        ("power mode", before[0].power_mode, after[-1].power_mode),
    ]
    changed = [
        f"{name} ({first} before, {last} after)"
        for name, first, last in pairs
        if first and last and first != last
    ]
    return RuleEvidence(subject=" and ".join(changed)) if changed else None


def coral_on_usb_2(facts: Facts) -> RuleEvidence | None:
    """USB 2 moves inputs and weights at 480 Mbit/s instead of 5,000."""
    slow = [
        name
        for name in (facts.environment.attached if facts.environment else ())
        if is_on_usb_2(name)
    ]
    return RuleEvidence(subject=slow[0]) if slow and facts.run.runtime.name == "edgetpu" else None


def other_threads(facts: Facts) -> RuleEvidence | None:
    """Threads of Python in the process of the caller, in which a function is measured."""
    runtime = facts.run.runtime
    if runtime.backend != IN_PROCESS:
        return None
    share_text, _, busiest = runtime.facts.get("other_threads_ratio", "0").partition(" ")
    return (
        RuleEvidence({"other_threads_ratio": float(share_text)}, busiest)
        if float(share_text) > OTHER_THREADS_RATIO
        else None
    )


def client_busy(facts: Facts) -> RuleEvidence | None:
    """The process that asks a server with several users, or at a rate."""
    run, load, scheduling = facts.run, facts.run.load, facts.run.scheduling
    if (
        not (run.generation or run.runtime.name == SERVED)
        or load is None
        or load.in_flight_max is None
        or scheduling is None
        or not scheduling.ran_ms
    ):
        return None
    ratio = scheduling.ran_ms / scheduling.window_ms
    is_local = run.generation is not None and run.generation.is_local
    return (
        RuleEvidence({"client_load_ratio": ratio})
        if ratio > MOST_BUSY_RATIO and not is_local
        else None
    )


def schedule_not_kept(facts: Facts) -> RuleEvidence | None:
    """Frames that Edgemeter, not the model, made late."""
    steady = facts.run.steady
    if steady is None:
        return None
    # Other runs do not need NumPy here.
    from edgemeter.agent.contract.frame_times import FrameTimes  # noqa: PLC0415

    times = FrameTimes.of_series(facts.run.samples, steady.rate_per_s)
    if times is None:
        return None
    delays_ns = times.delays_ns
    *_, woke_late = times.late(steady.deadline_ms)
    of_wake_ups = int(woke_late.sum())
    ratio = float(delays_ns.sum()) / float(times.latency_ns.sum())
    if (
        of_wake_ups <= OF_MISSED_RATIO * (steady.dropped + steady.late)
        and ratio <= OF_LATENCY_RATIO
    ):
        return None
    return RuleEvidence(
        {"woke_late_ms": float(delays_ns.max()) / 1e6, "frames_made_late": of_wake_ups}
    )


RULES = (
    Rule(
        "throttled",
        "disturbed",
        "the processor was throttled[ ({throttle_events:,.0f} events)]",
        "Cool the board, or lower its power mode.",
        throttled,
    ),
    Rule(
        "under-voltage",
        "disturbed",
        "the supply voltage was too low",
        "Use a stronger supply and a shorter cable.",
        under_voltage,
    ),
    Rule(
        "busy-machine",
        "disturbed",
        "other processes used {other_load_ratio:.0%} of the cores while "
        "timing[ (mostly {subject})]",
        "Close them and run again.",
        busy_machine,
    ),
    Rule(
        "waited-for-core",
        "disturbed",
        "the threads were ready but not running for {waited_ratio:.0%} of the time",
        "Close other programs, and use no more `--threads` than there are free cores.",
        waited_for_core,
    ),
    Rule(
        "stolen-time",
        "disturbed",
        "the hypervisor took {steal_ratio:.1%} of the processor time",
        "Measure on your own hardware.",
        stolen_time,
    ),
    Rule(
        "swapping",
        "disturbed",
        "{swap_grown_mb:,.0f} MB went to swap during the run",
        "Close other programs, or use a smaller model.",
        swapping,
    ),
    Rule(
        "settings-changed",
        "disturbed",
        "{subject} changed during the run",
        "Stop what changes it, and run again.",
        settings_changed,
    ),
    Rule(
        "coral-on-usb-2",
        "disturbed",
        "the accelerator is on a slow port: {subject}",
        "Use a USB 3 port and cable.",
        coral_on_usb_2,
    ),
    Rule(
        "other-threads",
        "disturbed",
        "other threads of the process ran for {other_threads_ratio:.0%} of the "
        "time[ (mostly {subject})]",
        "Stop them first, or measure a file with `edgemeter run`.",
        other_threads,
    ),
    Rule(
        "client-busy",
        "disturbed",
        "sending the queries took {client_load_ratio:.0%} of a core, which is part of each latency",
        "Use fewer users, or a lower rate.",
        client_busy,
    ),
    Rule(
        "schedule-not-kept",
        "disturbed",
        "Edgemeter woke up to {woke_late_ms:.3g} ms late and "
        "delayed {frames_made_late:,.0f} frames",
        "Close other programs and run again.",
        schedule_not_kept,
    ),
)
