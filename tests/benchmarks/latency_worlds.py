"""How often the bounds of a percentile hold it where queries depend on each other, and intervals of pairs in turn where neighbours do.

Each cell is a world of `tests.fixtures.latency_worlds` or `tests.fixtures.pair_worlds`. Bounds hold the truth in 93 to 97% of the draws, or
are absent with the number of queries that it would take; where a run holds few bursts of another job, or none, nothing in it can tell.

`python -m tests.benchmarks.latency_worlds [DRAWS [NAME]]` prints a line of JSON for each cell, of those whose name contains NAME.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product

from tests.benchmarks.comparison import Comparison, covered
from tests.fixtures import latency_worlds, pair_worlds

DRAWS = 200
QUERIES = (64, 1024, 10_000)
PAIRS = (5, 10, 20, 30)
LATENCIES = (
    latency_worlds.INDEPENDENT,
    *(latency_worlds.stamped(latency_worlds.INDEPENDENT, step_ms) for step_ms in (0.001, 1.0)),
    *map(latency_worlds.autoregressive, (0.3, 0.5, 0.9, 0.99)),
    *map(latency_worlds.bursts, (5, 20, 50, 100, 500)),
    *(latency_worlds.queue(load, service) for load, service in product((0.5, 0.8, 0.95), "DM")),
    *map(latency_worlds.collected, (50, 500)),
    *(latency_worlds.wave(period, 0.05) for period in (100, 1000)),
    *map(latency_worlds.ramp, (0.05, 0.2)),
)
IN_TURN = (
    *map(pair_worlds.of_pairs, (0.0, 0.3, 0.6, 0.8)),
    *map(pair_worlds.of_runs, (0.6, 0.9)),
    *map(pair_worlds.drifting, (0.05, 0.2)),
    *map(pair_worlds.in_step, (4, 8)),
    pair_worlds.PairWorld("one run in ten disturbed", pair_worlds.heavy),
)


def cells(draws: int = DRAWS) -> Iterator[dict[str, object]]:
    """Yield what each cell came to: its name, and the figures of each percentile or of the pairs."""
    for world, queries in product(LATENCIES, QUERIES):
        results = latency_worlds.coverage(world, queries, draws)
        yield from ({"cell": f"{world.name}, {queries} queries, {name}", **asdict(result)} for name, result in results.items())
    for pair_world, planned in product(IN_TURN, PAIRS):
        result = pair_worlds.coverage(pair_world, planned, draws, stops=True)
        yield {"cell": f"{pair_world.name}, {planned} pairs", "draws": draws, **asdict(result)}


def comparisons(draws: int = DRAWS) -> Iterator[Comparison]:
    """Yield how often the intervals hold the truth; percentiles that are absent in every draw have none."""
    for cell in cells(draws):
        share, total, absent = cell["covered"], int(str(cell["draws"])), int(str(cell.get("absent", 0)))
        share = share if isinstance(share, float) else int(str(share)) / max(1, total - absent)
        if absent < total:
            yield covered(f"{cell['cell']}: intervals that hold the truth ({absent} of {total} absent)", share)


if __name__ == "__main__":
    selection = sys.argv[2] if len(sys.argv) > 2 else ""
    for line in cells(int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS):
        if selection in str(line["cell"]):
            print(json.dumps(line), flush=True)
