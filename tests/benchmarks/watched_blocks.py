"""How often the interval of a watched block holds the truth, and the properties that a self-test tells of sensors that are known.

`python -m tests.benchmarks.watched_blocks [TRIALS [NAME]]` prints a line of JSON for each world of `tests.fixtures.block_worlds`, then one
for each sensor of `tests.fixtures.tested_sensors`, of those whose name contains NAME.
"""

import json
import sys
from collections.abc import Iterator
from itertools import product

from edgemeter.agent.energy.self_test import judged
from tests.fixtures.block_worlds import BlockWorld, block_coverage
from tests.fixtures.sensor_worlds import World
from tests.fixtures.tested_sensors import SENSORS, readings_of

TRIALS = 100
SELF_TESTS = 6
BLOCKS_S = (0.3, 2.0, 10.0, 30.0)
RATES_HZ = (1, 10, 100)
FOLLOWS = {
    **{f"lag {lag:g} s": {"lag_s": lag} for lag in (0.0, 0.1, 0.5, 1.0)},
    "mean of 1 s": {"window_s": 1.0},
    "clock 1 s": {"update_s": (1.0, 1.0)},
    "clock .2 to .6 s": {"update_s": (0.2, 0.6)},
    "idle wanders": {"wander_w": 0.2},
    "steps of .1 W": {"step_w": 0.1},
}
PROPERTIES = ("delay_s", "window_s", "lag_s", "update_interval_s", "seen_ratio", "resolution", "step")


def worlds() -> Iterator[tuple[str, BlockWorld]]:
    """Yield the worlds: name and world."""
    for rate, (name, fields), block_s in product(RATES_HZ, FOLLOWS.items(), BLOCKS_S):
        sensor = World(rate=rate, noise_w=0.02, **fields)  # type: ignore[arg-type]
        yield f"{rate} Hz, {name}, {block_s:g} s", BlockWorld(sensor, block_s, idle_s=max(10.0, 14 / rate))
    for rate, burst_hz, block_s in product(RATES_HZ, (0.7, 5.0), BLOCKS_S):
        sensor = World(rate=rate, noise_w=0.02)
        world = BlockWorld(sensor, block_s, burst_hz=max(burst_hz, 1 / block_s), duty=0.4, idle_s=max(10.0, 14 / rate))
        yield f"{rate} Hz, {burst_hz:g} bursts a second, {block_s:g} s", world


def self_tests(name: str, tests: int) -> dict[str, object]:
    """Return of each property how many of the stated intervals hold the truth, and how many were stated."""
    sensor = SENSORS[name]
    truths = sensor.truths()
    counts = {field: [0, 0] for field in PROPERTIES}
    for seed in range(tests):
        test = judged(readings_of(sensor, seed), sensor.describe(), "board")
        for field, truth in truths.items():
            measured = getattr(test, field)
            if measured.value is not None:
                counts[field][1] += 1
                counts[field][0] += truth is not None and measured.low <= truth <= measured.high
    return {
        "sensor": name,
        "findings": test.findings,
        **{field: f"{holding} of {intervals}" for field, (holding, intervals) in counts.items()},
    }


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    selection = sys.argv[2] if len(sys.argv) > 2 else ""
    for name, world in worlds():
        if selection in name:
            print(json.dumps({"world": name, **block_coverage(world, trials)}), flush=True)
    for name in SENSORS:
        if selection in name:
            print(json.dumps(self_tests(name, SELF_TESTS)), flush=True)
