import numpy as np
import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.contract.samples import pack
from edgemeter.collector.show.lanes import latency_distribution
from tests.fixtures.comparison_factory import make_run


def test_quantiles_are_computed_from_the_raw_samples_of_all_runs():
    """Not from the medians of the records, which may be anything."""
    runs = [make_run(p50_ms=99.0, latencies_ms=list(range(1, 51))), make_run(p50_ms=99.0, latencies_ms=list(range(51, 102)))]
    found = latency_distribution(runs, 1000)
    assert found.count == 101
    assert found.quantiles == pytest.approx((6.0, 26.0, 51.0, 76.0, 96.0))
    assert found.run_medians == pytest.approx((25.5, 76.0))
    assert found.dots == pytest.approx(tuple(range(1, 102)))


def test_of_many_queries_the_fastest_and_the_slowest_are_among_the_dots():
    """An outlier is never thinned out."""
    latencies = [*np.random.default_rng(1).normal(10, 1, 5000).tolist(), 500.0]
    found = latency_distribution([make_run(latencies_ms=latencies)], 100)
    assert len(found.dots) == 100
    assert (found.dots[0], found.dots[-1]) == pytest.approx((min(latencies), 500.0), abs=1e-6)


@pytest.mark.parametrize(
    "series",
    [
        (),
        (record.Series(name="power", unit="mW", dtype="<u4", count=2, data="eJxjYGBgAAAABAAB"),),
        (record.Series(name="latency", unit="ns", dtype="<u4", count=2, data="not base64"),),
        (pack("latency", "ns", np.array([0, 0, 0])),),
    ],
)
def test_without_usable_samples_there_is_no_distribution(series):
    """Absent, another series, damaged, or nothing above zero."""
    assert latency_distribution([make_run(samples=series)], 100) is None
