import json
import re
import signal
import time
import urllib.request

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx import client
from edgemeter.collector.influx import drain as influx_drain
from edgemeter.collector.influx.drain import Drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import Points
from edgemeter.collector.influx.set_up import set_up_influx
from edgemeter.collector.influx.sink import open_sink
from edgemeter.collector.runs.store import InfluxStore
from tests.fixtures.draining import drained, draining
from tests.fixtures.influx1 import Influx1
from tests.fixtures.ledgers import fill
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import STARTED_AT_NS, make_record
from tests.fixtures.servers import Influx, running


@pytest.fixture
def path(tmp_path):
    """Return where a ledger is."""
    return tmp_path / "ledger"


def test_a_ledger_is_drained_in_order_with_bad_points_in_the_quarantine(influx_place, sink_of, path, monkeypatch):
    """Several batches; the position is kept; what the server does not take does not stop what follows."""
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 10)
    fill(path, [make_record(session=5, seq=seq, seed=2**63 if seq == 13 else 1) for seq in range(1, 36)])
    sink = sink_of(influx_place.config())
    drained(path, sink)
    with SqliteLedger(path, "read") as ledger:
        assert ledger.position(sink.name) == 35
        (entry,) = ledger.quarantined()
    assert entry.reason.startswith("the sink rejects it: ")
    assert "unable to parse" in entry.reason
    assert quarantine.read_reference(entry.payload).seq == 13
    assert sorted(run.seq for run in InfluxStore(influx_place.config()).contents().runs) == [seq for seq in range(1, 36) if seq != 13]


def test_records_older_than_what_a_bucket_retains_are_counted_and_not_quarantined(influx_place, sink_of, path, caplog):
    """A ledger of years beside a bucket of days: nothing is wrong with them, and one line says where they are."""
    set_up_influx(influx_place.config(), 2, {})
    now_ns = time.time_ns()
    ages_days = [400, 300, 3, 1, 0]
    fill(path, [make_record(session=5, seq=seq, started_at_ns=now_ns - age * NS_PER_DAY) for seq, age in enumerate(ages_days, 1)])
    with draining(Drain(path, sink_of(influx_place.config()))) as drain:
        assert wait_until(lambda: drain.has_reached(5), 20), drain.trouble
    assert (drain.expired, drain.rejected) == (3, 0)
    with SqliteLedger(path, "read") as ledger:
        assert ledger.quarantined() == []
    assert seqs(influx_place) == [4, 5]
    assert caplog.text.count("stay in the ledger") == 1


def test_a_run_that_is_excluded_or_deleted_leaves_influxdb_and_comes_back_when_it_is_included(influx_place, sink_of, path):
    """Its point and its histogram, of a wrong clock too; other runs stay, of another device at the same nanosecond too."""
    runs = [make_record(session=5, seq=seq, started_at_ns=2 * 10**18 if seq == 2 else STARTED_AT_NS + seq * 10**9) for seq in range(1, 5)]
    fill(path, [*runs, make_record(session=5, seq=3, started_at_ns=runs[2].started_at_ns, device="another")])
    points = Points(also=frozenset({"latency_histogram"}))

    def seqs_in_influx():
        return sorted(run.seq for run in InfluxStore(influx_place.config()).contents().runs)

    drained(path, sink_of(influx_place.config()), points)
    assert seqs_in_influx() == [1, 2, 3, 3, 4]
    with SqliteLedger(path) as ledger:
        history = LedgerRuns(ledger)
        history.withdraw(runs[1].id, "deleted", "ada@lab", "")
        history.withdraw(runs[2].id, "excluded", "ada@lab", "the fan was off")
        sink = sink_of(influx_place.config())
        with draining(Drain(path, sink, points)):
            assert wait_until(lambda: not history.withdrawn(sink.name), 60)
        assert seqs_in_influx() == [1, 3, 4]
        assert len(list(influx_place.query("SELECT * FROM latency_histogram"))) == 3
        history.include(runs[2].id, "ada@lab", "")
    drained(path, sink_of(influx_place.config()), points)
    assert seqs_in_influx() == [1, 3, 3, 4]


