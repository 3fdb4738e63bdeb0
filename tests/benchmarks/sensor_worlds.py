"""How often the interval of an energy holds the truth, for sensors as they really are: the published grid.

Each cell is a world of `tests.fixtures.sensor_worlds`: a load of known energy read by a sensor that lags, averages, renews its value by its
own clock or sees a share of the time, with readings lost, late and duplicated, and idle power that wanders. An energy is given, and
holds the truth in 93 to 97% of the draws, or it is refused with what it would take.

`python -m tests.benchmarks.sensor_worlds [TRIALS [NAME]]` prints a line of JSON for each cell, of those whose name contains NAME.
"""

import dataclasses
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from tests.benchmarks.comparison import Comparison, covered
from tests.fixtures.sensor_worlds import World, coverage

TRIALS = 1000
RATES_HZ = (1, 10, 100)
LAGS_S = (0.0, 0.1, 0.5, 1.0, 3.0)
# A fast sensor has shown all in 30 s; a slow one needs more, and 600 s of a fast one are too many readings for a benchmark.
LENGTHS_S = {1: (60, 600), 10: (30, 60, 600), 100: (30, 60)}
CLOCKS_S = {"1 s": (1.0, 1.0), "3 to 6 s": (3.0, 6.0)}
MISHAPS = {
    "10% lost": {"lost": 0.1},
    "30% lost in bursts": {"lost": 0.3, "burst": 4.0},
    "10% late": {"late": 0.1},
    "10% duplicated": {"duplicated": 0.1},
    "lost, late and duplicated": {"lost": 0.1, "late": 0.1, "duplicated": 0.1},
}


def grid() -> Iterator[tuple[str, World]]:
    """Yield the cells: name and world."""
    for rate, lag in product(RATES_HZ, LAGS_S):
        for timed_s in LENGTHS_S[rate]:
            yield f"{rate} Hz, lag {lag:g} s, {timed_s} s", World(rate=rate, lag_s=lag, timed_s=timed_s)
    for rate, lag, fps, locked in product((1, 10), (0.0, 1.0), (5, 100), (False, True)):
        world = World(rate=rate, lag_s=lag, fps=fps, jitter=0.0 if locked else 0.02)
        yield f"{rate} Hz, lag {lag:g} s, {fps} fps {'locked' if locked else 'jittered'}", world
    for rate, window_s in product((1, 10), (0.1, 1.0, 3.0)):
        yield f"{rate} Hz, mean of {window_s:g} s", World(rate=rate, window_s=window_s)
    for (name, update_s), timed_s in product(CLOCKS_S.items(), (60, 300)):
        yield f"renewed every {name}, {timed_s} s", World(rate=1, update_s=update_s, timed_s=timed_s)
        yield f"renewed every {name}, an even load, {timed_s} s", World(rate=1, update_s=update_s, timed_s=timed_s, duty=1.0, high_w=6.0)
        yield f"renewed every {name}, read at 10 Hz, {timed_s} s", World(rate=10, update_s=update_s, timed_s=timed_s, fps=27.3)
        yield f"the mean of each renewal every {name}, {timed_s} s", World(rate=1, update_s=update_s, window_s=update_s[0], timed_s=timed_s)
    for fps, locked in product((5, 27.3, 30, 100), (False, True)):
        world = World(update_s=(0.1, 0.1), seen=0.25, fps=fps, jitter=0.0 if locked else 0.02)
        yield f"25 of 100 ms seen, {fps:g} fps {'locked' if locked else 'jittered'}", world
    for (name, mishap), lag in product(MISHAPS.items(), (0.0, 1.0)):
        yield f"10 Hz, lag {lag:g} s, {name}", dataclasses.replace(World(lag_s=lag), **mishap)  # type: ignore[arg-type]
    for idle_s, timed_s, lag in ((30, 60, 0.0), (60, 60, 0.0), (60, 300, 0.0), (30, 60, 1.0)):
        yield (
            f"idle wanders, {idle_s} s of it, {timed_s} s timed, lag {lag:g} s",
            World(wander_w=0.2, idle_s=idle_s, timed_s=timed_s, lag_s=lag),
        )
    for rate in (1, 10):
        yield f"{rate} Hz, queries unknown", World(rate=rate, knows_queries=False)
    yield "10 Hz, steps of .1 W", World(step_w=0.1)
    yield "1 Hz, whole watts", World(rate=1, step_w=1.0)


def judged(name: str, world: World, trials: int) -> dict[str, object]:
    """Return a line of the published table; refusals by their words without the numbers."""
    result = coverage(world, trials)
    refusals = Counter(re.sub(r"[0-9.]+", "#", reason) for reason in result.refusals)
    line = dataclasses.asdict(result) | {"refusals": dict(refusals), "refused": len(result.refusals)}
    return {"cell": name, **{key: round(value, 4) if isinstance(value, float) else value for key, value in line.items()}}


def comparisons(trials: int = TRIALS) -> Iterator[Comparison]:
    """Yield how often the intervals of each cell hold the truth, gross and net; a cell whose every draw is refused has none."""
    names, worlds = zip(*grid(), strict=True)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(judged, names, worlds, [trials] * len(names)):
            yield from lines(result)


def lines(result: dict[str, object]) -> Iterator[Comparison]:
    """Yield the lines of one cell."""
    for which in ("gross", "net"):
        share = result[which]
        if isinstance(share, float):
            refused = f"{result['refused']} of {result['trials']} refused"
            yield covered(f"energy: {result['cell']}: {which} intervals that hold the truth ({refused})", share)


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    selection = sys.argv[2] if len(sys.argv) > 2 else ""
    for name, world in grid():
        if selection in name:
            print(json.dumps(judged(name, world, trials)), flush=True)
