"""Facts about `edgemeter.agent.base.decision`.

All differences of an answer are decided together, and by the interval that is shown.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from edgemeter.agent.base.decision import MATTERS_RATIO, decide, holm, rounds_to_decide
from edgemeter.agent.base.evidence import (
    DAY_SD,
    GUEST_SESSION_SD,
    Assumed,
    Evidence,
    RunValue,
    difference,
    mean_of,
)
from edgemeter.agent.base.statistics import FEWEST
from tests.fixtures.choice_worlds import noise
from tests.fixtures.rows import table_row

KINDS = ("normal", "skewed", "disturbed")
FIGURES, DRAWS, SLOWER = 4, 1000, math.log(1.1)
# As many of 1,000 are false in one of a hundred worlds in which one in twenty is.
MOST_FALSE = 66


def values(*figures_ms):
    """Return the logarithms of one figure of runs of a day."""
    return [RunValue(math.log(figure), "pi-1", 0) for figure in figures_ms]


def of(middle, error, freedom=8.0):
    return Evidence(middle, error, freedom, 9, "run")


def test_all_differences_of_an_answer_are_decided_together_and_by_the_interval_that_is_shown():
    """Holm's method chooses the confidence level of each difference by its rank.

    Of p = .001, .025 and .303 the smallest is judged at 1 - .05/3, and both others at 1 - .05/2,
    since .025 does not exceed .05/2; with a slightly larger second p, the last is judged at .95.
    """
    evidences = [of(0.1 * reach, 0.1) for reach in (1.1, 5.2, 2.75)]
    assert [round(evidence.p, 3) for evidence in evidences] == [0.303, 0.001, 0.025]
    assert holm(evidences) == pytest.approx([0.975, 1 - 0.05 / 3, 0.975])
    evidences[2] = of(0.28, 0.1)
    assert holm(evidences) == pytest.approx([0.95, 1 - 0.05 / 3, 0.975])
    for evidence, confidence in zip(evidences, holm(evidences), strict=True):
        decision = decide(evidence, confidence, 0.03, "lower")
        assert (decision.low > 1) == (decision.outcome == "worse")


@pytest.mark.parametrize(
    ("middle", "error", "better", "outcome"),
    [
        (0.1, 0.01, "lower", "worse"),
        (0.1, 0.01, "higher", "better"),
        (-0.1, 0.01, "lower", "better"),
        (-0.1, 0.01, "higher", "worse"),
        (0.1, 0.1, "lower", "inconclusive"),
        (0.01, 0.005, "lower", "no difference"),
        # Above zero, but the whole interval is below what matters.
        (0.015, 0.005, "lower", "no difference"),
        (0.02, 0.006, "lower", "worse"),
    ],
)
def test_the_outcome_is_where_the_interval_lies(middle, error, better, outcome):
    """An interval within the margin of 3% on both sides means that nothing differs."""
    assert decide(of(middle, error), 0.95, 0.03, better).outcome == outcome


def test_exchanging_two_cases_mirrors_the_decision():
    """A ratio of 1.1 in one direction is 1 / 1.1 in the other."""
    case, reference = values(10, 10.5, 11), values(9, 9.5, 9.6)
    forward, backward = (
        decide(difference(*sides), 0.95, 0.03, "lower")
        for sides in ((case, reference), (reference, case))
    )
    assert (forward.value, forward.low, forward.high) == pytest.approx(
        (1 / backward.value, 1 / backward.high, 1 / backward.low)
    )


def test_an_inconclusive_decision_states_how_many_more_runs_would_decide():
    """The number of further runs follows from the usual formula for a power of 80%.

    With fewer than three runs it is the number that is missing; else it is as many as bring the
    difference to 1.974 + 0.842 standard errors. No number is stated where a hundred runs would not
    do.
    """
    assert decide(difference(values(10, 11), values(10)), 0.95, 0.03, "lower").further == 2
    further = decide(Evidence(0.02, 0.012, 98.0, 50, "run"), 0.95, 0.03, "lower").further
    assert further == pytest.approx((2.816 * 0.012 * math.sqrt(50) / 0.02) ** 2 - 50, abs=1)
    assert decide(Evidence(0.02, 0.02, 98.0, 50, "run"), 0.95, 0.03, "lower").further is None
    assumed = Assumed("sessions", 0.008, 0.0113)
    assert (
        decide(Evidence(0.02, 0.012, 98.0, 50, "run", assumed), 0.95, 0.03, "lower").further is None
    )


def test_runs_that_will_not_count_are_among_those_that_would_decide():
    """With one disturbed run in five, five runs are needed for every four that count."""
    quiet = Evidence(0.05, 0.03, 7.0, 8, "run")
    disturbed = decide(replace(quiet, counted_ratio=0.8), 0.95, 0.03, "lower")
    alone = decide(quiet, 0.95, 0.03, "lower")
    assert disturbed.further == math.ceil(alone.further / 0.8)
    assert (alone.repeats, disturbed.repeats) == (8 + alone.further, 10 + disturbed.further)
    assert (
        decide(replace(quiet, error=None, units=2, counted_ratio=0.5), 0.95, 0.03, "lower").repeats
        == 6
    )
    assert decide(replace(quiet, counted_ratio=0.01), 0.95, 0.03, "lower").repeats is None


def outcomes(evidences):
    return [
        decide(evidence, at, MATTERS_RATIO, "lower").outcome
        for evidence, at in zip(evidences, holm(evidences), strict=True)
    ]


def equal_cases(draw, kind, days, runs, where):
    """Return the runs of two equal cases, whose days or sessions differ by more than their runs.

    The runs themselves scatter by 1%. The sessions are those of a virtual machine.
    """
    sd = GUEST_SESSION_SD if where == "other sessions" else DAY_SD
    levels = sd * noise(draw, "normal", 2 * days).reshape(2, days, 1)
    logs = (levels[[0, 0]] if where == "same days" else levels) + 0.01 * noise(
        draw, kind, 2 * days * runs
    ).reshape(2, days, runs)
    first_days = (0, 1000 if where == "other days" else 0)
    sides = [
        [
            RunValue(value, "board", first + day)
            for day, of_day in enumerate(side)
            for value in of_day
        ]
        for first, side in zip(first_days, logs.tolist(), strict=True)
    ]
    if where == "other sessions":
        return [
            [run._replace(turn=(number, 0), session_sd=sd) for run in side]
            for number, side in enumerate(sides)
        ]
    return sides


def end_of_session(differences):
    """Return the decisions of a session that ends early where all its differences are decided."""
    rounds = differences.shape[1]
    for number in range(FEWEST, rounds + 1):
        evidences = [
            mean_of([RunValue(value, "board", 0) for value in of_figure[:number]])
            for of_figure in differences.tolist()
        ]
        if number == rounds or rounds_to_decide(evidences, MATTERS_RATIO) == 0:
            break
    return outcomes(evidences)


@pytest.mark.nightly
def test_in_worlds_of_known_truths_one_answer_in_twenty_is_false():
    """Of 1,000 answers about four equal figures, at most one in twenty claims a difference.

    With nine runs on three days, a case that is 10% slower is found.
    """
    for kind, (days, runs), where in product(
        KINDS, ((1, 3), (1, 10), (3, 3), (10, 1)), ("same days", "other days", "other sessions")
    ):
        if where == "other sessions" and days > 1:
            continue
        draw = np.random.default_rng(1)
        answers = [
            [equal_cases(draw, kind, days, runs, where) for _ in range(FIGURES)]
            for _ in range(DRAWS)
        ]
        with table_row(kind, days, runs, where):
            different = [
                {"better", "worse"} & set(outcomes([difference(*sides) for sides in answer]))
                for answer in answers
            ]
            assert sum(map(bool, different)) <= MOST_FALSE
            if (days, runs) == (3, 3):
                slower = [
                    ([run._replace(value=run.value + SLOWER) for run in case], reference)
                    for (case, reference), *_ in answers
                ]
                assert (
                    sum(outcomes([difference(*sides)]) == ["worse"] for sides in slower)
                    >= 0.9 * DRAWS
                )


@pytest.mark.nightly
def test_of_sessions_that_end_early_one_answer_in_twenty_is_false():
    """Rounds that scatter by 2% are drawn as often as modes quick and rapid allow."""
    for kind, rounds, figures in product(KINDS, (5, 24), (1, FIGURES)):
        draw = np.random.default_rng(1)
        with table_row(kind, rounds, figures):
            logs = (
                0.02 * noise(draw, kind, 2 * figures * rounds).reshape(2, figures, rounds)
                for _ in range(DRAWS)
            )
            ended = [end_of_session(case - reference) for case, reference in logs]
            assert (
                sum(bool({"better", "worse"} & set(decisions)) for decisions in ended) <= MOST_FALSE
            )