def test_an_idle_sink_gets_a_small_batch_and_a_busy_one_whole_batches(influx_place, sink_of, path, monkeypatch):
    """The sink does not wait for a whole batch to be prepared, and what is prepared while it stores is one write."""
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 10)
    fill(path, [make_record(session=5, seq=seq) for seq in range(1, 36)])
    sink = sink_of(influx_place.config())
    sizes, write = [], sink.write

    def slow(lines):
        sizes.append(len(lines))
        time.sleep(0.3)
        return write(lines)

    monkeypatch.setattr(sink, "write", slow)
    drained(path, sink)
    assert sizes == [2, 10, 10, 10, 3]
    assert seqs(influx_place) == list(range(1, 36))


def test_the_next_batch_is_written_while_the_ledger_notes_the_one_before(scripted, sink_of, path, monkeypatch):
    """The ledger fails meanwhile: the write in progress ends before another begins, and what was not noted is written again, in order."""
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 10)
    monkeypatch.setattr(influx_drain, "FIRST_PAUSE_S", 0.01)
    fill(path, [make_record(session=5, seq=seq) for seq in range(1, 31)])
    sink = sink_of(scripted.config)
    events, write, advance = [], sink.write, SqliteLedger.advance

    def slow(lines):
        events.append("write")
        time.sleep(0.2)
        rejected = write(lines)
        events.append("written")
        return rejected

    def locked_at_first(ledger, *arguments, **named):
        if "note" not in events:
            assert wait_until(lambda: events.count("write") == 2)
            events.append("note")
            raise TransientError("the ledger is locked")
        return advance(ledger, *arguments, **named)

    monkeypatch.setattr(sink, "write", slow)
    monkeypatch.setattr(SqliteLedger, "advance", locked_at_first)
    drained(path, sink)
    assert events[:5] == ["write", "written", "write", "note", "written"]
    assert [event for event in events if event != "note"] == ["write", "written"] * events.count("write")
    numbers = [int(number) for body in scripted.handler.bodies for number in re.findall(rb",seq=(\d+)i", body)]
    assert numbers[12:] == list(range(1, 31))


def test_two_places_are_drained_apart(influx_place, sink_of, path):
    """Each sink has its own position in the ledger, by its name; a drain that starts again goes on where it was."""
    fill(path, [make_record(session=5, seq=seq) for seq in (1, 2)])
    drained(path, sink_of(influx_place.config()))
    fill(path, [make_record(session=5, seq=3)])
    drained(path, sink_of(influx_place.config()))
    other = "bucket" if influx_place.version == 2 else "database"
    drained(path, sink_of(influx_place.config(**{other: f"{influx_place.name}-other"})))
    assert [row["count"] for row in influx_place.query("SELECT count(seq) FROM run")] == [3]
    assert [row["count"] for row in influx_place.server.query("SELECT count(seq) FROM run", f"{influx_place.name}-other")] == [3]


def lose(influx_place):
    """Remove the bucket or database, with everything in it."""
    if influx_place.version == 1:
        influx_place.query(f'DROP DATABASE "{influx_place.name}"')
        return
    (bucket,) = influx_place.server.ask(f"/api/v2/buckets?name={influx_place.name}")["buckets"]
    url = f"{influx_place.server.url}/api/v2/buckets/{bucket['id']}"
    request = urllib.request.Request(url, headers={"Authorization": f"Token {influx_place.server.token}"}, method="DELETE")  # noqa: S310 - loopback
    urllib.request.urlopen(request, timeout=60).close()  # noqa: S310 - loopback


def seqs(influx_place):
    """Return what the influx_place has."""
    return sorted(run.seq for run in InfluxStore(influx_place.config()).contents().runs)


def make(influx_place):
    """Make the bucket or database."""
    if influx_place.version == 1:
        influx_place.query(f'CREATE DATABASE "{influx_place.name}"')
        return
    (org,) = influx_place.server.ask("/api/v2/orgs")["orgs"]
    influx_place.server.ask("/api/v2/buckets", {"name": influx_place.name, "orgID": org["id"], "retentionRules": []})


