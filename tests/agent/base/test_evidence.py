"""Facts about the evidence of runs: units that count, and intervals by hand."""

import math
from statistics import fmean, stdev

import numpy as np
import pytest

from edgemeter.agent.base.evidence import (
    DAY_SD,
    GUEST_SESSION_SD,
    SESSION_SD,
    RunValue,
    accuracy_difference,
    difference,
    interval_over_runs,
    mean_of,
    mean_of_device,
)
from edgemeter.agent.base.statistics import student_quantile
from tests.fixtures.choice_worlds import days_in_a_row
from tests.fixtures.rows import table_row

# Student's t at 97.5%, from a printed table.
T_2, T_4, T_8 = 4.302653, 2.776445, 2.306004
Z = 1.959964


def values(*figures_ms, day=0, device="pi-1", session=None):
    """Return the logarithms of one figure of runs of one day.

    If a session is given, the runs are its rounds.
    """
    turns = [None if session is None else (session, number) for number in range(len(figures_ms))]
    return [
        RunValue(math.log(figure), device, day, turn)
        for figure, turn in zip(figures_ms, turns, strict=True)
    ]


def test_the_unit_that_counts_is_the_largest_that_repeats():
    """Three devices count as the units, else three days, else runs; two runs have no interval."""
    days = [value for day in range(3) for value in values(10, 11, day=day)]
    devices = [value for device in "abc" for value in values(10, 11, 12, device=device)]
    assert [mean_of(runs).unit for runs in (values(10, 11, 12), days, devices)] == [
        "run",
        "day",
        "device",
    ]
    assert [mean_of(runs).units for runs in (values(10, 11, 12), days, devices)] == [3, 3, 3]
    assert mean_of(values(10, 11)).bounds(0.95) is None


def test_runs_of_one_device_need_no_object_each():
    """Both ways to state the runs of one device give the same evidence.

    The cases are one run a day, several runs on some days and out of order, and fewer than three
    days.
    """
    for days in ([0, 1, 2, 5, 6, 7], [0, 0, 2, 1, 1, 1, 4], [3, 3, 4, 4], [1], [5, 4, 3]):
        logs = [math.sin(number) for number in range(len(days))]
        assert mean_of_device(logs, days) == mean_of(
            [RunValue(log, "pi-1", day) for log, day in zip(logs, days, strict=True)]
        ), days


def test_an_interval_over_runs_is_students_on_logarithms():
    """The interval over three runs equals one that was worked out by hand."""
    logs = [math.log(figure) for figure in (10, 10.5, 11.2)]
    reach = T_2 * stdev(logs) / math.sqrt(3)
    assert mean_of(values(10, 10.5, 11.2)).bounds(0.95) == pytest.approx(
        (fmean(logs) - reach, fmean(logs) + reach), rel=1e-6
    )


def test_interleaved_runs_are_compared_in_pairs():
    """An effect that a round has on both cases cancels.

    A run whose round has no other run is left out.
    """
    reference = values(10, 20, 40, 80, session=1)
    case = values(11, 22.2, 43.8, session=1)
    ratios = [math.log(ratio) for ratio in (1.1, 1.11, 1.095)]
    evidence = difference(case, reference)
    assert (evidence.unit, evidence.units) == ("pair", 3)
    assert evidence.middle == pytest.approx(fmean(ratios))
    assert evidence.bounds(0.95)[0] == pytest.approx(
        fmean(ratios) - T_2 * stdev(ratios) / math.sqrt(3), rel=1e-6
    )
    assert difference(case, values(10, 20, 40, session=2)).unit == "run"


def test_three_days_that_both_ran_on_are_compared_day_by_day():
    """The level of a day is in both cases, and runs of other days do not count then."""
    levels = (10, 20, 40)
    reference = [
        value for day, level in enumerate(levels) for value in values(level, level, day=day)
    ]
    case = [
        value
        for day, level in enumerate(levels)
        for value in values(1.1 * level, 1.1 * level, day=day)
    ]
    evidence = difference(case, reference)
    assert (evidence.unit, evidence.units, evidence.middle) == (
        "day",
        3,
        pytest.approx(math.log(1.1)),
    )
    assert evidence.bounds(0.95) == pytest.approx((math.log(1.1), math.log(1.1)), abs=1e-9)


@pytest.mark.parametrize("days", [5, 10, 20])
def test_days_that_take_after_each_other_count_as_fewer(days):
    """The interval covers the long-term mean of first-order processes often enough.

    Where days are independent it is not much wider than Student's.
    """
    for correlation, least_ratio in ((0.0, 0.95), (0.3, 0.93), (0.5, 0.88)):
        logs = 0.02 * days_in_a_row(np.random.default_rng(1).normal(size=(600, days)), correlation)
        bounds = [
            mean_of([RunValue(log, "pi-1", day) for day, log in enumerate(row)]).bounds()
            for row in logs.tolist()
        ]
        with table_row(correlation):
            assert np.mean([low <= 0 <= high for low, high in bounds]) >= least_ratio
        if correlation == 0:
            independent = (
                2 * student_quantile(0.95, days - 1) * logs.std(axis=1, ddof=1) / math.sqrt(days)
            )
            assert np.median([high - low for low, high in bounds]) < 1.4 * np.median(independent)


