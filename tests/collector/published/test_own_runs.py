import pytest

from edgemeter.collector.published.listing import own_text
from edgemeter.collector.published.own_runs import own_runs
from tests.fixtures.comparison_factory import make_run, summarised
from tests.fixtures.published_rows import published_row
from tests.fixtures.record_factory import make_environment

BOARD = "Raspberry Pi 5 Model B Rev 1.0"


def measured(**changes):
    return make_run(environment=make_environment(board=BOARD), **changes)


def test_a_figure_stands_next_to_own_runs_of_its_model_and_board():
    """Runs match by any spelling, with mean and interval; MLPerf's rules forbid it."""
    cases = summarised([measured(p50_ms=value) for value in (9.9, 10.0, 10.1)])
    (match,) = own_runs(published_row("latency_p50_ms", 20.0, "Tiny-Detector.onnx", "RPi 5"), cases)
    assert (match.runs, match.differs) == (3, ())
    assert (match.value, match.ratio) == pytest.approx((10.0, 2.0), rel=1e-4)
    assert own_text(match, "ms").startswith("2.00x the 10.0 ms ± 4% of ")
    assert own_runs(published_row("latency_p50_ms", 20.0, "another"), cases) == []
    assert own_runs(published_row("latency_p50_ms", 20.0, device="Jetson Orin Nano"), cases) == []
    assert own_runs(published_row("generation_decode_tokens_per_s", 20.0), cases) == [], (
        "what was not measured has no value"
    )
    assert (
        own_runs(
            published_row("latency_p50_ms", 20.0, source="MLPerf Inference v5.1"),
            summarised([measured()]),
        )
        == []
    )


def test_what_is_not_the_same_is_named_and_the_nearest_stands_first():
    """Differences are named only in what the source states."""
    cases = summarised([measured(p50_ms=10.0), measured(p50_ms=5.0, precision="int8")])
    first, second = own_runs(
        published_row("latency_p50_ms", 20.0, precision="INT8", batch=4), cases
    )
    assert (first.value, first.differs) == (5.0, ("batch 4 against 1",))
    assert second.differs == ("precision INT8 against fp32", "batch 4 against 1")
