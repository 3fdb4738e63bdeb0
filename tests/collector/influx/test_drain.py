import json
import signal
import urllib.request

import numpy as np
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.agent.contract import samples
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx import bucket_client, client
from edgemeter.collector.influx import drain as influx_drain
from edgemeter.collector.influx.drain import DRAIN_POLL_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, REMOVAL_EVERY_S, Drain
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import Points
from edgemeter.collector.influx.sink import open_sink
from tests.fixtures.draining import CONFIG, InfluxFunction, drained, draining, polled
from tests.fixtures.influx1 import Influx1
from tests.fixtures.ledgers import fill
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import STARTED_AT_NS, make_power_trace, make_record
from tests.fixtures.servers import Influx, running


@pytest.fixture
def path(tmp_path):
    """Return where a ledger is."""
    return tmp_path / "ledger"


@pytest.fixture
def in_tens(monkeypatch):
    """Make a batch of ten points."""
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 10)


def put(path, *seqs, **changes):
    """Commit records of these numbers."""
    return fill(path, [make_record(session=5, seq=seq, **changes) for seq in seqs])


def seqs_of(lines):
    """Return the numbers in lines, in order."""
    return [int(line.partition(",seq=")[2].partition("i")[0]) for line in lines]


@pytest.mark.usefixtures("in_tens")
def test_an_idle_sink_gets_a_small_batch_and_a_busy_one_whole_batches(path):
    """The sink does not wait for a whole batch to be prepared, and what is prepared while it stores is one write; in order, each once."""
    put(path, *range(1, 36))
    sink = InfluxFunction()
    drain = Drain(path, sink)
    assert polled(path, drain) == DRAIN_POLL_S
    assert [len(lines) for lines in sink.writes] == [2, 10, 10, 10, 3]
    assert seqs_of(sink.lines) == list(range(1, 36))
    assert polled(path, drain) == DRAIN_POLL_S
    assert len(sink.writes) == 5


@pytest.mark.usefixtures("in_tens")
def test_what_was_stored_and_not_noted_is_written_again_in_order(path, monkeypatch):
    """The ledger fails while the next batch is written: that write ends first, and then everything from the last position follows."""
    put(path, *range(1, 31))
    sink, advance, failures = InfluxFunction(), SqliteLedger.advance, [TransientError("the ledger is locked")]

    def locked_at_first(ledger, *arguments, **named):
        if failures:
            raise failures.pop()
        return advance(ledger, *arguments, **named)

    monkeypatch.setattr(SqliteLedger, "advance", locked_at_first)
    drain = Drain(path, sink)
    polled(path, drain)
    assert drain.trouble == "the ledger is locked"
    polled(path, drain)
    assert drain.trouble is None
    assert seqs_of(sink.lines) == [*range(1, 13), *range(1, 31)]


@pytest.mark.usefixtures("in_tens")
def test_a_point_that_the_sink_rejects_is_quarantined_once_and_stops_nothing(path):
    """By reference to its record; the position passes it; one that is only too old is counted, and nothing is wrong with it."""
    put(path, *range(1, 4))
    bad = '{"message": "unable to parse: out of range"}'
    old = '{"message": "points beyond retention policy dropped=1"}'
    # Two lines are written first; each of them is asked about alone.
    sink = InfluxFunction((400, bad), (400, bad), (400, old))
    drain = Drain(path, sink)
    polled(path, drain)
    assert (drain.rejected, drain.expired, seqs_of(sink.lines)) == (1, 1, [3])
    with SqliteLedger(path, "read") as ledger:
        assert ledger.position(sink.name) == 3
        (entry,) = ledger.quarantined()
    assert quarantine.read_reference(entry.payload).seq == 1
    assert "out of range" in entry.reason


def test_two_sinks_are_drained_apart_and_each_goes_on_where_it_was(path):
    """Each has its own position in the ledger, by its name."""
    put(path, 1, 2)
    first, second, other = InfluxFunction(), InfluxFunction(), InfluxFunction(name="other")
    drained(path, first)
    put(path, 3)
    for sink in (second, other):
        drained(path, sink)
    assert [seqs_of(sink.lines) for sink in (first, second, other)] == [[1, 2], [3], [1, 2, 3]]
    names = [open_sink(InfluxConfig("http://influx.example:8086", "t", database=name)).name for name in ("d", "d", "e")]
    assert names[0] == names[1] != names[2]


