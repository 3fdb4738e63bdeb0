import numpy as np
import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.contract.samples import pack
from edgemeter.collector.show.comparison_charts import distribution_chart
from tests.fixtures.comparison_factory import make_run


def steps_of(latencies, steps):
    """Return the steps of the chart of a run with these latencies.

    A step is a latency and the share of queries at most as slow.
    """
    table = distribution_chart(make_run(p50_ms=99.0, latencies_ms=latencies), steps).table
    return list(table.rows)


def test_shares_are_computed_from_the_raw_samples():
    """The medians of the record, which may be anything, are not used."""
    steps = steps_of(list(range(1, 101)), 1000)
    assert np.array(steps) == pytest.approx(
        np.array([(value, value / 100) for value in range(1, 101)])
    )


def test_of_many_queries_the_fastest_and_the_slowest_are_among_the_steps():
    """An outlier is never thinned out."""
    latencies = [*np.random.default_rng(1).normal(10, 1, 5000).tolist(), 500.0]
    steps = steps_of(latencies, 100)
    assert len(steps) == 100
    assert (steps[0][0], *steps[-1]) == pytest.approx((min(latencies), 500.0, 1.0), abs=1e-6)


def test_without_usable_samples_there_is_no_distribution():
    """The samples are absent, of another series, damaged, or not above zero."""
    for series in (
        (),
        (record.Series(name="power", unit="mW", dtype="<u4", count=2, data="eJxjYGBgAAAABAAB"),),
        (record.Series(name="latency_p50_ms", unit="ns", dtype="<u4", count=2, data="not base64"),),
        (pack("latency", "ns", np.array([0, 0, 0])),),
    ):
        assert distribution_chart(make_run(samples=series), 100) is None, series