def test_a_bucket_that_was_lost_is_filled_from_the_beginning(influx_place, sink_of, path):
    """It is made again by the next write, and everything in the ledger follows."""
    make(influx_place)
    fill(path, [make_record(session=5, seq=seq) for seq in range(1, 9)])
    drained(path, sink_of(influx_place.config()))
    lose(influx_place)
    fill(path, [make_record(session=5, seq=9)])
    drained(path, sink_of(influx_place.config()))
    assert seqs(influx_place) == list(range(1, 10))


def test_what_is_drained_again_changes_no_point(influx_place, sink_of, path):
    """The same measurement, tags and time: as many points and values of each field as before, of all runs or of the later ones."""
    also = Points(also=frozenset({"latency_histogram"}))
    fill(path, [make_record(session=5, seq=seq, suite=f"nightly-{seq % 3}") for seq in range(1, 31)])
    drained(path, sink_of(influx_place.config()), also)
    queries = ("SELECT count(*) FROM run", "SELECT count(*) FROM latency_histogram", "SELECT * FROM run")
    before = [influx_place.query(query) for query in queries]
    assert before[0][0]["count_seq"] == 30
    for since in ([], ["--since", "1970-01-01"]):
        result = CliRunner().invoke(collector, ["drain", "--again", "--ledger", str(path), *since], catch_exceptions=False)
        assert "30 records to write" in result.stdout
        drained(path, sink_of(influx_place.config()), also)
        assert [influx_place.query(query) for query in queries] == before


def test_a_bucket_lost_under_a_running_drain_is_filled_again(influx_place, sink_of, path):
    """It learns of it by the next write, makes the influx_place anew and begins at the beginning."""
    fill(path, [make_record(session=5, seq=seq) for seq in range(1, 9)])
    with draining(Drain(path, sink_of(influx_place.config()))) as drain:
        assert wait_until(lambda: drain.has_reached(8))
        lose(influx_place)
        fill(path, [make_record(session=5, seq=9)])
        drain.wake()
        assert wait_until(lambda: drain.has_reached(9), 40, patience=1.0)
    assert seqs(influx_place) == list(range(1, 10))


def test_a_bucket_that_was_emptied_is_filled_by_drain_again(influx_place, sink_of, path):
    """Restored from an old backup, or emptied: the bucket is the same one, so somebody has to say so; a running drain begins at once."""
    fill(path, [make_record(session=5, seq=seq) for seq in range(1, 9)])
    with draining(Drain(path, sink_of(influx_place.config()))) as drain:
        assert wait_until(lambda: drain.has_reached(8))
        if influx_place.version == 1:
            influx_place.query('DROP MEASUREMENT "run"')
        else:
            period = {"start": "1970-01-01T00:00:00Z", "stop": "2100-01-01T00:00:00Z"}
            influx_place.server.ask(f"/api/v2/delete?org={influx_place.server.org}&bucket={influx_place.name}", period)
        assert seqs(influx_place) == []
        url = influx_place.server.url
        result = CliRunner().invoke(collector, ["drain", "--ledger", str(path), "--json"], catch_exceptions=False)
        assert [sink["records_to_write"] for sink in json.loads(result.stdout)["sinks"]] == [0]
        arguments = ["drain", "--again", "--ledger", str(path), "--influx", url, "--since", "1970-01-01"]
        result = CliRunner().invoke(collector, arguments, catch_exceptions=False)
        assert "8 records to write" in result.stdout
        drain.wake()
        assert wait_until(lambda: is_filled(influx_place))
    other = CliRunner().invoke(collector, ["drain", "--again", "--ledger", str(path), "--influx", "http://other:1"])
    assert "was not drained to http://other:1" in str(other.exception)


def is_filled(influx):
    """Return whether all eight runs can be read; in InfluxDB 1 a point is seen before all of its fields are."""
    try:
        return seqs(influx) == list(range(1, 9))
    except ConfigError:
        return False


