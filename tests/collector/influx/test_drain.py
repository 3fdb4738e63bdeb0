import json
import signal
import threading

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx import bucket as influx_bucket
from edgemeter.collector.influx import drain as influx_drain
from edgemeter.collector.influx.bucket import Bucket
from edgemeter.collector.influx.drain import (
    DRAIN_POLL_S,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    REMOVAL_EVERY_S,
    Drain,
)
from edgemeter.collector.influx.influx_config import InfluxConfig
from tests.fixtures.draining import CONFIG, InfluxFunction, drained, draining, polled
from tests.fixtures.health_factory import make_health
from tests.fixtures.ledgers import fill, report
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import STARTED_AT_NS, make_record
from tests.fixtures.servers import Influx, running

WEEK_NS = 7 * 24 * 3600 * 1_000_000_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def in_tens(monkeypatch):
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 10)


def put(path, *seqs, **changes):
    return fill(path, [make_record(session=5, seq=seq, **changes) for seq in seqs])


def seqs_of(lines):
    return [int(line.partition(",seq=")[2].partition("i")[0]) for line in lines]


def seqs_in(influx_place):
    return sorted(row["seq"] for row in influx_place.query("SELECT seq FROM run"))


@pytest.mark.usefixtures("in_tens")
def test_batches_are_written_in_order_and_what_was_not_noted_is_written_again(path, monkeypatch):
    """If the ledger fails once after a write, everything from the last position follows."""
    put(path, *range(1, 36))
    bucket, advance, failures = (
        InfluxFunction(),
        SqliteLedger.advance,
        [TransientError("the ledger is locked")],
    )

    def locked_at_second(ledger, name, position, *arguments, **named):
        if position == 20 and failures:
            raise failures.pop()
        return advance(ledger, name, position, *arguments, **named)

    monkeypatch.setattr(SqliteLedger, "advance", locked_at_second)
    drain = Drain(path, bucket)
    polled(path, drain)
    assert drain.trouble == "the ledger is locked"
    while not drain.has_reached(35):
        assert polled(path, drain) == DRAIN_POLL_S
    assert drain.trouble is None
    assert seqs_of(bucket.lines) == [*range(1, 21), *range(11, 36)]
    polled(path, drain)
    assert len(bucket.lines) == 45


@pytest.mark.usefixtures("in_tens")
def test_the_next_batch_is_read_while_the_server_stores_one(path, monkeypatch):
    """The answer to the first write comes after the second batch was read."""
    put(path, *range(1, 16))
    bucket, chunks, reads, is_read = InfluxFunction(), SqliteLedger.chunks, [], threading.Event()
    post = bucket.post

    def counted(ledger, *, after_row):
        reads.append(after_row)
        yield from chunks(ledger, after_row=after_row)
        is_read.set()

    def slow(lines):
        assert is_read.wait(20)
        post(lines)

    monkeypatch.setattr(SqliteLedger, "chunks", counted)
    monkeypatch.setattr(bucket, "post", slow)
    polled(path, Drain(path, bucket))
    assert (reads, seqs_of(bucket.lines)) == ([0, 10, 15], list(range(1, 16)))


def test_a_point_that_the_server_rejects_is_quarantined_once_and_stops_nothing(path, caplog):
    """A rejected point is quarantined by reference to its record, and the position passes it.

    A point that is only too old is named in the log, and nothing is wrong with it.
    """
    put(path, *range(1, 5))
    bad, old = "unable to parse: out of range", "points beyond retention policy dropped=1"
    bucket = InfluxFunction((400, bad), (400, bad), (400, bad), (422, old))
    drain = Drain(path, bucket)
    polled(path, drain)
    assert (drain.rejected, seqs_of(bucket.lines)) == (1, [3, 4])
    assert caplog.text.count("older than what") == 1
    with SqliteLedger(path, "read") as ledger:
        assert ledger.position(bucket.name) == 4
        (entry,) = ledger.quarantined()
    assert quarantine.read_reference(entry.payload).seq == 1
    assert "out of range" in entry.reason


def test_each_bucket_goes_on_where_it_was(path):
    """Each has its own position in the ledger, by its name."""
    put(path, 1, 2)
    first, second, other = InfluxFunction(), InfluxFunction(), InfluxFunction(name="other")
    drained(path, first)
    put(path, 3)
    for bucket in (second, other):
        drained(path, bucket)
    assert [seqs_of(bucket.lines) for bucket in (first, second, other)] == [[1, 2], [3], [1, 2, 3]]


