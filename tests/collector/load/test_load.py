"""The load generator over real brokers, into a real ledger."""

import json
import time

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.load import load as command
from edgemeter.collector.load import load, tally
from edgemeter.collector.load.tally import LoadPlan, LoadTally, RecordNumber, RecordTemplate
from tests.fixtures.collecting import broker_of, collecting, embedded_broker
from tests.fixtures.record_factory import make_record


@pytest.fixture(params=[pytest.param("defaults", marks=pytest.mark.mosquitto), "embedded"])
def broker(request, tmp_path):
    """Return the address of a running broker of each kind."""
    with broker_of(request.param, tmp_path) as address:
        yield address


@pytest.fixture
def collector(broker, tmp_path):
    """Return a running collector at the broker."""
    with collecting(broker, tmp_path / "ledger") as running:
        yield running


@pytest.mark.parametrize("mode", ["agents", "crowd"])
def test_every_record_of_a_load_is_in_the_ledger_once(mode, broker, collector, tmp_path):
    """Devices share out the records, each with a session of its own and numbers without gaps."""
    plan = LoadPlan(devices=7, rate_per_s=500, records=101, patience_s=120)
    result = load.run_load(broker, plan, mode, RecordTemplate(make_record()))
    assert (result.sent, result.receipted, result.missing) == (101, 101, 0)
    assert 0 < result.latency_p50_ms <= result.latency_p99_ms <= result.latency_max_ms
    assert collector.settled(60)
    with SqliteLedger(tmp_path / "ledger", "read") as ledger:
        records = [record.record for record in ledger.records()]
        assert ledger.quarantined() == []
        sessions = {(record.device, record.session) for record in records}
        counts = sorted(last for session in sessions for first, last in ledger.ranges(*session) if first == 1)
    assert len(records) == 101
    assert len(sessions) == 7
    assert counts == [14, 14, 14, 14, 15, 15, 15]


def test_a_load_without_a_collector_is_missing_everything_and_fails():
    """No receipt is no success: exit 1, one line, and the JSON says how many."""
    options = ["--devices", "2", "--rate", "100", "--records", "5", "--delivery-timeout", "0.2", "--json"]
    with embedded_broker() as address:
        result = CliRunner().invoke(command, ["--broker", str(address), *options])
    document = json.loads(result.stdout)
    names = ("sent", "receipted", "missing", "latency_p50_ms")
    assert [document[name] for name in names] == [5, 0, 5, None]
    assert "5 of 5 records have no receipt" in str(result.exception)


def test_a_load_without_a_broker_is_reported():
    """The error comes at once and states that no broker answers."""
    from edgemeter.agent.base.broker_address import parse_address  # noqa: PLC0415 - one test's

    plan = LoadPlan(devices=1, rate_per_s=1, records=1, patience_s=0)
    with pytest.raises(UnavailableError, match="no MQTT broker answers"):
        load.run_load(parse_address("127.0.0.1:1"), plan, "crowd", RecordTemplate(make_record()))


def test_a_copied_payload_is_a_record_with_these_numbers():
    """The text that is cut and put together is what the codec would write."""
    template = RecordTemplate(make_record(case='a "load" of 100%'))
    payload = template.payload("pi-7", "garage", RecordNumber(2**53 - 1, 12, 1_760_000_000_000_000_001))
    record = contract_record.decode(payload)
    assert (record.device, record.fleet) == ("pi-7", "garage")
    assert record.session == 2**53 - 1
    assert (record.seq, record.started_at_ns) == (12, 1_760_000_000_000_000_001)
    assert contract_record.encode(record) == payload
    assert template.payload("pi-7", "garage", RecordNumber(2**53 - 1, 12, 1_760_000_000_000_000_001)) == payload


def test_latency_counts_from_when_a_record_was_due():
    """A load that falls behind shows it as latency, not as a lower rate alone."""
    tally = LoadTally()
    plan = LoadPlan(devices=1, rate_per_s=1, records=1, patience_s=0)
    tally.was_sent()
    due_s = time.monotonic() - 5
    tally.was_receipted(due_s)
    assert 5000 <= tally.result(plan, "crowd", 1, 0, 1).latency_p50_ms <= (time.monotonic() - due_s) * 1e3


def test_the_record_to_send_was_replayed_and_is_of_the_present_schema(tmp_path, monkeypatch):
    """No run is started, so that nothing waits for one and nothing of this machine is in it."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    record = tally.recorded_template().record("pi-1", "lab", 5)
    assert set(record.provenance.values()) == {"replayed"}
    assert (record.device, record.started_at_ns, record.session) == ("pi-1", 5, None)
    assert record.samples
    assert list(tmp_path.iterdir()) == []