@pytest.mark.parametrize(
    "version", [pytest.param(2, marks=pytest.mark.influx), pytest.param(1, marks=pytest.mark.influx1)], ids=["influx2", "influx1"]
)
def test_an_influxdb_that_comes_back_gets_everything(request, version, path, tmp_path, monkeypatch, caplog):
    """Killed before and between batches, and frozen, so that nothing answers and no connection ends: nothing is lost or there twice."""
    monkeypatch.setattr(client, "INFLUX_TIMEOUT_S", 3.0)
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 5)
    monkeypatch.setattr(influx_drain, "FIRST_PAUSE_S", 0.1)
    program = request.getfixturevalue("influxd" if version == 2 else "influxd1")
    server = Influx(program, tmp_path) if version == 2 else Influx1(program, tmp_path)
    # A token that does not exist yet is a wrong token, which is not asked again soon.
    with running(server):
        pass
    database = {"org": server.org, "bucket": server.bucket} if version == 2 else {"database": "d"}
    config = InfluxConfig(server.url, server.token if version == 2 else "", **database)
    fill(path, [make_record(session=5, seq=seq) for seq in range(1, 13)])
    drain = Drain(path, open_sink(config))
    drain.start()
    try:
        assert wait_until(lambda: "no InfluxDB responds" in (drain.trouble or ""))
        assert caplog.text.count("not drained") == 1
        server.start()
        assert wait_until(lambda: drain.has_reached(12), 30)
        server.kill()
        fill(path, [make_record(session=5, seq=seq) for seq in range(13, 21)])
        drain.wake()
        assert wait_until(lambda: drain.trouble)
        server.start()
        assert wait_until(lambda: drain.has_reached(20), 30)
        assert wait_until(lambda: drain.trouble is None)
        server.process.send_signal(signal.SIGSTOP)
        fill(path, [make_record(session=5, seq=seq) for seq in range(21, 27)])
        drain.wake()
        assert wait_until(lambda: drain.trouble, 30)
        server.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: drain.has_reached(26), 30)
        assert sorted(run.seq for run in InfluxStore(config).contents().runs) == list(range(1, 27))
    finally:
        drain.stop()
        server.kill()


def test_a_server_that_is_busy_is_asked_again_later_and_gets_the_same_lines(scripted, sink_of, path, monkeypatch):
    """429 and 5xx: retry with growing pauses, the same points each time."""
    monkeypatch.setattr(influx_drain, "FIRST_PAUSE_S", 0.1)
    scripted.handler.script += [(status, "") for status in (429, 503, 500, 502)]
    fill(path, [make_record(session=5, seq=seq) for seq in (1, 2)])
    started = time.monotonic()
    drained(path, sink_of(scripted.config))
    assert time.monotonic() - started > 0.75 * (0.1 + 0.2 + 0.4 + 0.8)
    assert len(scripted.handler.bodies) == 5
    assert len(set(scripted.handler.bodies)) == 1


def test_a_server_too_slow_for_a_whole_batch_gets_smaller_ones(scripted, sink_of, path, monkeypatch):
    """One that times out on every large write would otherwise stand still for ever; the order stays."""
    monkeypatch.setattr(influx_drain, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 64)
    scripted.handler.most_lines = 10
    fill(path, [make_record(session=5, seq=seq) for seq in range(1, 101)])
    drained(path, sink_of(scripted.config))
    stored = b"\n".join(body for body in scripted.handler.bodies if body.count(b"\n") < 10).split(b"\n")
    numbers = [int(line.partition(b",seq=")[2].partition(b"i")[0]) for line in stored]
    assert list(dict.fromkeys(numbers)) == list(range(1, 101))


def test_a_wrong_configuration_is_reported_once_as_an_error_and_nothing_is_skipped(scripted, sink_of, path, caplog):
    """401 in the middle of the work: an error in the log, the position stays."""
    scripted.handler.script += [(401, "")]
    fill(path, [make_record(session=5, seq=1)])
    sink = sink_of(scripted.config)
    drain = Drain(path, sink)
    drain.start()
    assert wait_until(lambda: drain.trouble)
    drain.stop()
    assert [record.levelname for record in caplog.records if "not drained" in record.message] == ["ERROR"]
    assert "does not accept the token" in drain.trouble
    with SqliteLedger(path, "read") as ledger:
        assert ledger.position(sink.name) == 0
