"""The screen against the scan itself, under noise, steps and outliers that it does not assume."""

import itertools

import numpy as np

from edgemeter.collector.trend import watch
from edgemeter.collector.trend.scan import scan_series, step_score
from edgemeter.collector.trend.screen import Screen
from edgemeter.collector.trend.thresholds import CONFIRMED_LESS
from tests.fixtures.comparison_factory import history_of
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import make_days, noisy

SERIES, DAYS, WINDOW = 60, 90, 60


def level(kind, draw):
    """Return the figures [series, days] of series of a kind."""
    noise = (
        draw.standard_t(3, (SERIES, DAYS)) if kind == "tails" else draw.normal(size=(SERIES, DAYS))
    )
    if kind == "neighbours":
        noise = 0.3 * np.cumsum(noise, axis=1)
    if kind == "share":
        return 100.0 * (draw.random((SERIES, DAYS)) < 0.05 + 0.5 * (np.arange(DAYS) > 70))
    return noise + draw.uniform(0, 6, (SERIES, 1)) * (
        np.arange(DAYS) >= draw.integers(10, DAYS, (SERIES, 1))
    )


def may_step(x, known_variance, floor, heat, end):
    """Return the screen's result, and in which series a scan may confirm a step.

    The scan is of the same days.
    """
    begin = np.zeros(len(x), dtype=np.intp)
    screen = Screen(
        x.T, known_variance.T, floor, None if heat is None else heat.T, begin, begin + DAYS
    )
    days = slice(max(end - WINDOW, 0), end)
    columns = [None if values is None else values[:, days] for values in (x, known_variance, heat)]
    scan = scan_series(*columns[:2], np.ones(columns[0].shape, bool), floor, columns[2])
    return screen.may_step(end, WINDOW), np.flatnonzero(
        scan.score >= step_score(columns[0].shape[1]) - CONFIRMED_LESS
    )


def test_no_step_that_a_scan_would_report_is_screened_out():
    """The series have steps of any size in windows of any length.

    They are with and without temperature, with days of unequal variance.
    """
    reported = 0
    for kind, uneven, has_heat in itertools.product(
        ("steps", "tails", "neighbours", "share"), (0.0, 0.5, 3.0), (False, True)
    ):
        with table_row(kind, uneven, has_heat):
            draw = np.random.default_rng(11)
            x, heat = level(kind, draw), 48 + draw.normal(size=(SERIES, DAYS))
            known_variance = 0.3 * uneven * draw.random(x.shape)
            floor = np.full(SERIES, 14.0 if kind == "share" else 0.05)
            for end in range(15, DAYS, 15):
                is_open, rows = may_step(
                    x + 0.2 * has_heat * (heat - 48),
                    known_variance,
                    floor,
                    heat if has_heat else None,
                    end,
                )
                assert is_open[rows].all()
                reported += len(rows)
    assert reported > 100


def test_days_that_only_scatter_are_nearly_all_screened_out():
    """95 of 100 scans need not be run, since most series of a fleet only scatter."""
    draw = np.random.default_rng(5)
    x, heat = draw.normal(size=(400, DAYS)), 48 + draw.normal(size=(400, DAYS))
    shares = [
        may_step(x, np.zeros_like(x), np.full(400, 0.05), heat, end)[0].mean()
        for end in range(15, DAYS, 5)
    ]
    assert np.mean(shares) < 0.05


def test_series_of_any_length_are_found_together_what_each_is_found_alone():
    """A series that ended earlier than its neighbours is not screened by absent days.

    There is no warning of it either.
    """
    boards = [
        make_days(
            noisy(100, days, seed=days, step_at=days * 2 // 3, step_ratio=1.1), device=f"pi-{days}"
        )
        for days in (12, 20, 45, 90, 200)
    ]
    metrics = ("latency_p50_ms", "energy_gross_mj")
    together = watch.trends_of(history_of([run for board in boards for run in board]), (), metrics)
    alone = [trend for board in boards for trend in watch.trends_of(history_of(board), (), metrics)]
    findings, findings_alone = (
        {
            (trend.metric, trend.key.device): [
                (step.day, step.state, round(step.size, 6)) for step in trend.steps
            ]
            for trend in trends
        }
        for trends in (together, alone)
    )
    assert findings == findings_alone
    assert sum(len(trend.steps) for trend in together) >= 3
