"""Facts about pairs of blocks that take turns: they end when their interval decides, and who disturbs costs time."""

import os
from itertools import count, cycle

import numpy as np
import pytest

from edgemeter.agent.machine.load import ProcessTable
from tests.benchmarks import interleaving
from tests.benchmarks.comparison import at_least, at_most
from tests.fixtures.rows import table_row

RATIO, SECONDS, BLOCK_S = 1.01, 8.0, 0.005


def measured(goal, seconds=SECONDS, disturbed_ratio=0.0, seed=1):
    """Return what is said of blocks whose times scatter by 2%; disturbed ones take up to twice as long, which the watch sees."""
    draw = np.random.default_rng(seed)
    is_disturbed = draw.random(2_000) < disturbed_ratio
    times = np.exp(0.02 * draw.standard_normal(2_000)) * (1 + is_disturbed * draw.random(2_000))
    number = 0

    def block(ratio):
        nonlocal number
        number += 1
        return float(ratio * times[number - 1])

    class Watched(interleaving.Watch):
        def __init__(self, *, is_long):
            assert not is_long
            self._first = number

        def is_disturbed(self):
            return bool(is_disturbed[self._first : number].any())

    pair = interleaving.in_turn(lambda: block(RATIO), lambda: block(1.0), seed)
    return interleaving.measure(pair, seconds, goal.is_decided_by, clock=lambda: number * BLOCK_S, watch=Watched)


def test_a_line_ends_when_its_interval_decides():
    """Far from the goal after an eighth of the time, on either side; at the goal, and where nothing is asked, not before its end."""
    for goal, pairs in ((at_most(1.1), 100), (at_most(0.9), 100), (at_least(0.9), 100), (at_most(RATIO), 800), (at_most(1.1, 0.001), 800)):
        with table_row(goal.text):
            assert measured(goal).pairs == pairs


def test_the_interval_of_a_short_line_holds_the_ratio():
    """Sixteen pairs: 90% of 40 and more, with the looks before the end."""
    results = [measured(at_most(RATIO + 0.03), 0.16, seed=seed) for seed in range(40)]
    assert np.mean([result.low <= RATIO <= result.high for result in results]) >= 0.9


def test_a_disturbed_pair_is_measured_again():
    """What the watch saw is in no figure, and counted; where all pairs are disturbed they count, and the line is not sure."""
    result = measured(at_most(RATIO), disturbed_ratio=0.2)
    assert 200 < result.repeated < 400
    assert result.pairs + result.repeated == 800
    assert result.peer == pytest.approx(1.0, abs=0.01)
    noisy = measured(at_most(2.0), 0.2, disturbed_ratio=1.0)
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
