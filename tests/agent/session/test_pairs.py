"""Facts about `edgemeter.agent.session.pairs`: what follows from the log ratios of pairs of runs, and when it is clear."""

from math import log

import numpy as np
import pytest

from edgemeter.agent.session import in_turn, pairs
from tests.fixtures.first_order import first_order
from tests.fixtures.rows import table_row

DRAWS = 150
# Ten pairs, spread by about 1% around 0.
NOISE = np.array([0.011, -0.009, 0.004, -0.012, 0.008, -0.003, 0.012, -0.007, 0.001, -0.005])


def judged(shift: float, scale: float = 1.0, count: int = 10, **settings):
    """Return the judgement on so many pairs whose log ratios lie around `shift`."""
    return pairs.judge_pairs((shift + scale * NOISE[:count]).tolist(), **settings)


def test_ratio_and_spread_make_the_verdict():
    """A clear difference, a clear absence of one that matters, and what is not settled."""
    for ratio, scale, state in [
        (1.1, 1.0, "higher"),
        (0.9, 1.0, "lower"),
        (1.0, 1.0, "alike"),
        (1.005, 1.0, "alike"),
        (1.02, 0.1, "alike"),
        (1.02, 5.0, "not settled"),
        (1.0, 5.0, "not settled"),
    ]:
        with table_row(ratio, scale):
            judgement = judged(log(ratio), scale)
            assert judgement.state == state
            assert judgement.low <= ratio <= judgement.high
            assert judgement.ratio == pytest.approx(ratio, rel=0.01 * scale)
            assert (judgement.more_pairs is None) == (state != "not settled")
    # Two percent with hardly any spread do not matter by default, and are slower where 1% matters.
    assert judged(log(1.02), 0.1, matters_ratio=0.01).state == "higher"
    # A ratio at the border of what matters, with a wide spread, is not settled by a thousand pairs.
    assert judged(log(1.03), 100.0).more_pairs is None


def test_one_pair_gives_only_its_ratio():
    """There is no spread to judge by, and so no interval."""
    judgement = pairs.judge_pairs([log(1.5)])
    assert judgement.state == "not judged"
    assert judgement.ratio == pytest.approx(1.5)
    assert judgement.low is None
    assert judgement.high is None
    assert judgement.more_pairs is None
    assert pairs.judge_pairs([]).ratio is None


def test_only_a_clear_outcome_ends_a_comparison_early():
    """A difference of 50% ends it at the fifth pair, not before; the outcome that ten pairs just support does not, nor an open one."""
    clear = (log(1.5) + NOISE).tolist()
    assert [pairs.is_settled(clear[:n], 10) for n in (4, 5, 10)] == [False, True, False]
    weak = (log(1.03) + NOISE).tolist()
    assert pairs.judge_pairs(weak).state == "higher"
    assert not pairs.is_settled(weak[:5], 10)
    assert not any(pairs.is_settled((5 * NOISE).tolist()[:n], 10) for n in range(11))


def test_the_longer_the_plan_the_stricter_each_interim_test():
    """All interim tests share one error: five pairs that end a comparison of ten do not end one of a thousand."""
    rows = [(log(1.5) + scale * NOISE[:5]).tolist() for scale in (1, 2, 3, 4, 5, 6, 7)]
    short, long = ([pairs.is_settled(row, planned) for row in rows] for planned in (10, 1000))
    assert sum(short) > sum(long) > 0


def test_neighbours_that_depend_are_named_with_what_their_pairs_are_worth():
    """Twenty pairs in no order are independent and worth twenty; sorted they depend, are worth fewer, and settle nothing that they did."""
    rows = np.random.default_rng(4).normal(log(1.04), 0.03, 20)
    mixed, sorted_rows = pairs.judge_pairs(rows.tolist()), pairs.judge_pairs(np.sort(rows).tolist())
    assert (mixed.effective_pairs, mixed.state) == (20, "higher")
    assert (sorted_rows.effective_pairs < 5, sorted_rows.state) == (True, "not settled")


