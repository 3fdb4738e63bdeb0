"""Facts about the worlds that judge the energy.

In each kind of them an energy is given or refused.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.fixtures.energy_worlds import Bursts, Fan, Requests, World, draw_trial, lagged
from tools.energy_coverage import LIMIT, Result, cells, measure


def truths(world, seed=3):
    """Return the true powers of a draw, gross and net."""
    trial = draw_trial(world, np.random.default_rng(seed))
    return np.array([trial.gross_w, trial.net_w])


def test_the_truth_of_a_plain_loop_is_that_of_its_levels():
    """Half of a cycle takes 6 W above 3 W of idle, and the other half takes 1 W.

    A fan adds 2 W for the last 25 of 30 s, and nothing follows.
    """
    plain = World(
        load=Bursts(jitter=0, uneven=0, is_paused=False), timed_s=30, wander_w=0, warm_up_s=0
    )
    assert truths(plain) == pytest.approx([6.5, 3.5], rel=0.002)
    assert truths(replace(plain, fan=Fan(2.0, after_s=5.0, on_s=10.0))) == pytest.approx(
        [6.5 + 5 / 3, 3.5 + 5 / 3], rel=0.002
    )


def test_the_truth_of_requests_leaves_their_gaps_out():
    """Requests take 9 W in four fifths of the time, and gaps are left out.

    In turn, 1 s takes 8 W, 1 s takes 4 W, and .5 s of a gap takes 1 W, above 3 W of idle.
    """
    load = Requests((1.0, 1.0), (1.0, 1.0), (0.5, 0.5))
    world = World(load=load, timed_s=50, wander_w=0, warm_up_s=0)
    assert truths(world) == pytest.approx([9 * 40 / 49.5, 6 * 40 / 49.5], rel=0.002)


@pytest.mark.parametrize(
    "name", ["10 Hz, nothing special", "served requests", "throttling with leakage, 10 Hz"]
)
def test_the_truth_is_that_of_a_finer_grid(name):
    """A grid of an eighth of a millisecond changes the truth by less than a thousandth."""
    world = cells()[name](np.random.default_rng(1))
    assert truths(replace(world, grid_s=0.000125)) == pytest.approx(truths(world), rel=1e-3)


def test_a_lag_follows_its_exponential():
    """The power rises for a second with a lag of .5 s, and falls for .1 s with one of .1 s."""
    power = np.concatenate((np.zeros(1), np.ones(1000), np.zeros(100)))
    lagged_w = lagged(power, 0.5, 0.1, 0.001)
    assert lagged_w[[1000, 1100]] == pytest.approx(
        [1 - math.exp(-2), (1 - math.exp(-2)) * math.exp(-1)]
    )


@pytest.mark.parametrize("name", list(cells())[::8])
def test_a_cell_gives_an_energy_or_a_reason(name):
    """One cell in eight is drawn twice."""
    result = measure(name, 2)
    assert result.trials == 2
    assert all(
        math.isfinite(error) and u > 0 and true_w > 0
        for error, u, true_w in (*result.gross, *result.net)
    )
    assert all(result.reasons)


@pytest.mark.parametrize(
    ("name", "holding", "missed", "refused", "fails"),
    [
        ("a", 268, 32, 0, False),
        ("a", 267, 33, 0, True),
        ("a", 3, 27, 270, False),
        ("a", 20, 20, 260, True),
        (LIMIT, 0, 9, 0, False),
    ],
)
def test_a_cell_fails_that_holds_the_truth_too_seldom(name, holding, missed, refused, fails):
    """Intervals of 92% hold 267 of 300 or fewer in less than one draw of twenty.

    A cell that is mostly refused is not judged.
    """
    judged = ((0.0, 1.0, 5.0),) * holding + ((2.0, 1.0, 5.0),) * missed
    assert Result(name, judged, (), ("too short",) * refused).fails is fails
