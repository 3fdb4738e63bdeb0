import json
import sys
from contextlib import closing

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import messages, record, samples
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli import quarantine as quarantine_cli
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx.drain import Drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.sink import open_sink
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import STARTED_AT_NS, make_record

TOPIC = "edgemeter/v1/lab/pi-1/result"


def run(*arguments):
    """Return what a command printed on stdout."""
    result = CliRunner().invoke(collector, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def path(tmp_path):
    """Return a ledger with garbage, a record, a batch and a record that a sink refused in its quarantine."""
    run_record = make_record(session=5, seq=1)
    batch = messages.join_records([record.encode(make_record(session=5, seq=seq)) for seq in (3, 4)])
    with SqliteLedger(tmp_path / "ledger") as ledger:
        ledger.commit([Arrival(run_record, record.encode(run_record), TOPIC, 7)])
        ledger.commit([], [Rejection(TOPIC, b"\x1b[2J", "no record", 10**9)])
        ledger.commit([], [Rejection(TOPIC, record.encode(make_record(session=5, seq=2)), "of a newer schema", 2 * 10**9)])
        ledger.commit([], [Rejection(TOPIC, batch, "of a newer schema", 3 * 10**9)])
        ledger.advance("influx http://x", 1, [Rejection("influx http://x", record.encode(run_record), "the sink does not take it", 7)])
        ledger.commit([], [Rejection(TOPIC, b" " * (2 << 20), "too large", 4 * 10**9)])
    return tmp_path / "ledger"


def test_the_list_names_what_is_quarantined_and_why(path):
    """With and without the word, for people and for machines."""
    for words in ((), ("list",)):
        text = run("quarantine", *words, "--ledger", path)
        assert "no record" in text
        assert "2097152" in text
        entries = json.loads(run("quarantine", *words, "--ledger", path, "--json"))["quarantined"]
        assert [entry["row"] for entry in entries] == [1, 2, 3, 4, 5]
        assert entries[0]["first"] == "1970-01-01T00:00:01+00:00"


def test_an_entry_is_one_line_however_long_its_reason(path, monkeypatch):
    """On a terminal of 80 columns, with a reason that quotes a point."""
    with SqliteLedger(path) as ledger:
        ledger.advance("influx http://x", 1, [Rejection("influx http://x", b"x", "the sink rejects it: " + "unable to parse " * 40, 8)])
    monkeypatch.setattr(quarantine_cli, "console_for", lambda _form: Console(width=80, file=sys.stdout))
    lines = run("quarantine", "--ledger", path).splitlines()
    assert len(lines) == 8
    assert [line.split()[0] for line in lines[-6:]] == ["1", "2", "3", "4", "5", "6"]
    assert max(map(len, lines)) <= 80


def test_one_entry_is_shown_and_no_terminal_obeys_it(path):
    """Control characters of a payload are not printed; a number that no entry has is an error."""
    text = run("quarantine", "show", "1", "--ledger", path)
    assert "\x1b" not in text
    assert "[2J" in text
    assert json.loads(run("quarantine", "show", "2", "--ledger", path, "--json"))["reason"] == "of a newer schema"
    with pytest.raises(ConfigError, match="no entry 77 in the quarantine"):
        run("quarantine", "show", "77", "--ledger", path)


def test_what_can_be_taken_now_is_taken_and_the_rest_stays(path):
    """After an update: the record and the batch enter the ledger, and what a sink refused is brought to it anew."""
    retried = {entry["row"]: entry for entry in json.loads(run("quarantine", "retry", "--ledger", path, "--json"))["retried"]}
    assert {row: entry["taken"] for row, entry in retried.items()} == {1: 0, 2: 1, 3: 2, 4: 1, 5: 0}
    assert "not a run record" in retried[1]["reason"]
    assert "only the first 1048576 of 2097152 bytes are kept" in retried[5]["reason"]
    with SqliteLedger(path, "read") as ledger:
        assert ledger.ranges("pi-1", 5) == [(1, 4)]
        assert ledger.count() == 4
        assert [entry.row for entry in ledger.quarantined()] == [1, 5]
        after = [record.record.seq for record in ledger.records(after_row=ledger.position("influx http://x"))]
        assert sorted(after) == [1, 2, 3, 4]
    assert "1  stays: not a run record" in run("quarantine", "retry", "1", "--ledger", path)


def test_a_number_that_is_taken_stays_in_quarantine(path):
    """A clone's record does not replace the one that is there."""
    with SqliteLedger(path) as ledger:
        clone = make_record(session=5, seq=1)
        ledger.commit([Arrival(clone, record.encode(clone), TOPIC, 7)])
        row = ledger.quarantined()[-1].row
    (entry,) = json.loads(run("quarantine", "retry", str(row), "--ledger", path, "--json"))["retried"]
    assert (entry["taken"], "another record already holds this number" in entry["reason"]) == (0, True)
    with SqliteLedger(path, "read") as ledger:
        assert row in [entry.row for entry in ledger.quarantined()]


@pytest.mark.influx
def test_a_record_with_megabytes_of_samples_that_influxdb_refused_is_brought_to_it_again_whole(influx2_server, tmp_path):
    """Only its head lies in the quarantine; the samples stay in the ledger through the retry."""
    noise = samples.pack("latency", "ns", np.random.default_rng(1).integers(0, 2**32, 500_000))
    bad = make_record(session=5, seq=1, order_place=2, samples=(noise,))
    config = InfluxConfig(influx2_server.url, influx2_server.token, influx2_server.org, influx2_server.bucket)
    # Somebody else wrote the field with another type.
    with closing(open_sink(config)) as sink:
        sink.write([f"run,device=x order_place=1.5 {STARTED_AT_NS}"])
    with SqliteLedger(tmp_path / "ledger") as ledger:
        ledger.commit([Arrival(bad, record.encode(bad), TOPIC, 7)])
        for _ in range(2):
            drain = Drain(tmp_path / "ledger", open_sink(config))
            drain.start()
            assert wait_until(lambda drain=drain: drain.has_reached(ledger.last_row()))
            drain.stop()
            (entry,) = ledger.quarantined()
            assert entry.size_bytes == len(entry.payload) < 10_000
            assert "field type conflict" in entry.reason
            retried = json.loads(run("quarantine", "retry", "--ledger", tmp_path / "ledger", "--json"))["retried"]
            assert [(entry["taken"], entry["reason"]) for entry in retried] == [(1, None)]
        (stored,) = ledger.records(with_samples=True)
        assert stored.record == bad
