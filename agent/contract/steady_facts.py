"""The facts of frames at a steady rate in words that every view shows, and how any long run held out."""

from collections.abc import Iterator

from edgemeter.agent.base.figures import count, duration, plain_digits, share, with_uncertainty
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.pooled_misses import FEWEST_BURSTS
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Energy, Load, Steady, Sustained

UNSEEN = 3  # What comes so often on average is not seen by one run in twenty.


def steady_heading(run: RunRecord, steady: Steady) -> str:
    """Return what arrived, and by when it had to be answered."""
    rate, waiting = f"{plain_digits(steady.rate_per_s)} frames a second", f"{count(steady.queue_frames, 'frame')} may wait"
    return f"{run.model.name} at {rate}, deadline {plain_digits(steady.deadline_ms)} ms, {waiting}"


def steady_facts(run: RunRecord, steady: Steady) -> dict[str, str]:
    """Return frames, first miss, answers, queue, energy and how the run held out, by name, as far as there are any."""
    return dict(_facts(run, steady))


def _facts(run: RunRecord, steady: Steady) -> Iterator[tuple[str, str]]:
    yield "frames", _frames(steady)
    if steady.first_missed_s is not None:
        yield "first miss", f"after {moment(steady.first_missed_s)}{_after_throttling(run, steady)}"
    yield "answers", _answers(run, steady)
    yield "queue", _queue(steady, run.load)
    if run.energy is not None:
        yield "energy", _energy(run, run.energy, steady)
    if run.sustained is not None:
        yield "over time", held_out(run.sustained)


def held_out(sustained: Sustained) -> str:
    """Return how a long run held out: its level of the first minute, or when and by what evidence it throttled."""
    minutes = plain_digits(len(sustained.points) * sustained.interval_s / 60, 3)
    if sustained.level_p50_ms is None:
        return f"ran {minutes} min, too short for a level of the first minute"
    if sustained.throttled_after_s is None:
        return f"held its first minute's {plain_digits(sustained.level_p50_ms)} ms for {minutes} min"
    return f"throttled after {sustained.throttled_after_s:.0f} s: {sustained.evidence}"


def moment(seconds: float) -> str:
    """Return a time since the beginning: `4.1 s`, `30 min 4 s`."""
    return f"{plain_digits(seconds, 3)} s" if seconds < 60 else duration(seconds)


def _frames(steady: Steady) -> str:
    arrived = f"{steady.frames:,} in {moment(steady.frames / steady.rate_per_s)}"
    low, high = steady.missed_low_ratio, steady.missed_high_ratio
    missed = steady.dropped + steady.late
    bursts = missed if steady.bursts is None else steady.bursts
    unbounded = f"no bounds: {'more frames than are judged' if steady.effective is None else 'the frames depend on each other too much'}"
    bounds = unbounded if low is None or high is None else f"95% {share(low)} to {share(high)}"
    if steady.effective is not None and steady.effective < steady.frames:
        bounds += f"; as {count(steady.effective, 'independent frame')}"
        bounds += f", in {count(bursts, 'burst')}" if steady.bursts and bursts < FEWEST_BURSTS else ""
    elif high is not None and bursts < FEWEST_BURSTS:
        bounds += " if misses come one by one"
    if not missed:
        return f"{arrived}; none missed ({bounds}; bursts that come less than {UNSEEN} times in such a run may be unseen)"
    in_a_row = f", at most {steady.longest_row:,} in a row" if steady.longest_row > 1 else ""
    return (
        f"{arrived}; missed {missed:,}, {share(steady.missed_ratio)} ({bounds}): {steady.dropped:,} dropped, {steady.late:,} late{in_a_row}"
    )


def _after_throttling(run: RunRecord, steady: Steady) -> str:
    after_s, curve = steady.first_missed_after_throttling_s, run.sustained
    if curve is None or curve.throttled_after_s is None or steady.first_missed_s is None:
        return ""
    begun = f"the beginning of throttling ({moment(curve.throttled_after_s)})"
    if after_s is not None:
        return f"; about {moment(after_s)} from {begun} to the first after it"
    is_near = abs(steady.first_missed_s - curve.throttled_after_s) < curve.interval_s
    return f"; within {moment(curve.interval_s)} of {begun}" if is_near else ""


def _answers(run: RunRecord, steady: Steady) -> str:
    latency = run.latency
    times = [f"p50 {plain_digits(latency.p50_ms)} ms" if latency.p50_ms is not None else "", f"at most {plain_digits(latency.max_ms)} ms"]
    jitter = f"jitter p90 {plain_digits(steady.jitter.p90_ms)} ms" if steady.jitter else ""
    gap = f"at most {plain_digits(steady.longest_gap_ms)} ms without one" if steady.longest_gap_ms is not None else ""
    return "; ".join(filter(None, (", ".join(filter(None, times)), jitter, gap)))


def _queue(steady: Steady, load: Load | None) -> str:
    waiting = f"up to {count(steady.queue_max, 'frame')} waiting" if steady.queue_max else "no frame waited"
    if steady.waiting is not None:
        at_once = f", up to {steady.queue_max:,} at once" if steady.queue_max > 1 else ""
        waiting = f"{count(steady.waiting.count, 'frame')} waited, {plain_digits(steady.waiting.p50_ms)} ms (p50){at_once}"
    busy = f"; busy {load.utilisation_ratio:.0%} of the time" if load and load.utilisation_ratio is not None else ""
    return f"{waiting}{busy}"


def _energy(run: RunRecord, energy: Energy, steady: Steady) -> str:
    provenance = energy_provenance(run)
    label = "" if provenance == "measured" else f" ({provenance})"
    frame = f"{with_uncertainty(energy.gross_mj, energy.gross_u_mj)} mJ gross {of_frame(steady)}"
    return f"{with_uncertainty(energy.mean_power_w, energy.mean_power_u_w)} J/s, {frame}{label}, waiting for frames included"


def of_frame(steady: Steady) -> str:
    """Return of which frames an energy is: the dropped ones have no share."""
    return "an answered frame" if steady.dropped else "a frame"
