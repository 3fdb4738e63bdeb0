"""How often a choice says something that is false: a case that is said to meet a limit or not to, or a best case that is left out.

Truths are known and lie close to their limits, and close to each other, which is where chance decides; days scatter by 2%, normally, with
heavy tails, disturbed (one in ten) or skewed, runs of a day by 1%, meters are off within their uncertainty, accuracies are of images drawn.
A choice is false if any of its statements is.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from edgemeter.collector.choose.choice import choose
from edgemeter.collector.choose.limits import parse_limits
from edgemeter.collector.compare.views import gather
from edgemeter.collector.runs.store import StoreContents
from tests.benchmarks.comparison import Comparison, against
from tests.fixtures.choice_worlds import LIMITS, P50_MS, World, drawn_world

DRAWS, STATED = 400, 0.05
WORLDS = [World(cases=cases, days=days, kind="normal") for cases in (2, 6) for days in (3, 4, 5, 7, 10)]
WORLDS += [World(days=days, kind=kind) for kind in ("heavy", "disturbed", "skewed") for days in (3, 5, 10)]


def comparisons() -> Iterator[Comparison]:
    """Yield for each world the share of choices with a false statement about a limit, and that of choices that leave out the best."""
    for world in WORLDS:
        name = f"{world.cases} cases, {world.days} days, {world.kind}"
        for claim, share in (("false about a limit", false_limits(world)), ("the best left out", best_left_out(world))):
            # So many more as 400 draws show by chance.
            yield against(f"{name}: {claim}", "of the choices", share, ("stated", STATED), "<= 7%", met=share <= 0.07)


def false_limits(world: World, draws: int = DRAWS, seed: int = 1) -> float:
    """Return the share of choices in which a case is said to be on a side of a limit on which it is not."""
    draw, false = np.random.default_rng(seed), 0
    limits = parse_limits(LIMITS)
    for _ in range(draws):
        world_drawn = drawn_world(draw, world)
        choice = choose(gather(StoreContents(world_drawn.runs), "all").summaries, limits, "latency")
        wrong = False
        for candidate in choice.candidates:
            truths = world_drawn.truths[candidate.case.key.runtime]
            for finding, truth in zip(candidate.findings, truths, strict=True):
                is_met = truth >= finding.limit.value if finding.limit.side == "at least" else truth <= finding.limit.value
                wrong |= finding.state == ("does not meet" if is_met else "meets")
        false += wrong
    return false / draws


def best_left_out(world: World, draws: int = DRAWS, seed: int = 2) -> float:
    """Return the share of choices in which the truly fastest case is neither the pick nor among what is not told apart from it."""
    draw, false = np.random.default_rng(seed), 0
    limits = parse_limits("p50<=60ms")
    for _ in range(draws):
        truths = np.tile([P50_MS, 50.0, 300.0, 0.6], (world.cases, 1))
        truths[:, 0] *= np.exp(world.apart * draw.normal(size=world.cases))
        world_drawn = drawn_world(draw, replace(world, apart=0.0), truths)
        choice = choose(gather(StoreContents(world_drawn.runs), "all").summaries, limits, "latency")
        best = min(world_drawn.truths, key=lambda runtime: world_drawn.truths[runtime][0])
        level = [candidate.case.key.runtime for candidate in (choice.pick, *choice.rivals) if candidate]
        false += bool(level) and best not in level
    return false / draws