def test_a_sink_that_was_lost_is_filled_from_the_beginning(path):
    """Before a drain began, or under a running one, which learns of it by the next write."""
    put(path, *range(1, 9))
    sink = InfluxFunction()
    drain = Drain(path, sink)
    polled(path, drain)
    sink.is_missing = True
    put(path, 9)
    assert polled(path, drain) == FIRST_PAUSE_S
    polled(path, drain)
    assert seqs_of(sink.lines) == list(range(1, 10))
    emptied = InfluxFunction()
    emptied.is_missing = True
    put(path, 10)
    drain = Drain(path, emptied)
    polled(path, drain)
    polled(path, drain)
    assert seqs_of(emptied.lines) == [10, *range(1, 11)]


def test_a_server_that_is_busy_is_asked_again_later_and_gets_the_same_lines(path):
    """429 and 5xx: growing pauses, at most a minute, the same points each time."""
    put(path, 1)
    sink = InfluxFunction(*[(status, "") for status in (429, 503, 500, 502) * 3])
    drain = Drain(path, sink)
    pauses_s = [polled(path, drain) for _ in range(13)]
    for failures, pause_s in enumerate(pauses_s[:-1]):
        expected_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failures)
        assert 0.75 * expected_s <= pause_s <= 1.25 * expected_s
    assert (pauses_s[-1], drain.trouble) == (DRAIN_POLL_S, None)
    assert sink.writes == [sink.lines] * 13


@pytest.mark.usefixtures("in_tens")
def test_a_server_too_slow_for_a_whole_batch_gets_smaller_ones(path):
    """One that times out on every large write would otherwise stand still for ever; the order stays."""
    put(path, *range(1, 31))
    sink = InfluxFunction()
    post = sink._post

    def slow(lines):
        if len(lines) > 1:
            raise TransientError("timed out")
        post(lines)

    sink._post = slow
    drain = Drain(path, sink)
    for _ in range(100):
        polled(path, drain)
    assert drain.has_reached(30)
    assert list(dict.fromkeys(seqs_of(sink.lines))) == list(range(1, 31))


def test_a_wrong_configuration_is_reported_once_as_an_error_and_nothing_is_skipped(path, caplog):
    """401 in the middle of the work: an error in the log, the position stays."""
    put(path, 1)
    sink = InfluxFunction((401, ""), (401, ""))
    drain = Drain(path, sink)
    assert [polled(path, drain) for _ in range(2)] == [LONGEST_PAUSE_S] * 2
    assert [record.levelname for record in caplog.records if "not drained" in record.message] == ["ERROR"]
    with SqliteLedger(path, "read") as ledger:
        assert ledger.position(sink.name) == 0
    polled(path, drain)
    assert seqs_of(sink.lines) == [1]


def test_a_run_that_is_withdrawn_leaves_the_sink_and_a_server_that_cannot_delete_is_asked_in_an_hour(path, monkeypatch):
    """By device and time of its point; noted once it is gone, and not before."""
    runs = [make_record(session=5, seq=seq) for seq in (1, 2)]
    fill(path, runs)
    now, removed, refusals = [0.0], [], [ConfigError("cannot delete")]

    def remove(device, at_ns):
        if refusals:
            raise refusals.pop()
        removed.append((device, at_ns))

    sink = InfluxFunction()
    monkeypatch.setattr(sink, "remove", remove)
    drain = Drain(path, sink, clock=lambda: now[0])
    polled(path, drain)
    with SqliteLedger(path) as ledger:
        LedgerRuns(ledger).withdraw(runs[1].id, "deleted", "ada@lab", "")
    for now[0], count in ((1.0, 0), (REMOVAL_EVERY_S, 0), (1.0 + REMOVAL_EVERY_S, 1), (9.0 * REMOVAL_EVERY_S, 1)):
        polled(path, drain)
        assert len(removed) == count
    assert removed[0][0] == "pi-1"