def test_a_disturbed_run_does_not_move_its_day():
    """One of the three runs of a day takes five times as long."""
    quiet = [value for day in range(3) for value in values(10, 10.1, 9.9, day=day)]
    disturbed = [
        value for day in range(3) for value in values(10, 10.1, 50 if day == 1 else 9.9, day=day)
    ]
    assert mean_of(disturbed).middle == pytest.approx(mean_of(quiet).middle, abs=0.004)


def test_runs_of_other_days_are_taken_to_differ_by_as_much_as_days_do():
    """The usual scatter of days is added to runs of one day each.

    Nothing is added to runs of the same day, nor where three days show their scatter themselves.
    """
    apart = difference(values(10, 10.1, 10.2, day=1), values(10, 10.1, 10.2, day=0))
    together = difference(values(10, 10.1, 10.2), values(10, 10.1, 10.2))
    assert apart.assumed.between == "days"
    assert together.assumed is None
    assert apart.error == pytest.approx(math.sqrt(together.error**2 + 2 * DAY_SD**2))
    days = [
        [value for day in range(begin, begin + 3) for value in values(10 + day % 3, day=day)]
        for begin in (0, 10)
    ]
    assert difference(*days).assumed is None


def test_runs_of_other_sessions_are_taken_to_differ_by_as_much_as_sessions_do():
    """The usual scatter of sessions is added to runs of separate commands of one day.

    On a virtual machine it is larger. Runs of one session get none of it.
    """
    together = difference(values(10, 10.1, 10.2), values(10, 10.1, 10.2))
    apart = [values(10, 10.1, 10.2, session=session) for session in range(2)]
    assert difference(*apart).error == pytest.approx(
        math.sqrt(together.error**2 + 2 * SESSION_SD**2)
    )
    of_guests = [[run._replace(session_sd=GUEST_SESSION_SD) for run in side] for side in apart]
    assert difference(*of_guests).error == pytest.approx(
        math.sqrt(together.error**2 + 2 * GUEST_SESSION_SD**2)
    )
    assert difference(*of_guests).assumed == (
        "sessions",
        GUEST_SESSION_SD,
        pytest.approx(math.sqrt(2) * GUEST_SESSION_SD),
    )
    other_case = [run._replace(turn=(0, run.turn[1] + 3)) for run in apart[0]]
    assert difference(apart[0], other_case).assumed is None


def test_two_independent_cases_have_welchs_degrees_of_freedom():
    """Equal scatter of five runs each has eight; a case without scatter leaves the other's four."""
    runs = values(10, 10.2, 10.4, 10.1, 10.3)
    case = [value._replace(value=value.value + 0.1) for value in runs]
    evidence = difference(case, runs)
    error = math.sqrt(2) * stdev(value.value for value in runs) / math.sqrt(5)
    assert evidence.bounds(0.95)[0] == pytest.approx(0.1 - T_8 * error, rel=1e-6)
    still = difference(case, values(10, 10, 10, 10, 10))
    assert still.bounds(0.95)[0] == pytest.approx(still.middle - T_4 * still.error, rel=1e-6)


def test_a_meter_that_repeating_does_not_improve_widens_the_interval():
    """The standard error of the meter is added in quadrature."""
    evidence = mean_of(values(10, 10.5, 11))
    assert evidence.with_error(0.03).error == pytest.approx(math.hypot(evidence.error, 0.03))
    assert evidence.with_error(0.0) is evidence


def test_accuracies_are_compared_part_by_part_of_the_images():
    """A change that moves the accuracy of both cases alike does not count.

    Cases that are equal in every part are the same, and a difference that no part moves has no
    interval.
    """
    parts = [0.5 + 0.01 * index for index in range(20)]
    wider = [0.6 + 0.011 * index for index in range(20)]
    evidence = accuracy_difference(wider, parts, 0.1)
    differences = [0.1 + 0.001 * index for index in range(20)]
    assert evidence.unit == "image"
    assert evidence.error == pytest.approx(
        math.sqrt(19 / 20 * sum((value - fmean(differences)) ** 2 for value in differences))
    )
    assert accuracy_difference(parts, parts, 0.0).bounds(0.95) == (0.0, 0.0)
    assert accuracy_difference([1.0] * 20, [0.0] * 20, 1.0).bounds(0.95) is None


def test_runs_of_one_session_have_an_interval_where_it_can_be_held():
    """The interval is Student's around the geometric mean, widened by the scatter of sessions.

    Equal runs are widened too. There is none for two runs, for a figure of 0, and beyond the range
    of a float.
    """
    reach = T_2 * stdev(map(math.log, (10, 10.5, 11.2))) / math.sqrt(3)
    of_session = interval_over_runs([10, 10.5, 11.2], 0.0)
    assert of_session.half_width_ratio == pytest.approx(math.expm1(reach), rel=1e-6)
    assert interval_over_runs([10, 10.5, 11.2], SESSION_SD).half_width_ratio == pytest.approx(
        math.expm1(math.hypot(reach, Z * SESSION_SD)), rel=1e-3
    )
    equal = interval_over_runs([10, 10, 10], SESSION_SD)
    assert (equal.middle, equal.half_width_ratio) == (
        10,
        pytest.approx(math.expm1(Z * SESSION_SD), rel=2e-3),
    )
    assert interval_over_runs([10, 10, 10], 0.0) == (10, 10, 10)
    for lacking in ([], [10.0, 11.0], [0.0, 1.0, 1.0], [1e-300, 1.0, 1e300]):
        with table_row(lacking):
            assert interval_over_runs(lacking, SESSION_SD) is None
