import http.server
import threading
import time

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.collector.influx.bucket import (
    PointsRejectedError,
    influx_error,
    write_all_but_rejected,
)
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.influx.points import point_line
from tests.fixtures.draining import CONFIG
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row
from tests.fixtures.servers import LOOPBACK, Influx, running


def test_a_reply_is_sorted_by_what_somebody_has_to_do():
    """A configuration error is reported, refused points stand alone, the rest is tried later.

    Each is one line.
    """
    for status, message, error, words in (
        (400, "unable to parse", PointsRejectedError, "unable to parse"),
        (401, "nope", ConfigError, "EDGEMETER_INFLUX_TOKEN"),
        (404, 'bucket "b" not found', ConfigError, "edgemeter collector init-influx"),
        (413, "too large", PointsRejectedError, "too large"),
        (422, "dropped=1", PointsRejectedError, "dropped=1"),
        (429, "", TransientError, "429"),
        (500, "engine: disk is full", TransientError, "disk is full"),
        (503, "<html>\n<b>busy</b></html>", TransientError, "503"),
    ):
        with table_row(status, message):
            sorted_error = influx_error(CONFIG, status, message)
            assert isinstance(sorted_error, error)
            assert words in str(sorted_error)
            assert "\n" not in str(sorted_error)


def test_rejected_points_are_found_and_those_of_one_cause_are_rejected_together():
    """Rejected points are found by halves, or at once where the server says it dropped all.

    A batch that is too large (413) is split.
    """
    sizes = []

    def post(lines):
        sizes.append(len(lines))
        bad = [line for line in lines if "bad" in line]
        if bad and len(bad) == len(lines):
            raise PointsRejectedError(f"points beyond retention policy dropped={len(bad)}")
        if bad or len(lines) > 600:
            raise PointsRejectedError("too large, or unable to parse one of them")

    assert write_all_but_rejected([f"run a={number}" for number in range(1000)], post) == {}
    assert sizes == [1000, 500, 500]
    assert write_all_but_rejected(
        [f"run a={number}" + " bad" * (number == 321) for number in range(500)], post
    ).keys() == {321}
    sizes.clear()
    rejected = write_all_but_rejected(["run bad=1"] * 250 + ["run a=1"] * 250, post)
    assert [*rejected] == [*range(250)]
    assert sizes == [500, 250, 250]


def test_a_type_conflict_and_a_malformed_point_take_only_themselves_out(influx_place, bucket_of):
    """The server stores the rest of a batch with a type conflict, and nothing of a malformed one.

    Somebody else had written the column with another type.
    """
    bucket = bucket_of(influx_place.config())
    assert bucket.write(["run,device=x seq=1.5 1760000000000000001"]) == {}
    own_points = [point_line(make_record(session=5, seq=seq)) for seq in (1, 2, 3)]
    other_points = [
        f"run,device=y other={number}i 176000000000000000{number}" for number in range(2, 9)
    ]
    rejected = bucket.write(
        [
            other_points[0],
            own_points[0],
            *other_points[1:4],
            *own_points[1:],
            *other_points[4:],
            "run,device=z a= 5",
        ]
    )
    assert {index: reason.split(":")[0] for index, reason in rejected.items()} == {
        1: "failure writing points to database", 5: "failure writing points to database",
        6: "failure writing points to database",
        10: "unable to parse 'run,device=z a= 5'",
    }  # fmt: skip
    assert [row["other"] for row in influx_place.query("SELECT other FROM run")] == [
        2,
        3,
        4,
        5,
        6,
        7,
        8,
    ]


def test_points_older_than_what_is_kept_are_rejected_together(influx_place, bucket_of):
    """After an outage longer than the retention, the points within it are still stored."""
    bucket = bucket_of(influx_place.config())
    bucket.create(2)
    now_ns = time.time_ns()
    rejected = bucket.write(
        [
            f"run,device=d seq={number}i {number if number < 900 else now_ns + number}"
            for number in range(1000)
        ]
    )
    assert [*sorted(rejected)] == list(range(900))
    assert all("retention policy" in reason for reason in rejected.values())
    assert influx_place.query("SELECT count(seq) FROM run")[0]["count"] == 100


