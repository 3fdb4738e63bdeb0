"""Rules on frames at a fixed rate: whether the model holds it, what was missed, and whether Edgemeter itself kept the schedule.

What a camera misses is an answer, not a fault of the measurement: no such run is invalid for it. A queue is bounded, so that figures do not
depend on how long the run was.
"""

import numpy as np

from edgemeter.agent.contract.frame_times import FrameTimes
from edgemeter.agent.verdict.condition_rules import throttling_evidence
from edgemeter.agent.verdict.rule import Rules, RunFacts

# As of all missed frames as late wake-ups may cause, and as much of the latency as may be theirs.
OF_MISSED_RATIO = 0.10
OF_LATENCY_RATIO = 0.03
RULES = Rules()


@RULES.suspect(
    "the model keeps up with frames at a fixed rate",
    "beyond it the queue is always full, and latency is its length",
    "lower `--rate`, or a faster model",
)
def _rate_not_held(facts: RunFacts) -> str | None:
    load, steady = facts.measured.load, facts.measured.steady
    if load is None or steady is None or load.is_sustained is not False:
        return None
    return (
        f"{steady.rate_per_s:g} frames/s arrived, {load.achieved_per_s:.4g}/s were answered; {steady.dropped} of {steady.frames} were "
        f"dropped, {steady.late} late: lower the rate"
    )


@RULES.suspect(
    "the board reported no throttling in a minute or more of frames at a fixed rate",
    "what is missed then depends on its cooling",
    "cool the board, or lower `--rate`",
)
def _throttled_at_rate(facts: RunFacts) -> str | None:
    return throttling_evidence(facts) if facts.measured.is_long_schedule else None


@RULES.suspect(
    "Edgemeter wakes up in time for frames that the model is free for",
    "else it makes them late, not the model",
    "end other programs",
)
def _schedule_not_kept(facts: RunFacts) -> str | None:
    steady = facts.measured.steady
    times = FrameTimes.of_series(facts.measured.samples, steady.rate_per_s) if steady else None
    if steady is None or times is None:
        return None
    delays_ns = times.delays_ns
    of_wake_ups = int(np.count_nonzero(times.woke_late(steady.deadline_ms)))
    ratio = float(delays_ns.sum()) / float(times.latency_ns.sum())
    if of_wake_ups <= OF_MISSED_RATIO * (steady.dropped + steady.late) and ratio <= OF_LATENCY_RATIO:
        return None
    return (
        f"Edgemeter woke up to {delays_ns.max() / 1e6:.3g} ms late for frames, {ratio:.1%} of the latency, and made {of_wake_ups} of "
        f"{steady.dropped + steady.late} missed ones late: the machine was busy"
    )


@RULES.note(
    "each frame at a fixed rate has its answer by the deadline",
    "what is missed is what was asked for",
    "a longer `--deadline`, a lower `--rate`",
)
def _frames_missed(facts: RunFacts) -> str | None:
    load, steady = facts.measured.load, facts.measured.steady
    if steady is None or steady.first_missed_s is None or load is None or load.is_sustained is False:
        return None
    return (
        f"{steady.dropped + steady.late} of {steady.frames} frames were missed by {steady.deadline_ms:g} ms ({steady.dropped} dropped, "
        f"{steady.late} late), {steady.longest_row} in a row at most, the first after {steady.first_missed_s:.4g} s"
    )
