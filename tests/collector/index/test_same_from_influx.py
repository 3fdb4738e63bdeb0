"""One question, three ways: from the runs of a ledger, from its roll-up, and from the InfluxDB that it was drained to."""

from edgemeter.collector.compare import columns, comparison
from edgemeter.collector.index import rollup
from edgemeter.collector.runs.store import InfluxStore, open_store
from tests.fixtures.draining import drained
from tests.fixtures.fleet_ledger import Fleet, write_ledger


def test_a_fleet_compared_three_ways_is_one_document(influx_place, path, sink_of):
    """Every figure, interval, verdict and reason, on InfluxDB 1 and 2."""
    write_ledger(path, Fleet(devices=6, days=30, cases=4))
    drained(path, sink_of(influx_place.config()))
    by_runs = columns.to_json(comparison.compare(open_store(str(path)).contents(), "reference"))
    by_rollup = columns.to_json(rollup.compare_rolled_up(rollup.rolled_up(open_store(str(path)), worth_runs=0), "reference"))
    by_influx = columns.to_json(comparison.compare(InfluxStore(influx_place.config()).contents(), "reference"))
    assert by_rollup == by_runs
    assert by_influx == by_runs
