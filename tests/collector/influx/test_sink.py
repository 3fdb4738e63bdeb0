import http.server
import itertools
import threading
import time

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.collector.influx import points
from edgemeter.collector.influx.client import PointsRejectedError, influx_error
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.set_up import set_up_influx
from edgemeter.collector.influx.sink import LARGEST_WRITE, write_all_but_rejected
from tests.fixtures.influx1 import Influx1
from tests.fixtures.point_lines import point_line
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK, Influx, running

CONFIGS = (
    InfluxConfig("http://influx.example", "t", "org", "b"),
    InfluxConfig("http://influx.example", "user:password", database="d", policy="p"),
)


def test_a_reply_is_sorted_by_what_somebody_has_to_do():
    """Configuration aloud, points that are refused by themselves, the rest later; one line each."""
    for config, (status, body, error, words) in itertools.product(
        CONFIGS,
        (
            (400, '{"error":"unable to parse"}', PointsRejectedError, "unable to parse"),
            (401, '{"code":"unauthorized","message":"nope"}', ConfigError, "EDGEMETER_INFLUX_TOKEN"),
            (403, '{"error":"not authorized"}', ConfigError, "EDGEMETER_INFLUX_TOKEN"),
            (404, '{"error":"database not found: \\"d\\""}', ConfigError, "database not found"),
            (413, "too large", PointsRejectedError, "too large"),
            (429, "", TransientError, "429"),
            (500, '{"error":"timeout"}', TransientError, "timeout"),
            (500, '{"error":"retention policy not found: p"}', ConfigError, "retention policy not found: p"),
            (503, "<html>\n<b>busy</b></html>", TransientError, "503"),
        ),
    ):
        with table_row(config, status, body):
            sorted_error = influx_error(config, status, body.encode())
            assert isinstance(sorted_error, error)
            assert words in str(sorted_error)
            assert "\n" not in str(sorted_error)


def posting(*answers):
    """Return what posts lines, each time with the next answer, and how many lines each post had."""
    script, sizes = list(answers), []

    def post(lines):
        sizes.append(len(lines))
        if script and (answer := script.pop(0)) is not None:
            raise PointsRejectedError(answer)

    return post, sizes


def test_what_is_too_large_for_one_write_is_divided():
    """More lines than one write takes; a batch that the server calls too large (413), whatever its limit is; the order stays."""
    post, sizes = posting()
    assert write_all_but_rejected(["run a=1"] * (2 * LARGEST_WRITE + 1), post) == []
    assert sizes == [LARGEST_WRITE, LARGEST_WRITE, 1]
    post, sizes = posting("too large", "too large")
    assert write_all_but_rejected([f"run a=1 {number}" for number in range(8)], post) == []
    assert sizes == [8, 4, 2, 2, 4]


def test_a_malformed_point_among_many_takes_three_writes_not_twenty():
    """The server quotes the line; its word is not taken for it, the line is asked about alone."""
    lines = [f"run a={number} {number}" for number in range(5000)]
    answer = "unable to parse 'run a=4321 4321': somehow"
    post, sizes = posting(answer, answer)
    (rejected,) = write_all_but_rejected(lines, post)
    assert (rejected.index, rejected.is_expired) == (4321, False)
    assert sizes == [5000, 1, 4999]


def test_points_that_are_refused_for_one_cause_are_refused_together():
    """As many as the server says it dropped; where these are fewer, each half is asked about again."""
    post, sizes = posting("points beyond retention policy dropped=3", "points beyond retention policy dropped=2", None)
    rejected = write_all_but_rejected(["a 1", "a 2", "a 3", "a 4"], post)
    assert [(point.index, point.is_expired) for point in rejected] == [(0, True), (1, True)]
    assert sizes == [4, 2, 2]


def test_exactly_the_malformed_points_are_returned_and_all_others_are_found_by_their_tags(influx_place, sink_of):
    """Version 2 stores nothing of such a batch, version 1 the rest: both end the same; the reason is reported however long the point."""
    records = [make_record(session=5, seq=position + 1, seed=1) for position in range(20)]
    bad = (0, 1, 19)
    lines = [point_line(record) for record in records]
    lines = [line.replace("seed=1i", f"seed={2**63}i") if position in bad else line for position, line in enumerate(lines)]
    lines[19] = lines[19].replace('file="', f'file="{"x" * 5000}')
    refused = sink_of(influx_place.config()).write(lines)
    assert tuple(point.index for point in refused) == bad
    assert all("out of range" in point.reason and len(point.reason) < 400 and "\n" not in point.reason for point in refused)
    query = "SELECT latency_p50_ms, accuracy_ap50, latency_count, id FROM run WHERE model = 'tiny-detector' GROUP BY *"
    rows = influx_place.query(query)
    assert sorted(row["id"] for row in rows) == sorted(record.id for position, record in enumerate(records) if position not in bad)
    (row,) = [row for row in rows if row["id"] == records[2].id]
    assert row["time"] == points.point_ns(records[2])
    assert (row["latency_p50_ms"], row["accuracy_ap50"], row["latency_count"]) == (12.25, 0.875, 64)
    assert (row["device"], row["fleet"], row["board"], row["suite"]) == ("pi-1", "lab", records[2].environment.board, "shipped")


def test_a_type_conflict_takes_only_its_own_points_out(influx_place, sink_of):
    """The server stores the rest and names the first only; somebody else had written the column with another type."""
    sink = sink_of(influx_place.config())
    sink.write(["run,device=x seed=1.5 1760000000000000001"])
    own_points = [point_line(make_record(session=5, seq=seq)) for seq in (1, 2, 3)]
    other_points = [f"run,device=y other={number}i 176000000000000000{number}" for number in range(2, 9)]
    refused = sink.write([other_points[0], own_points[0], *other_points[1:4], *own_points[1:], *other_points[4:], "run,device=z a= 5"])
    assert [point.index for point in refused] == [1, 5, 6, 10]
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


class WithoutOrganisations(http.server.BaseHTTPRequestHandler):
    """The API of version 2 as 1.8 and 3 have it; `writes` are path and body of each write."""

    writes: list[tuple[str, bytes]]

    def do_POST(self):
        """Take a write."""
        self.writes.append((self.path, self.rfile.read(int(self.headers["Content-Length"] or 0))))
        self.send_response(204)
        self.end_headers()

    def do_GET(self):
        """Have nothing else."""
        self.send_error(404)

    def log_message(self, *_arguments):
        """Keep quiet."""


@pytest.mark.services
def test_what_has_no_organisations_gets_the_writes_of_version_2(sink_of):
    """The path is the same, the organisation is ignored."""
    WithoutOrganisations.writes = []
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), WithoutOrganisations) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        config = InfluxConfig(f"http://{LOOPBACK}:{server.server_port}/below", "user:password", bucket="database/policy")
        assert sink_of(config).write(["run a=1 1"]) == []
        server.shutdown()
    path = "/below/api/v2/write?org=-&bucket=database%2Fpolicy&precision=ns"
    assert WithoutOrganisations.writes == [(path, b""), (path, b"run a=1 1")]


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
        for token, database in (("writer:wrong", "kept"), ("", "kept"), ("writer:w", "other")):
            with pytest.raises(ConfigError):
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
