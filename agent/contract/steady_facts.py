"""Runs of frames at a fixed rate, and long runs, in words: the same in all views."""

from edgemeter.agent.base.number_text import duration, plain_digits, share, with_uncertainty
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Energy, Steady, Sustained


def steady_facts(run: RunRecord, steady: Steady) -> dict[str, str]:
    """Return frames, answers, energy and the course of the run, by name, as far as known."""
    facts = {"frames": _frames(steady), "answers": _answers(run, steady)}
    if run.energy is not None:
        facts["energy"] = _energy(run, run.energy, steady)
    if run.sustained is not None:
        facts["over time"] = held_out(run.sustained)
    return facts


def held_out(sustained: Sustained) -> str:
    """Return the course of a long run.

    It is the run's level in the first minute, or when it throttled and by which evidence.
    """
    minutes = plain_digits(len(sustained.points) * sustained.interval_s / 60, 3)
    if sustained.level_p50_ms is None:
        return f"ran {minutes} min, too short for a level of the first minute"
    if sustained.throttled_after_s is None:
        return (
            f"held its first minute's {plain_digits(sustained.level_p50_ms)} ms for {minutes} min"
        )
    texts = {
        "latency": f"p50 rose above the first minute's {plain_digits(sustained.level_p50_ms)} ms",
        "clock": "the CPU clock fell",
    }
    return (
        f"throttled after {sustained.throttled_after_s:.0f} s: "
        f"{' and '.join(texts[quantity] for quantity in sustained.throttled_by)}"
    )


def moment(seconds: float) -> str:
    """Return a time since the start: `4.1 s`, `30 min 4 s`."""
    return f"{plain_digits(seconds, 3)} s" if seconds < 60 else duration(seconds)


def _frames(steady: Steady) -> str:
    arrived = f"{steady.frames:,} in {moment(steady.frames / steady.rate_per_s)}"
    if not steady.missed_ratio:
        return f"{arrived}; none missed"
    return (
        f"{arrived}; missed {steady.dropped + steady.late:,}, {share(steady.missed_ratio)}: "
        f"{steady.dropped:,} dropped, {steady.late:,} late"
    )


def _answers(run: RunRecord, steady: Steady) -> str:
    latency, busy_ratio = run.latency, run.load.utilisation_ratio if run.load else None
    times = [
        f"p50 {plain_digits(latency.p50_ms)} ms" if latency.p50_ms is not None else "",
        f"at most {plain_digits(latency.max_ms)} ms",
    ]
    jitter = f"jitter p90 {plain_digits(steady.jitter.p90_ms)} ms" if steady.jitter else ""
    busy = f"busy {busy_ratio:.0%} of the time" if busy_ratio is not None else ""
    return "; ".join(filter(None, (", ".join(filter(None, times)), jitter, busy)))


def _energy(run: RunRecord, energy: Energy, steady: Steady) -> str:
    provenance = energy_provenance(run)
    label = "" if provenance == "measured" else f" ({provenance})"
    answered = "an answered frame" if steady.dropped else "a frame"
    frame = f"{with_uncertainty(energy.gross_mj, energy.gross_u_mj)} mJ gross {answered}"
    return (
        f"{with_uncertainty(energy.mean_power_w, energy.mean_power_u_w)} J/s, {frame}{label}, "
        "waiting for frames included"
    )
