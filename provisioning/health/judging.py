"""Judges one golden run by the device's earlier ones, and says in words what is wrong and what changed beside it."""

import time
from collections.abc import Mapping, Sequence

from edgemeter.agent.health.contract import Health
from edgemeter.provisioning.health import band
from edgemeter.provisioning.health.golden import GoldenRun

# A difference of temperature that can be the reason.
WARMER_C = 8.0
TEMPERATURE = "temperature_max_c"
OWN_VERDICT = "its own verdict"
BESIDE = ("agent", "kernel", "os", "power_mode", "governor", "python", "serial")


def judged(
    job: str,
    device: str,
    ended_ns: int,
    figures: Mapping[str, float],
    earlier: Sequence[GoldenRun],
    health: Health | None,
    reason: str | None = None,
) -> tuple[GoldenRun, str | None]:
    """Return the run as it is kept, and why the device is to be suspected, None where it is not.

    `reason` is what the run says against itself: a rule of measuring that was broken.
    """
    own = [one for one in earlier if one.is_kept]
    found = band.outside(figures, [one.figures for one in own])
    beside = {**around(figures, health), OWN_VERDICT: (reason or "valid").partition(":")[0]}
    doubted = earlier[-1].doubted if earlier else ()
    is_wrong = band.is_wrong(found, doubted)
    # What is wrong does not widen the band by which it was found; a single doubt is this board's own noise.
    run = GoldenRun(job, device, ended_ns, figures, beside, tuple(one.side for one in found), is_kept=not is_wrong)
    if not is_wrong:
        return run, None
    first = first_outside(found[0].side, earlier)
    since = f" since {time.strftime('%Y-%m-%d %H:%M', time.gmtime((first or ended_ns) / 1e9))} UTC"
    changes = changed(own[-1] if own else None, run)
    beside_text = f"; changed beside it: {', '.join(changes)}" if changes else "; nothing that is known changed beside it"
    others = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return run, f"{found[0]}{others}{since}{beside_text}"


def around(figures: Mapping[str, float], health: Health | None) -> dict[str, str]:
    """Return what stood beside a golden run."""
    found = {name: value for name in BESIDE if health is not None and (value := getattr(health, name)) is not None}
    warmest = figures.get(TEMPERATURE) or (max(health.temperatures_c.values(), default=None) if health else None)
    if warmest is not None:
        found["temperature"] = f"{warmest:.0f} C"
    if health is not None and health.is_throttled_since_boot:
        found["throttled"] = "yes"
    if health is not None and health.is_under_voltage_since_boot:
        found["under-voltage"] = "yes"
    return found


def changed(before: GoldenRun | None, after: GoldenRun) -> list[str]:
    """Return what stood otherwise beside the last run within the band: `agent 1.0 -> 1.1`."""
    if before is None:
        return []
    found = []
    for name in dict.fromkeys((*before.beside, *after.beside)):
        old, new = before.beside.get(name), after.beside.get(name)
        if old == new or (name == "temperature" and not _is_warmer(old, new)):
            continue
        found.append(f"{name.replace('_', ' ')} {old or 'not told'} -> {new or 'not told'}")
    return found


def first_outside(side: str, earlier: Sequence[GoldenRun]) -> int | None:
    """Return when the row of runs began that were outside on this side, up to now; None where this is the first."""
    first = None
    for run in reversed(earlier):
        if side not in run.doubted:
            break
        first = run.ended_ns
    return first


def _is_warmer(old: str | None, new: str | None) -> bool:
    if old is None or new is None:
        return False
    return abs(float(old.split()[0]) - float(new.split()[0])) >= WARMER_C
