"""The band of a board's own golden figures."""

import pytest

from edgemeter.provisioning.health import baseline
from tests.fixtures.rows import table_row

STEADY = [10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.1, 9.9]


def test_four_figures_make_no_band_and_five_do():
    """Too few to say what is usual; a net energy lost in the noise may be zero or below, which has no band either."""
    assert baseline.band_of(STEADY[:4]) is None
    assert baseline.band_of([0.0] * 10) is None
    assert baseline.band_of([-1.0, *STEADY]) is None
    assert baseline.band_of(STEADY[:5]).count == 5


def test_a_figure_is_within_outside_or_far_outside_to_either_side():
    """A board that became faster is another board too."""
    for value, how in ((10.2, None), (9.8, None), (11.0, "outside"), (9.0, "outside"), (12.5, "gross"), (5.0, "gross"), (1e9, "gross")):
        with table_row(value):
            figure = baseline.judge_figure("latency_p50_ms", value, STEADY)
            assert (figure.how if figure else None) == how
    # A spread of zero is luck: there is a floor.
    assert baseline.judge_figure("latency_p50_ms", 10.3, [10.0] * 30) is None
    assert baseline.judge_figure("latency_p50_ms", 11.0, [10.0] * 30) is not None


def test_one_wild_run_in_the_past_does_not_widen_the_band():
    """The median and the median distance do not follow it."""
    wild = [*STEADY, 100.0, *STEADY]
    assert baseline.band_of(wild).half == pytest.approx(baseline.band_of([*STEADY, *STEADY]).half, rel=0.4)
    assert baseline.judge_figure("latency_p50_ms", 12.5, wild).how == "gross"


def test_a_doubt_is_confirmed_by_a_second_run_on_the_same_side_only():
    """A single run that was disturbed makes no board suspect."""
    slow, fast = baseline.judge_figure("latency_p50_ms", 11.0, STEADY), baseline.judge_figure("latency_p50_ms", 9.0, STEADY)
    assert not baseline.is_fault([slow], [])
    assert not baseline.is_fault([slow], [fast.side])
    assert baseline.is_fault([slow], [slow.side])
    assert baseline.is_fault([baseline.judge_figure("latency_p50_ms", 15.0, STEADY)], [])


def test_a_change_that_hides_in_the_noise_shows_in_the_median_of_five():
    """3% from run to run: one run 11% slower is nothing, five of them are."""
    noisy = [10 * (1 + 0.03 * (day % 5 - 2) / 1.4) for day in range(30)]
    assert baseline.judge_figure("energy_gross_mj", 11.1, noisy) is None
    figure = baseline.judge_figure("energy_gross_mj", 11.1, [*noisy, 11.0, 11.2, 10.9, 11.1])
    assert figure.how == "drift"
    assert figure.value == pytest.approx(11.1)


def test_only_what_measures_speed_and_energy_is_judged():
    """A temperature stands beside it, and is no fault of its own; a figure that is new has no band."""
    earlier = [{"latency_p50_ms": value, "temperature_max_c": 50.0} for value in STEADY]
    assert baseline.figures_outside({"latency_p50_ms": 10.0, "temperature_max_c": 80.0, "energy_gross_mj": 5.0}, earlier) == []
    assert [figure.name for figure in baseline.figures_outside({"latency_p50_ms": 15.0}, earlier)] == ["latency_p50_ms"]


def test_the_reason_names_the_figure_how_far_and_against_what():
    """In words, with numbers that somebody can check."""
    text = str(baseline.judge_figure("latency_p50_ms", 15.0, STEADY))
    assert text.startswith("latency_p50_ms is 15, +50.0% from this board's median 10 (±")
    assert "over 8 canary runs" in text