def test_the_state_of_the_collector_is_written_as_often_as_it_is_asked_for(path):
    """Between batches too; of the devices only what changed."""
    put(path, 1)
    now = [0.0]
    sink = InfluxFunction()
    drain = Drain(path, sink, status_every_s=60.0, clock=lambda: now[0])
    for now[0], count in ((0.0, 1), (59.0, 1), (60.0, 2)):
        polled(path, drain)
        assert sum(line.startswith("collector,") for line in sink.lines) == count
    assert {"ledger_row=1i", "sink_row=1i", "lag_rows=0i"} < set(sink.lines[-1].split(" ")[1].split(","))


def test_what_was_emptied_is_filled_by_drain_again(path):
    """Restored from an old backup: the bucket is the same one, so somebody has to say so; a running drain begins at once."""
    put(path, *range(1, 9))
    sink = InfluxFunction(name="influx http://h:8086 b")
    drain = Drain(path, sink)
    polled(path, drain)

    def records_to_write(*options):
        result = CliRunner().invoke(collector, ["drain", "--ledger", str(path), "--format", "json", *options], catch_exceptions=False)
        return [entry["records_to_write"] for entry in json.loads(result.stdout)["sinks"]]

    assert records_to_write() == [0]
    sink.lines.clear()
    assert records_to_write("--again", "--influx", "http://h:8086", "--since", "1970-01-01") == [8]
    polled(path, drain)
    assert seqs_of(sink.lines) == list(range(1, 9))
    other = CliRunner().invoke(collector, ["drain", "--again", "--ledger", str(path), "--influx", "http://other:1"])
    assert isinstance(other.exception, ConfigError)


def test_a_server_that_is_away_is_reported_at_the_start_and_a_wrong_token_ends_it(path, monkeypatch, caplog):
    """With an empty ledger nothing would be tried, and a wrong port be noticed when results are missed."""
    sink, errors = InfluxFunction(), [TransientError("nobody there"), ConfigError("wrong token")]

    def prepare():
        raise errors.pop(0)

    monkeypatch.setattr(influx_drain, "open_sink", lambda _config: sink)
    monkeypatch.setattr(sink, "prepare", prepare)
    drain = influx_drain.open_drain(path, CONFIG)
    assert drain.positions({}) == {sink.name: 0}
    # The drain logs no trouble that it already has.
    assert drain.trouble == "nobody there"
    assert caplog.text.count("nobody there") == 1
    with pytest.raises(ConfigError, match="wrong token"):
        influx_drain.open_drain(path, CONFIG)


def seqs_in(influx_place):
    """Return the numbers of the runs that an InfluxDB has."""
    return sorted(row["seq"] for row in influx_place.query("SELECT seq FROM run"))


@pytest.mark.usefixtures("in_tens")
def test_a_ledger_in_a_real_influxdb_without_bad_expired_and_withdrawn_runs(influx_place, sink_of, path):
    """Several batches; what the server does not take stops nothing; a run of another device at the same nanosecond stays."""
    runs = [make_record(session=5, seq=seq, seed=2**63 if seq == 13 else 1, started_at_ns=STARTED_AT_NS + seq) for seq in range(1, 36)]
    fill(path, [*runs, make_record(session=5, seq=3, started_at_ns=runs[2].started_at_ns, device="another")])
    points = Points(also=frozenset({"latency_histogram"}))
    drained(path, sink_of(influx_place.config()), points)
    expected = [*range(1, 13), *range(14, 36)]
    assert seqs_in(influx_place) == sorted([*expected, 3])
    with SqliteLedger(path) as ledger:
        (entry,) = ledger.quarantined()
        assert "unable to parse" in entry.reason
        LedgerRuns(ledger).withdraw(runs[2].id, "excluded", "ada@lab", "the fan was off")
    drained(path, sink_of(influx_place.config()), points)
    assert seqs_in(influx_place) == expected
    assert len(list(influx_place.query("SELECT * FROM latency_histogram"))) == 35
    with SqliteLedger(path) as ledger:
        LedgerRuns(ledger).include(runs[2].id, "ada@lab", "")
    drained(path, sink_of(influx_place.config()), points)
    assert seqs_in(influx_place) == sorted([*expected, 3])