def test_a_deleted_point_leaves_its_neighbours(influx_place, bucket_of):
    """The same device's points a nanosecond apart stay, and so does another device's."""
    bucket = bucket_of(influx_place.config())
    bucket.write(
        [f'run,device=pi\\ "1" seq={number}i 176000000000000000{number}' for number in (1, 2, 3)]
    )
    bucket.write(["run,device=other seq=9i 1760000000000000002"])
    bucket.delete('pi "1"', 1760000000000000002)
    assert sorted(row["seq"] for row in influx_place.query("SELECT seq FROM run")) == [1, 3, 9]


def limited_token(server, action):
    """Return a token that may only write (or read) the bucket of the server."""
    org = server.ask("/api/v2/orgs")["orgs"][0]["id"]
    bucket = server.ask(f"/api/v2/buckets?name={server.bucket}")["buckets"][0]["id"]
    permissions = [{"action": action, "resource": {"type": "buckets", "id": bucket, "orgID": org}}]
    return server.ask("/api/v2/authorizations", {"orgID": org, "permissions": permissions})["token"]


def test_a_wrong_token_organisation_or_bucket_is_one_clear_line(influx_place, bucket_of):
    """The line says what was tried, on which object, and what to do."""
    server = influx_place.server
    for changes, words in (
        ({"token": "wrong"}, "does not accept the token"),
        ({"org": "nobody"}, 'organization name "nobody" not found'),
        ({"org": None, "token": limited_token(server, "write")}, r"\?org=ORG"),
        ({"bucket": "absent"}, 'bucket "absent" not found.*init-influx'),
        ({"token": limited_token(server, "read")}, "does not accept the token"),
    ):
        with table_row(changes):
            with pytest.raises(ConfigError, match=words) as raised:
                bucket_of(influx_place.config(**{"bucket": server.bucket} | changes)).check()
            assert "\n" not in str(raised.value)
    bucket_of(influx_place.config(org=None)).check()


class WithoutOrganisations(http.server.BaseHTTPRequestHandler):
    """The API of version 2 as 1.8 and 3 have it; `writes` are path and body of each write."""

    writes: list[tuple[str, bytes]]

    def do_POST(self):
        self.writes.append((self.path, self.rfile.read(int(self.headers["Content-Length"] or 0))))
        self.send_response(204)
        self.end_headers()

    def do_GET(self):
        self.send_error(404)

    def log_message(self, *_arguments):
        """Keep quiet."""


@pytest.mark.services
def test_what_has_no_organisations_gets_the_writes_of_version_2(bucket_of):
    """The path is the same, the organisation is ignored."""
    WithoutOrganisations.writes = []
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), WithoutOrganisations) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        config = InfluxConfig(
            f"http://{LOOPBACK}:{server.server_port}/below",
            "user:password",
            bucket="database/policy",
        )
        assert bucket_of(config).write(["run a=1 1"]) == {}
        server.shutdown()
    assert WithoutOrganisations.writes == [
        ("/below/api/v2/write?org=-&bucket=database%2Fpolicy&precision=ns", b"run a=1 1")
    ]


@pytest.mark.influx
def test_a_connection_that_the_server_closed_is_opened_again(influxd, tmp_path, bucket_of):
    """The second write succeeds after the server was killed and started again.

    In between one line says that nobody responds.
    """
    server = Influx(influxd, tmp_path)
    with running(server):
        bucket = bucket_of(InfluxConfig(server.url, server.token, server.org, server.bucket))
        assert bucket.write(["run a=1 1"]) == {}
        server.kill()
        with pytest.raises(
            TransientError,
            match=rf"no InfluxDB responds at {server.url} \(.*Connection refused.*\): start it",
        ):
            bucket.write(["run a=1 2"])
        server.start()
        assert bucket.write(["run a=1 2"]) == {}
