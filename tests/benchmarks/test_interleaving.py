"""Facts about pairs of blocks that take turns: their interval holds the truth, they end when it decides, and who disturbs costs time."""

import os
from itertools import count, cycle

import numpy as np
import pytest

from edgemeter.agent.machine.load import ProcessTable
from tests.benchmarks import interleaving
from tests.benchmarks.block_timings import BLOCK_S, MadeUpBlocks
from tests.benchmarks.comparison import at_least, at_most
from tests.fixtures.rows import table_row

RATIO, SECONDS = 1.01, 8.0
WORLDS = (
    MadeUpBlocks("independent"),
    MadeUpBlocks("the machine wanders", machine=0.05, correlation=0.6),
    MadeUpBlocks("the machine wanders slowly", machine=0.2, correlation=0.99),
    MadeUpBlocks("the ratio wanders", apart=0.02, correlation=0.6),
    MadeUpBlocks("the ratio wanders slowly", apart=0.02, correlation=0.9),
    MadeUpBlocks("a fifth is disturbed", machine=0.02, correlation=0.6, disturbed_ratio=0.2),
)
# So near the truth that nothing is decided; where chance decides many; and where all end early.
LIMITS = (RATIO + 1e-4, RATIO + 0.003, RATIO + 0.02)


def outcomes(world, limit, seconds, comparisons):
    """Return of so many comparisons the shares whose interval holds the ratio, that ended before their time, and that miss a goal met."""
    results = [world.measure(RATIO, at_most(limit), seconds, seed) for seed in range(comparisons)]
    last = round(seconds / BLOCK_S / 2)
    return [
        float(np.mean(values))
        for values in (
            [result.low <= RATIO <= result.high for result in results],
            [result.pairs + result.repeated < last for result in results],
            [result.low > limit for result in results],
        )
    ]


@pytest.mark.nightly
def test_the_interval_holds_the_ratio_wherever_a_line_stops():
    """At least 93% of 300 intervals hold it in each world, for a goal that decides early, late or never; at most 5% are called missed."""
    for world in WORLDS:
        for limit in LIMITS:
            with table_row(world.name, limit):
                covered, early, missed = outcomes(world, limit, SECONDS, 300)
                assert covered >= 0.93
                assert missed <= 0.05
                assert early >= 0.8 if limit == LIMITS[2] else early <= 0.2


def test_the_interval_of_a_short_line_holds_the_ratio():
    """Sixteen pairs, in which dependence hardly shows: 90% of 40 and more, with the looks before the end."""
    for world in (WORLDS[0], WORLDS[5]):
        with table_row(world.name):
            assert outcomes(world, RATIO + 0.03, 0.16, 40)[0] >= 0.9


def test_a_line_ends_when_its_interval_decides():
    """Far from the goal after an eighth of the time, on either side; at the goal, and where nothing is asked, not before its end."""
    world = WORLDS[0]
    for goal, pairs in ((at_most(1.1), 100), (at_most(0.9), 100), (at_least(0.9), 100), (at_most(RATIO), 800), (at_most(1.1, 0.001), 800)):
        with table_row(goal.text):
            assert world.measure(RATIO, goal, SECONDS, 1).pairs == pairs


def test_a_disturbed_pair_is_measured_again():
    """What the watch saw is in no figure, and counted; where all pairs are disturbed they count, and the line is not sure."""
    result = MadeUpBlocks("disturbed", disturbed_ratio=0.2).measure(RATIO, at_most(RATIO), SECONDS, 1)
    assert 200 < result.repeated < 400
    assert result.pairs + result.repeated == 800
    assert result.peer == pytest.approx(1.0, abs=0.01)
    noisy = MadeUpBlocks("noisy", disturbed_ratio=1.0).measure(RATIO, at_most(2.0), 0.2, 1)
    assert (noisy.pairs, noisy.repeated, noisy.has_quiet_pairs) == (20, 20, False)


def test_pairs_take_turns_in_an_order_that_is_drawn():
    """Neither comes first always, each comes first as often, and another line has another order."""
    numbers = count()

    def order(seed):
        pair = interleaving.in_turn(lambda: next(numbers), lambda: next(numbers), seed)
        return [first < second for first, second in (pair() for _ in range(40))]

    first, second = order(1), order(2)
    assert first.count(True) == second.count(True) == 20
    assert first != second
    assert all(a != b for a, b in zip(first[::2], first[1::2], strict=True))


def test_of_blocks_with_processes_only_others_disturb(monkeypatch):
    """A broker that a block started may take the cores; as many clock ticks of anybody else's process disturb, from the first pair on."""

    def table(parent, ticks):
        benchmark, broker = os.getpid(), os.getpid() + 1
        spent = {(benchmark, 1): 10, (broker, 2): ticks}
        return ProcessTable(10 + 2 * ticks, 10 + ticks, spent, children={benchmark: 0, broker: 0}, parents={benchmark: 1, broker: parent})

    for parent, repeated in ((os.getpid(), 0), (1, 4)):
        with table_row(parent):
            tables = cycle([table(parent, 0), table(parent, 150)])
            monkeypatch.setattr(interleaving, "read_processes", lambda _, tables=tables: next(tables))
            result = interleaving.measure(lambda: (2.0, 1.0), 0.0, lambda _: False, has_processes=True)
            assert (result.pairs, result.repeated) == (4, repeated)