def lose(influx_place):
    """Remove the bucket or database, with everything in it."""
    if influx_place.version == 1:
        influx_place.query(f'DROP DATABASE "{influx_place.name}"')
        return
    (bucket,) = influx_place.server.ask(f"/api/v2/buckets?name={influx_place.name}")["buckets"]
    url = f"{influx_place.server.url}/api/v2/buckets/{bucket['id']}"
    request = urllib.request.Request(url, headers={"Authorization": f"Token {influx_place.server.token}"}, method="DELETE")  # noqa: S310 - loopback
    urllib.request.urlopen(request, timeout=60).close()  # noqa: S310 - loopback


def test_a_real_bucket_lost_under_a_drain_is_filled_again(influx_place, sink_of, path):
    """It learns of it by the next write, makes the place anew and begins at the beginning."""
    put(path, *range(1, 9))
    drain = Drain(path, sink_of(influx_place.config()))
    polled(path, drain)
    lose(influx_place)
    put(path, 9)
    polled(path, drain)
    polled(path, drain)
    assert drain.trouble is None
    assert seqs_in(influx_place) == list(range(1, 10))


def test_what_is_drained_again_changes_no_point(influx_place, sink_of, path):
    """The same measurement, tags and time, of the raw samples too: as many points and values of each field as before."""
    readings = (("power.a", "W", [1.0, 2.5]), ("power_at.a", "ns", [1000, 9000]), ("latency", "ns", [5, 6, 7]))
    with_samples = {
        "samples": tuple(samples.pack(name, unit, np.array(values)) for name, unit, values in readings),
        "power_traces": (make_power_trace("a"),),
    }
    also = Points(also=frozenset({"latency_histogram", "power_trace"}))
    fill(path, [make_record(session=5, seq=seq, suite=f"nightly-{seq % 3}", **with_samples) for seq in range(1, 31)])
    drained(path, sink_of(influx_place.config()), also)
    queries = (
        "SELECT count(*) FROM run",
        "SELECT * FROM run",
        "SELECT to_1000_ns FROM latency_histogram",
        "SELECT power_w FROM power_trace",
    )
    before = [influx_place.query(query) for query in queries]
    assert before[0][0]["count_seq"] == 30
    assert {row["to_1000_ns"] for row in before[2]} == {3}
    assert {row["power_w"] for row in before[3]} == {1.0, 2.5}
    with SqliteLedger(path) as ledger:
        (name,) = ledger.positions()
        assert ledger.set_back(name, None) == 30
    drained(path, sink_of(influx_place.config()), also)
    assert [influx_place.query(query) for query in queries] == before


@pytest.mark.parametrize(
    "version", [pytest.param(2, marks=pytest.mark.influx), pytest.param(1, marks=pytest.mark.influx1)], ids=["influx2", "influx1"]
)
def test_an_influxdb_that_comes_back_gets_everything(request, version, path, tmp_path, monkeypatch, caplog):
    """Killed before and between batches, and frozen, so that nothing answers and no connection ends: nothing is lost or there twice."""
    monkeypatch.setattr(client, "INFLUX_TIMEOUT_S", 3.0)
    monkeypatch.setattr(bucket_client, "TIMEOUT_MS", 3000)
    monkeypatch.setattr(influx_drain, "BATCH_POINTS", 5)
    monkeypatch.setattr(influx_drain, "FIRST_PAUSE_S", 0.1)
    program = request.getfixturevalue("influxd" if version == 2 else "influxd1")
    server = Influx(program, tmp_path) if version == 2 else Influx1(program, tmp_path)
    # A token that does not exist yet is a wrong token, which is not asked again soon.
    with running(server):
        pass
    database = {"org": server.org, "bucket": server.bucket} if version == 2 else {"database": "d"}
    config = InfluxConfig(server.url, server.token if version == 2 else "", **database)
    put(path, *range(1, 13))
    with draining(Drain(path, open_sink(config))) as drain:
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
            assert sorted(row["seq"] for row in server.query("SELECT seq FROM run", "d" if version == 1 else server.bucket)) == list(
                range(1, 27)
            )
        finally:
            server.kill()
