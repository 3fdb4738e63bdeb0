import itertools
import time

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.collector.influx import points
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.set_up import set_up_influx
from edgemeter.collector.runs.store import InfluxStore, oldest_first
from tests.fixtures.influx1 import Influx1
from tests.fixtures.point_lines import point_line
from tests.fixtures.random_records import random_record
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row
from tests.fixtures.servers import Influx, free_port, running


def written(sink, lines):
    """Write as the drain does, which tries again: on a loaded machine InfluxDB was seen to give up making hundreds of shards."""
    for _ in range(20):
        try:
            return sink.write(lines)
        except TransientError:
            time.sleep(1)
    return sink.write(lines)


@pytest.mark.nightly
def test_whatever_a_record_holds_comes_back_exactly(influx_place, sink_of):
    """Floats stay floats, integers integers, booleans, texts with anything in them, what is absent absent; none is refused."""
    records = [random_record(seed) for seed in range(80)]
    assert written(sink_of(influx_place.config()), [point_line(record) for record in records]) == []
    contents = InfluxStore(influx_place.config()).contents()
    for _ in range(20):
        # On a loaded machine InfluxDB 1 was seen to show a point of so many new shards a moment after it had confirmed it.
        if len(contents.runs) == len(records):
            break
        time.sleep(1)
        contents = InfluxStore(influx_place.config()).contents()
    assert contents.left_out == []
    assert list(contents.runs) == oldest_first(records)


def test_a_query_finds_the_figures_by_the_tags(influx_place, sink_of):
    """What a dashboard asks, with the names of the record."""
    record = make_record(session=5, seq=1)
    assert sink_of(influx_place.config()).write([point_line(record)]) == []
    (row,) = influx_place.query(
        "SELECT latency_p50_ms, accuracy_ap50, latency_refused_p95, id FROM run WHERE model = 'tiny-detector' GROUP BY *"
    )
    assert (row["time"], row["id"]) == (points.point_ns(record), record.id)
    assert (row["latency_p50_ms"], row["accuracy_ap50"], row["latency_refused_p95"]) == (12.25, 0.875, 110)
    assert (row["device"], row["fleet"], row["board"], row["suite"]) == ("pi-1", "lab", record.environment.board, "shipped")


@pytest.mark.parametrize("bad", [(0, 1, 19), tuple(range(20))])
def test_exactly_the_malformed_points_are_returned_and_all_others_are_stored(influx_place, sink_of, bad):
    """Version 2 stores nothing of such a batch, version 1 the rest: both end the same."""
    lines = [point_line(make_record(session=5, seq=position + 1, seed=1)) for position in range(20)]
    lines = [line.replace("seed=1i", f"seed={2**63}i") if position in bad else line for position, line in enumerate(lines)]
    refused = sink_of(influx_place.config()).write(lines)
    assert tuple(point.index for point in refused) == bad
    assert all("unable to parse" in point.reason and "\n" not in point.reason for point in refused)
    stored = [row["seq"] for row in influx_place.query("SELECT seq FROM run")]
    assert sorted(stored) == [position + 1 for position in range(20) if position not in bad]


def test_a_type_conflict_takes_only_its_own_points_out(influx_place, sink_of):
    """The server stores the rest and names the first only; somebody else had written the column with another type."""
    sink = sink_of(influx_place.config())
    sink.write(["run,device=x seed=1.5 1760000000000000001"])
    own_points = [point_line(make_record(session=5, seq=seq)) for seq in (1, 2, 3)]
    other_points = [f"run,device=y other={number}i 176000000000000000{number}" for number in range(2, 9)]
    refused = sink.write([other_points[0], own_points[0], *other_points[1:4], *own_points[1:], *other_points[4:], "run,device=z a= 5"])
    assert [point.index for point in refused] == [1, 5, 6, 10]
    assert all("field type conflict" in point.reason for point in refused[:3])
    assert [row["other"] for row in influx_place.query("SELECT other FROM run")] == [2, 3, 4, 5, 6, 7, 8]


def test_points_older_than_what_is_kept_are_refused_together(influx_place, sink_of, monkeypatch):
    """After an outage longer than the retention: not each asked about alone, and those within it are stored."""
    set_up_influx(influx_place.config(), 2, {})
    sink, posts = sink_of(influx_place.config()), []
    inner = sink._post
    monkeypatch.setattr(sink, "_post", lambda *parts: (posts.append(len(parts[-1])), inner(*parts)))
    now_ns = time.time_ns()
    lines = [f"run,device=d seq={number}i {number if number < 900 else now_ns + number}" for number in range(1000)]
    refused = sink.write(lines)
    assert [point.index for point in refused] == list(range(900))
    assert all(point.is_expired for point in refused)
    assert influx_place.query("SELECT count(seq) FROM run")[0]["count"] == 100
    assert len(posts) < 30


def test_the_reason_is_reported_however_long_the_point(influx_place, sink_of):
    """The server quotes the whole line before the reason."""
    line = f'run,device=d text="{"x" * 5000}",seq=99999999999999999999i 1760000000000000001'
    (refused,) = sink_of(influx_place.config()).write([line])
    assert "out of range" in refused.reason
    assert len(refused.reason) < 400


def test_more_points_than_one_write_takes_are_written_in_several(influx_place, sink_of):
    """A long power trace is one record's."""
    lines = [f"power_trace,device=d power_w={number}.5 {number}" for number in range(1, 12_002)]
    assert sink_of(influx_place.config()).write(lines) == []
    assert influx_place.query("SELECT count(power_w) FROM power_trace")[0]["count"] == 12_001