def test_a_server_that_is_busy_is_asked_again_later_and_gets_the_same_lines(path, caplog):
    """After 429 and 5xx the same points are sent after growing pauses, at most a minute.

    Each trouble is one line.
    """
    put(path, 1)
    bucket = InfluxFunction(
        *[(status, "") for status in (429, 503, 500, 502) * 3],
        (500, "disk is full"),
        (500, "disk is full"),
    )
    drain = Drain(path, bucket)
    pauses_s = [polled(path, drain) for _ in range(15)]
    for failures, pause_s in enumerate(pauses_s[:-1]):
        expected_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failures)
        assert 0.75 * expected_s <= pause_s <= 1.25 * expected_s
    assert (pauses_s[-1], drain.trouble) == (DRAIN_POLL_S, None)
    assert bucket.writes == [bucket.lines] * 15
    assert caplog.text.count("disk is full") == 1


@pytest.mark.usefixtures("in_tens")
def test_a_server_too_slow_for_a_whole_batch_gets_smaller_ones(path, monkeypatch):
    """A server that times out on every large write would otherwise stop the drain for ever.

    The order stays.
    """
    put(path, *range(1, 31))
    bucket = InfluxFunction()
    post = bucket.post

    def slow(lines):
        if len(lines) > 1:
            raise TransientError("timed out")
        post(lines)

    monkeypatch.setattr(bucket, "post", slow)
    drain = Drain(path, bucket)
    for _ in range(100):
        polled(path, drain)
    assert drain.has_reached(30)
    assert seqs_of(bucket.lines) == list(range(1, 31))


def test_a_wrong_configuration_is_reported_once_as_an_error_and_nothing_is_skipped(path, caplog):
    """A 401 during the work is an error in the log, and the position stays."""
    put(path, 1)
    bucket = InfluxFunction((401, ""), (401, ""))
    drain = Drain(path, bucket)
    assert [polled(path, drain) for _ in range(2)] == [LONGEST_PAUSE_S] * 2
    assert [record.levelname for record in caplog.records if "not drained" in record.message] == [
        "ERROR"
    ]
    with SqliteLedger(path, "read") as ledger:
        assert ledger.position(bucket.name) == 0
    polled(path, drain)
    assert seqs_of(bucket.lines) == [1]


def test_a_withdrawn_run_leaves_the_bucket_and_a_server_that_cannot_delete_is_asked_in_an_hour(
    path,
):
    """The point is found by device and time, and noted as removed only once it is gone."""
    runs = [make_record(session=5, seq=seq) for seq in (1, 2)]
    fill(path, runs)
    now, bucket = [0.0], InfluxFunction()
    drain = Drain(path, bucket, clock=lambda: now[0])
    polled(path, drain)
    with SqliteLedger(path) as ledger:
        LedgerRuns(ledger).withdraw(runs[1].id, "deleted", "ada@lab", "")
    bucket.script.append((405, "method not allowed"))
    for now[0], count in (
        (1.0, 0),
        (REMOVAL_EVERY_S, 0),
        (1.0 + REMOVAL_EVERY_S, 1),
        (9.0 * REMOVAL_EVERY_S, 1),
    ):
        polled(path, drain)
        assert (len(bucket.deleted), drain.trouble) == (count, None)
    assert bucket.deleted[0][0] == "pi-1"


def test_the_state_of_devices_and_collector_is_written_as_often_as_it_is_asked_for(path):
    """The state is written between batches too."""
    put(path, 1)
    report(path, PresenceChange("lab", "pi-1", make_health(), 1))
    now, bucket = [0.0], InfluxFunction()
    drain = Drain(path, bucket, status_every_s=60.0, clock=lambda: now[0])
    for now[0], count in ((0.0, 1), (59.0, 1), (60.0, 2)):
        polled(path, drain)
        for head in ("collector,", "device,device=pi-1,fleet=lab "):
            assert sum(line.startswith(head) for line in bucket.lines) == count
    assert " lag_rows=0i " in bucket.lines[-1]


def test_what_was_emptied_is_filled_by_drain_again(path):
    """A bucket that was lost or restored is filled when somebody asks for it.

    A running drain begins at once.
    """
    put(path, *range(1, 9))
    bucket = InfluxFunction(name="influx http://h:8086 b")
    drain = Drain(path, bucket)
    polled(path, drain)

    def records_to_write(*options):
        result = CliRunner().invoke(
            collector,
            ["drain", "--ledger", str(path), "--format", "json", *options],
            catch_exceptions=False,
        )
        return [entry["records_to_write"] for entry in json.loads(result.stdout)["sinks"]]

    assert records_to_write() == [0]
    bucket.lines.clear()
    assert records_to_write("--again", "--since", "1970-01-01") == [8]
    polled(path, drain)
    assert seqs_of(bucket.lines) == list(range(1, 9))


