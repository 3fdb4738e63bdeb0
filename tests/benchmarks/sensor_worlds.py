"""How often the interval of an energy holds the truth, for sensors as they really are: cells of sensors.

Each cell is a world of `tests.fixtures.sensor_worlds`: a load of known energy read by a sensor that lags, averages, renews its value by its
own clock or sees a share of the time, with readings lost, late and duplicated, and idle power that wanders. An energy is given, and
holds the truth in 93 to 97% of the draws, or it is refused with what it would take.

`python -m tests.benchmarks.energy` prints a row for each of them, beside those of `tests.fixtures.energy_worlds`.
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from itertools import product

from tests.fixtures.sensor_worlds import World

RATES_HZ = (1, 10, 100)
LAGS_S = (0.0, 0.1, 0.5, 1.0, 3.0)
# A fast sensor has shown all in 30 s, and minutes of its readings are too many for a benchmark; a slow one needs more.
LENGTHS_S = {1: (60, 300), 10: (30, 60), 100: (30,)}
CLOCKS_S = {"1 s": (1.0, 1.0), "3 to 6 s": (3.0, 6.0)}
MISHAPS = {
    "10% lost": {"lost": 0.1},
    "30% lost in bursts": {"lost": 0.3, "burst": 4.0},
    "10% late": {"late": 0.1},
    "10% duplicated": {"duplicated": 0.1},
    "lost, late and duplicated": {"lost": 0.1, "late": 0.1, "duplicated": 0.1},
}
# A closed loop as the engine times it: power rises and falls within 2 ms, up to 2 ms after the query begins and after its busy part.
USUAL = World(closed=True, pauses=True, edge_s=0.002, work_s=0.002)
usual = partial(dataclasses.replace, USUAL)


def grid() -> Iterator[tuple[str, World]]:
    """Yield the cells: name and world."""
    for rate, lag in product(RATES_HZ, LAGS_S):
        for timed_s in LENGTHS_S[rate]:
            yield f"{rate} Hz, lag {lag:g} s, {timed_s} s", usual(rate=rate, lag_s=lag, timed_s=timed_s)
    yield from _loads()
    yield from _clocks()
    for (name, mishap), lag in product(MISHAPS.items(), (0.0, 1.0)):
        yield f"10 Hz, lag {lag:g} s, {name}", dataclasses.replace(usual(lag_s=lag), **mishap)  # type: ignore[arg-type]
    for idle_s, timed_s, lag in ((30, 60, 0.0), (60, 60, 0.0), (60, 300, 0.0), (30, 60, 1.0)):
        yield (
            f"idle wanders, {idle_s} s of it, {timed_s} s timed, lag {lag:g} s",
            usual(wander_w=0.2, idle_s=idle_s, timed_s=timed_s, lag_s=lag),
        )
    for rate in (1, 10):
        yield f"{rate} Hz, queries unknown", usual(rate=rate, knows_queries=False, pauses=False)
    yield "10 Hz, steps of .1 W", usual(step_w=0.1)
    yield "1 Hz, whole watts", usual(rate=1, step_w=1.0)


def _loads() -> Iterator[tuple[str, World]]:
    """Yield loads of other edges, rates and rhythms."""
    for rate, edge_ms in product((1, 10), (0.0, 0.2, 5.0, 20.0)):
        yield f"{rate} Hz, edges of {edge_ms:g} ms", usual(rate=rate, edge_s=edge_ms / 1000, work_s=edge_ms / 1000)
    for rate in (1, 10):
        yield f"{rate} Hz, ramps of 5 ms, bursts that differ by 5%", usual(rate=rate, edge_s=0.0, ramp_s=0.005, uneven=0.05)
        yield f"{rate} Hz, gaps between queries", usual(rate=rate, closed=False, pauses=False)
        yield f"{rate} Hz, no pauses", usual(rate=rate, pauses=False)
    for rate, lag, fps, locked in product((1, 10), (0.0, 1.0), (5, 100), (False, True)):
        world = usual(rate=rate, lag_s=lag, fps=fps, jitter=0.0 if locked else 0.02)
        yield f"{rate} Hz, lag {lag:g} s, {fps} fps {'locked' if locked else 'jittered'}", world
    for rate, window_s in product((1, 10), (0.1, 1.0, 3.0)):
        yield f"{rate} Hz, mean of {window_s:g} s", usual(rate=rate, window_s=window_s)


def _clocks() -> Iterator[tuple[str, World]]:
    """Yield sensors that renew their value by a clock of their own."""
    for (name, update_s), timed_s in product(CLOCKS_S.items(), (60, 300)):
        clock = usual(update_s=update_s, timed_s=timed_s)
        yield f"renewed every {name}, {timed_s} s", dataclasses.replace(clock, rate=1)
        yield f"renewed every {name}, an even load, {timed_s} s", dataclasses.replace(clock, rate=1, duty=1.0, high_w=6.0)
        yield f"renewed every {name}, read at 10 Hz, {timed_s} s", dataclasses.replace(clock, fps=27.3)
        yield f"the mean of each renewal every {name}, {timed_s} s", dataclasses.replace(clock, rate=1, window_s=update_s[0])
    for fps, locked in product((5, 27.3, 30, 100), (False, True)):
        world = usual(update_s=(0.1, 0.1), seen=0.25, fps=fps, jitter=0.0 if locked else 0.02)
        yield f"25 of 100 ms seen, {fps:g} fps {'locked' if locked else 'jittered'}", world
    for pauses, fps, jitter in product((False, True), (50, 30), (0.0, 0.005)):
        world = usual(update_s=(1 / fps, 1 / fps), fps=fps, jitter=jitter, pauses=pauses)
        name = f"a clock that no reading shows, in step with {fps} fps, jitter {jitter:.1%}"
        # The engine pauses closed loops, and shifts frames of an exact rate.
        yield name if pauses else f"{name}, no pauses (a limit)", world
    yield "half of a clock of 25 ms, in step with 40 fps", usual(update_s=(0.025, 0.025), seen=0.5, fps=40, jitter=0.0)
