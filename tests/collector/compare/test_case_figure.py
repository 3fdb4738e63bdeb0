"""Test `edgemeter.collector.compare.case_figure`.

A figure of a case is the same wherever it is shown.
"""

import pytest

from edgemeter.agent.contract.figures import THROUGHPUT, figure
from edgemeter.agent.measuring.measured_case import cases_of
from edgemeter.collector.show.words import figure_text
from tests.fixtures.comparison_factory import in_rounds, make_run, summarised
from tests.fixtures.record_factory import violating


@pytest.mark.parametrize(
    "values_ms",
    [
        (10.0,),
        (10.0, 11.0),
        (10.0, 10.4, 10.1),
        (10.0, 10.4, 10.1, 20.0),
        (1.0, 9.0, 3.0),
        (10.0, 10.5, 10.2, 10.1, 10.3),
    ],
)
@pytest.mark.parametrize("disturbed", [0, 1])
def test_run_and_compare_show_one_interval(values_ms, disturbed):
    """The interval is over the same runs, whatever was disturbed or lies apart."""
    runs = in_rounds([make_run(p50_ms=value) for value in values_ms[disturbed:]])
    runs += in_rounds(
        [
            make_run(p50_ms=value, verdict=violating("disturbed", "busy-machine"))
            for value in values_ms[:disturbed]
        ]
    )
    (measured,), (summary,) = cases_of(runs), summarised(runs)
    for name in ("latency_p50_ms", THROUGHPUT, "energy_gross_mj", "memory_peak_mb"):
        assert measured.text(name, "") == figure_text(figure(name), summary.figures[name])
    assert (measured.state, len(measured.counted)) == (summary.verdict, len(summary.verdicts))


def test_a_case_is_disturbed_only_if_a_run_that_counts_is():
    """Three ok runs count without the disturbed ones, two do not.

    The disturbed ones are then no reason to measure again.
    """
    busy = violating("disturbed", "busy-machine")
    for ok_runs, expected in [(3, ("ok", 0, 2, ())), (2, ("disturbed", 2, 0, ("busy-machine",)))]:
        runs = in_rounds(
            [*(make_run() for _ in range(ok_runs)), *(make_run(verdict=busy) for _ in range(2))]
        )
        (case,) = summarised(runs)
        rules = tuple(violation.rule for violation in case.violated)
        assert (case.verdict, case.disturbed, case.not_counted, rules) == expected