def test_few_pairs_state_whether_the_outcome_rests_on_independence():
    """Ten pairs that are just alike would be open if neighbours correlated. They settle 50% either way, and thirty would have shown it."""
    assert judged(0.0, 3.0).rests_on_independence
    assert judged(log(1.5)).are_taken_as_independent
    assert not judged(log(1.5)).rests_on_independence
    thirty = pairs.judge_pairs((log(1.012) + np.tile(NOISE, 3)).tolist())
    assert (thirty.rests_on_independence, thirty.are_taken_as_independent) == (False, False)


def wandering(draw, correlation, n):
    """Return rows of logarithms that scatter by 2% around 0, whose neighbours correlate, [DRAWS, n]."""
    noise = 0.02 * draw.standard_normal((DRAWS, n))
    noise[:, 1:] *= np.sqrt(1 - correlation**2)
    return first_order(noise, correlation)


def in_pairs(runs):
    """Return ln(B / A) of runs measured in turn, [rows, 2 n] to [rows, n]."""
    order = in_turn.order_of("AB", runs.shape[1] // 2, with_scoring=False)
    return (runs[:, 1::2] - runs[:, ::2]) * np.where([case == "B" for case, _ in order[::2]], -1, 1)


def test_a_machine_that_wanders_or_drifts_leaves_the_interval_as_good():
    """A against A: at least 90% of 150 intervals (sampling error 2%) hold 1, and hardly any is called a difference."""
    draw = np.random.default_rng(1)
    every_fourth = (np.arange(20) + draw.integers(0, 4, (DRAWS, 1))) % 4 == 0
    for name, rows in {
        "independent pairs": wandering(draw, 0.0, 10),
        "the ratio wanders": wandering(draw, 0.6, 30),
        "the machine wanders": in_pairs(wandering(draw, 0.6, 40)),
        "the machine wanders slowly": in_pairs(wandering(draw, 0.9, 40)),
        "a drift of 20%": in_pairs(wandering(draw, 0.0, 20) + 0.2 * np.arange(20) / 20),
        "every fourth run slow": in_pairs(wandering(draw, 0.0, 20) + 0.04 * every_fourth),
    }.items():
        with table_row(name):
            judged_rows = [pairs.judge_pairs(row) for row in rows.tolist()]
            assert np.mean([judgement.low <= 1 <= judgement.high for judgement in judged_rows]) >= 0.9
            assert np.mean([judgement.state in ("lower", "higher") for judgement in judged_rows]) <= 0.03


def test_stopping_early_leaves_the_interval_as_good_and_finds_three_percent():
    """Of 100 comparisons of ten pairs that spread by 1.3%, as runs on a shared VM do; A against A differs in hardly any."""
    for ratio, fewest, highest in ((1.0, 0, 2), (1.03, 80, 100)):
        with table_row(ratio):
            rows = (log(ratio) + 0.65 * wandering(np.random.default_rng(2), 0.0, 10)[:100]).tolist()
            ends = [next((count for count in range(1, 10) if pairs.is_settled(row[:count], 10)), 10) for row in rows]
            judgements = [pairs.judge_pairs(row[:end]) for row, end in zip(rows, ends, strict=True)]
            assert sum(judgement.low <= ratio <= judgement.high for judgement in judgements) >= 90
            assert fewest <= sum(judgement.state in ("higher", "lower") for judgement in judgements) <= highest
            assert min(ends) < 10


def test_the_expected_end_lies_where_a_clear_result_ends_it():
    """Before there is a spread in the middle; then at the first check of what is clear, and at the end of what never is."""
    assert pairs.expected_end([], 10) == 7
    assert pairs.expected_end([0.4], 3) == 3
    clear, open_result = (0.4 + 0.2 * NOISE[:3]).tolist(), (0.02 + 5 * NOISE[:4]).tolist()
    assert pairs.expected_end(clear, 10) == 5
    assert pairs.expected_end(open_result, 10) == 10
