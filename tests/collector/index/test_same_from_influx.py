"""One question, three ways: from the runs of a ledger, from its roll-up, and from the InfluxDB that it was drained to."""

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.compare import columns, comparison
from edgemeter.collector.index import rollup
from edgemeter.collector.influx.drain import Drain
from edgemeter.collector.runs.store import InfluxStore, open_store
from tests.fixtures.fleet_ledger import Fleet, write_ledger
from tests.fixtures.mqtt_peer import wait_until


@pytest.mark.services
def test_a_fleet_compared_three_ways_is_one_document(influx_place, path, sink_of):
    """Every figure, interval, verdict and reason, on InfluxDB 1 and 2."""
    write_ledger(path, Fleet(devices=6, days=30, cases=4))
    with SqliteLedger(path, "read") as ledger:
        last = ledger.last_row()
    drain = Drain(path, sink_of(influx_place.config()))
    drain.start()
    try:
        assert wait_until(lambda: drain.has_reached(last), 60), drain.trouble
    finally:
        drain.stop()
    by_runs = columns.to_json(comparison.compare(open_store(str(path)).contents(), "reference"))
    by_rollup = columns.to_json(rollup.compare_rolled_up(rollup.rolled_up(open_store(str(path)), worth_runs=0), "reference"))
    by_influx = columns.to_json(comparison.compare(InfluxStore(influx_place.config()).contents(), "reference"))
    assert by_rollup == by_runs
    assert by_influx == by_runs