def configs(url):
    """Return a configuration of each version at `url`."""
    return InfluxConfig(url, "t", "org", "b"), InfluxConfig(url, "user:password", database="d", policy="p")


def test_a_reply_is_sorted_by_what_somebody_has_to_do(scripted, sink_of):
    """Configuration aloud, the rest later; one line each."""
    for version, (status, body, error, words) in itertools.product(
        (0, 1),
        (
            (401, '{"code":"unauthorized","message":"nope"}', ConfigError, r"does not accept the token \(nope\): give one"),
            (403, '{"error":"not authorized"}', ConfigError, "does not accept the token"),
            (404, '{"error":"database not found: \\"d\\""}', ConfigError, "database not found"),
            (429, "", TransientError, "responds 429"),
            (500, '{"error":"timeout"}', TransientError, r"responds 500 \(timeout\)"),
            (500, '{"error":"retention policy not found: p"}', ConfigError, "retention policy not found: p: name an existing one"),
            (503, "<html>\n<b>busy</b></html>", TransientError, "responds 503"),
        ),
    ):
        with table_row(version, status, body):
            scripted.handler.script.append((status, body))
            with pytest.raises(error, match=words) as raised:
                sink_of(configs(scripted.config.url)[version]).write(["run a=1 1"])
            assert "\n" not in str(raised.value)


def test_what_has_no_organisations_gets_the_writes_of_version_2(scripted, sink_of):
    """1.8 and 3: the path is the same, the organisation is ignored."""
    config = InfluxConfig(scripted.config.url + "/below", "user:password", bucket="database/policy")
    assert sink_of(config).write(["run a=1 1"]) == []
    assert scripted.handler.bodies == [b"run a=1 1"]
    assert scripted.handler.paths[-1] == "/below/api/v2/write?org=-&bucket=database%2Fpolicy&precision=ns"


def test_a_batch_that_is_too_large_for_the_server_is_halved(scripted, sink_of):
    """413, whatever its limit is."""
    for config in configs(scripted.config.url):
        scripted.handler.script += [(413, "too large"), (413, "too large")]
        scripted.handler.bodies.clear()
        assert sink_of(config).write([f"run a=1 {number}" for number in range(8)]) == []
        assert [body.count(b"\n") + 1 for body in scripted.handler.bodies] == [8, 4, 2, 2, 4]


def test_a_malformed_point_among_many_takes_three_writes_not_twenty(scripted, sink_of):
    """The server quotes the line; its word is not taken for it, the line is asked about alone."""
    lines = [f"run a={number} {number}" for number in range(5000)]
    body = '{"code":"invalid","message":"unable to parse \'run a=4321 4321\': somehow"}'
    scripted.handler.script += [(400, body), (400, body)]
    (refused,) = sink_of(scripted.config).write(lines)
    assert refused.index == 4321
    assert [body.count(b"\n") + 1 for body in scripted.handler.bodies] == [5000, 1, 4999]


def test_no_influxdb_is_a_transient_error_of_one_line(sink_of):
    """It may come later; the ledger keeps everything until then."""
    for version in (0, 1):
        with table_row(version):
            with pytest.raises(
                TransientError, match=r"no InfluxDB responds at http://127\.0\.0\.1:\d+ .*the ledger keeps everything"
            ) as raised:
                sink_of(configs(f"http://127.0.0.1:{free_port()}")[version]).write(["run a=1 1"])
            assert "\n" not in str(raised.value)


@pytest.mark.influx1
def test_a_user_of_influxdb_1_who_may_only_write_is_enough(influxd1, tmp_path, sink_of):
    """Least privilege; a wrong password and a database that may not be made are configuration."""
    with running(Influx1(influxd1, tmp_path, "admin:secret")) as server:
        server.execute("CREATE DATABASE kept")
        server.execute("CREATE USER writer WITH PASSWORD 'w'")
        server.execute("GRANT WRITE ON kept TO writer")
        sink = sink_of(InfluxConfig(server.url, "writer:w", database="kept"))
        assert sink.write(["run a=1 1"]) == []
        assert [row["a"] for row in server.query("SELECT a FROM run", "kept")] == [1]
        for token, database, words in (
            ("writer:wrong", "kept", "does not accept the token"),
            ("", "kept", "does not accept the token"),
            ("writer:w", "other", "does not accept the token|not found|not authorized"),
        ):
            with pytest.raises(ConfigError, match=words):
                sink_of(InfluxConfig(server.url, token, database=database)).prepare()
        with pytest.raises(ConfigError, match="retention policy not found"):
            sink_of(InfluxConfig(server.url, "writer:w", database="kept", policy="absent")).write(["run a=1 1"])


@pytest.mark.influx
@pytest.mark.influx1
def test_a_connection_that_the_server_closed_is_opened_again(influxd, influxd1, tmp_path, sink_of):
    """Killed and started between two writes: the second one goes through."""
    for server in (Influx(influxd, tmp_path), Influx1(influxd1, tmp_path)):
        with running(server):
            database = {"org": server.org, "bucket": server.bucket} if isinstance(server, Influx) else {"database": "d"}
            sink = sink_of(InfluxConfig(server.url, getattr(server, "token", ""), **database))
            assert sink.write(["run a=1 1"]) == []
            server.kill()
            server.start()
            assert sink.write(["run a=1 2"]) == []
