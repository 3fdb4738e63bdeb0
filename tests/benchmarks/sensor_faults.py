"""How often the interval of an energy holds the truth where a sensor fails while it is read, and how often a good one is refused.

`python -m tests.benchmarks.sensor_faults [TRIALS [NAME]]` prints a line for each world of `tests.fixtures.faulty_sensors` whose name
contains NAME.
"""

import re
import sys
from collections import Counter
from dataclasses import replace
from itertools import product

from edgemeter.agent.machine.power_range import board_ranges
from tests.fixtures.faulty_sensors import Fault, Meter, Work, clips, hangs, healthy, jumps, outcome, restarts, scaled

TRIALS = 100
EVEN = Work(duty=1.0, high_w=6.0)
BURSTS = Work()
SLOW_QUERIES = Work(fps=0.2, timed_s=60.0)
CALM = Work(duty=1.0, high_w=6.0, noise_ratio=0.002)
SERVER = Work(idle_w=60.0, low_w=90.0, high_w=300.0, timed_s=60.0)
LONG = {"timed_s": 60.0, "idle_s": 20.0}
METERS = {
    "fine": Meter(),
    "ina226": Meter(window_s=0.035, step_w=0.0025),
    "ina3221 40 mW": Meter(step_w=0.04, noise_w=0.03),
    "AGX 400 mW": Meter(step_w=0.4, noise_w=0.1),
    "pmic": Meter(step_w=0.001, noise_w=0.01),
    "nvml": Meter(window_s=0.025, clock_s=(0.1, 0.1), step_w=0.001),
    "duplicates": Meter(duplicated=0.1),
    "clock of 1 s at 10 Hz": Meter(window_s=1.0, clock_s=(1.0, 1.0)),
    "clock of 3 to 6 s at 10 Hz": Meter(window_s=3.0, clock_s=(3.0, 6.0)),
    "shelly": Meter(period_ms=1000, window_s=1.0, clock_s=(1.0, 1.0), step_w=0.1, noise_w=0.02, scope="wall-ac"),
    "shelly fast": Meter(period_ms=1000, window_s=1.0, clock_s=(0.98, 1.02), step_w=0.1, noise_w=0.1, scope="wall-ac"),
    "um25c": Meter(period_ms=1000, window_s=0.5, clock_s=(0.5, 0.5), step_w=0.0005),
    "tasmota": Meter(period_ms=1000, window_s=1.0, step_w=1.0, noise_w=0.05, scope="wall-ac"),
    "tasmota dithers": Meter(period_ms=1000, window_s=1.0, step_w=1.0, noise_w=0.6, scope="wall-ac"),
}
PI = board_ranges()[0]
SLOW = {"clock of 3 to 6 s at 10 Hz": {"timed_s": 120.0, "idle_s": 40.0}}
RANDOM = Work(fps=0.5, duty=0.3, low_w=3.0, timed_s=60.0, noise_ratio=0.005, is_random=True)
RANDOM_WARM = replace(RANDOM, low_w=4.0, noise_ratio=0.002, fps=5)
WORKS = {
    "random": RANDOM,
    "random, never cold": RANDOM_WARM,
    "even": EVEN,
    "bursts": BURSTS,
    "slow queries": SLOW_QUERIES,
    "calm": CALM,
    "server": SERVER,
}


def adapted(work: Work, meter: Meter, name: str = "") -> Work:
    """Return the work, long enough for the sensor."""
    if name in SLOW:
        return replace(work, **SLOW[name])
    return replace(work, **LONG) if meter.period_ms > 500 or (meter.clock_s and meter.clock_s[0] > 0.5) else work


Cells = dict[str, tuple[Work, Meter, Fault, dict[str, object]]]


def worlds() -> Cells:
    """Return the worlds by name: work, sensor, fault, changes of the run."""
    good = {
        f"good: {name}, {kind}": (adapted(work, meter, name), meter, healthy, {})
        for (name, meter), (kind, work) in product(METERS.items(), WORKS.items())
    }
    return good | _hanging() | _clipping() | _garbled()


def _hanging() -> Cells:
    cells: Cells = {}
    for (name, meter), kind in product(METERS.items(), ("even", "bursts", "server")):
        work = adapted(WORKS[kind], meter, name)
        begin, length = work.idle_s, work.timed_s
        for kind_of_hang, stretches in {
            "hangs from 4 s on": [(begin + 4, 1e9)],
            "hangs for a third": [(begin + length / 3, begin + 2 * length / 3)],
            "hangs from idle into the load": [(begin - 3, begin + length / 4)],
            "hangs over the end": [(begin + 0.8 * length, begin + length + 4)],
            "hangs three times": [(begin + length * part, begin + length * (part + 0.15)) for part in (0.1, 0.4, 0.7)],
        }.items():
            cells[f"hang: {name}, {kind}, {kind_of_hang}"] = (work, meter, hangs(*stretches), {})
    return cells


def _clipping() -> Cells:
    names = ("fine", "ina3221 40 mW", "shelly", "clock of 1 s at 10 Hz", "tasmota")
    levels = (("even", 5.0), ("even", 6.0), ("bursts", 5.0), ("bursts", 8.0))
    return {
        f"clip: {name}, {kind}, at {at_w:g} W": (adapted(WORKS[kind], METERS[name], name), METERS[name], clips(at_w), {})
        for name, (kind, at_w) in product(names, levels)
    }


def _garbled() -> Cells:
    cells: Cells = {}
    for name in ("shelly", "tasmota", "fine"):
        meter, work = METERS[name], adapted(BURSTS, METERS[name])
        cells[f"zero: {name}, 5 s of the load"] = (work, meter, restarts(work.idle_s + 10, 6), {})
        cells[f"zero: {name}, 2 s of the load"] = (work, meter, restarts(work.idle_s + 10, 2), {})
        cells[f"zero: {name}, 5 s of idle"] = (work, meter, restarts(3, 6), {})
        for to_w in (65_535.0, 3000.0, 60.0):
            cells[f"spike: {name}, 2% of {to_w:g} W"] = (work, meter, jumps(to_w, 0.02), {})
        for factor in (1000.0, 10.0, 0.1, 0.001, -1.0):
            cells[f"unit: {name}, x {factor:g}"] = (work, meter, scaled(factor), {"draws": PI})
    return cells


def line(name: str, trials: int) -> str:
    """Return the line of one world."""
    work, meter, fault, changes = worlds()[name]
    result = outcome(work, meter, fault, trials, **changes)
    reasons = Counter(re.sub(r"[0-9.,]+", "#", reason)[:70] for reason in result.reasons)
    share = "  -  " if result.covered is None else f"{result.covered:5.2f}"
    width = "  -  " if result.width is None else f"{result.width:6.2%}"
    return f"{name:62} {trials:4} refused {result.refused:5.2f} covered {share} U {width} {dict(reasons.most_common(2)) or ''}"


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    for name in worlds():
        if len(sys.argv) < 3 or sys.argv[2] in name:
            print(line(name, trials), flush=True)