def test_a_server_that_is_away_is_reported_at_the_start_and_a_wrong_token_ends_it(
    path, monkeypatch, caplog
):
    """With an empty ledger a wrong port would be noticed only when results are missed."""
    bucket = InfluxFunction((503, "nobody there"), (401, ""))
    monkeypatch.setattr(influx_drain, "Bucket", lambda _config: bucket)
    drain = influx_drain.open_drain(path, CONFIG)
    # The drain logs no trouble that it already has.
    assert "nobody there" in drain.trouble
    assert caplog.text.count("nobody there") == 1
    with pytest.raises(ConfigError, match="does not accept the token"):
        influx_drain.open_drain(path, CONFIG)


@pytest.mark.usefixtures("in_tens")
def test_a_ledger_in_a_real_influxdb_without_rejected_and_withdrawn_runs(
    influx_place, bucket_of, path
):
    """Rejected points stop nothing over several batches.

    A run of another device at the same nanosecond stays.
    """
    # In that week somebody else has written a field with another type.
    bucket_of(influx_place.config()).write([f"run,device=x seq=1.5 {STARTED_AT_NS - 4 * WEEK_NS}"])
    starts_ns = {
        seq: STARTED_AT_NS + seq - (4 * WEEK_NS if seq == 13 else 0) for seq in range(1, 36)
    }
    runs = [
        make_record(session=5, seq=seq, started_at_ns=start_ns)
        for seq, start_ns in starts_ns.items()
    ]
    fill(
        path,
        [
            *runs,
            make_record(session=5, seq=3, started_at_ns=runs[2].started_at_ns, device="another"),
        ],
    )
    drained(path, bucket_of(influx_place.config()))
    expected = [*range(1, 13), *range(14, 36)]
    assert seqs_in(influx_place) == sorted([1.5, *expected, 3])
    with SqliteLedger(path) as ledger:
        (entry,) = ledger.quarantined()
        assert "field type conflict" in entry.reason
        LedgerRuns(ledger).withdraw(runs[2].id, "excluded", "ada@lab", "the fan was off")
    drained(path, bucket_of(influx_place.config()))
    assert seqs_in(influx_place) == sorted([1.5, *expected])
    with SqliteLedger(path) as ledger:
        LedgerRuns(ledger).include(runs[2].id, "ada@lab", "")
    drained(path, bucket_of(influx_place.config()))
    assert seqs_in(influx_place) == sorted([1.5, *expected, 3])


def test_what_is_drained_again_changes_no_point(influx_place, bucket_of, path):
    """Measurement, tags and time are the same, so no point is added and no value changes."""
    fill(
        path, [make_record(session=5, seq=seq, suite=f"nightly-{seq % 3}") for seq in range(1, 31)]
    )
    drained(path, bucket_of(influx_place.config()))
    before = influx_place.query("SELECT * FROM run")
    assert len(before) == 30
    with SqliteLedger(path) as ledger:
        (name,) = ledger.positions()
        assert ledger.set_back(name, None) == 30
    drained(path, bucket_of(influx_place.config()))
    assert influx_place.query("SELECT * FROM run") == before


@pytest.mark.influx
def test_an_influxdb_that_comes_back_gets_everything(influxd, path, tmp_path, monkeypatch, caplog):
    """Nothing is lost or stored twice when the server is killed or frozen.

    It is killed before and between batches; frozen, it answers nothing and ends no connection.
    """
    monkeypatch.setattr(influx_bucket, "TIMEOUT_MS", 3000)
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 5)
    monkeypatch.setattr(influx_drain, "FIRST_PAUSE_S", 0.1)
    server = Influx(influxd, tmp_path)
    # A token that does not exist yet is a wrong token, which is not asked again soon.
    with running(server):
        pass
    put(path, *range(1, 13))
    with draining(
        Drain(path, Bucket(InfluxConfig(server.url, server.token, server.org, server.bucket)))
    ) as drain:
        try:
            assert wait_until(lambda: "no InfluxDB responds" in (drain.trouble or ""))
            assert caplog.text.count("not drained") == 1
            server.start()
            assert wait_until(lambda: drain.has_reached(12))
            server.kill()
            put(path, *range(13, 21))
            drain.wake()
            assert wait_until(lambda: drain.trouble)
            server.start()
            assert wait_until(lambda: drain.has_reached(20) and drain.trouble is None)
            server.process.send_signal(signal.SIGSTOP)
            put(path, *range(21, 27))
            drain.wake()
            assert wait_until(lambda: drain.trouble)
            server.process.send_signal(signal.SIGCONT)
            assert wait_until(lambda: drain.has_reached(26))
            assert sorted(row["seq"] for row in server.query("SELECT seq FROM run")) == list(
                range(1, 27)
            )
        finally:
            server.kill()
