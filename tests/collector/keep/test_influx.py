import http.server
import threading
import time

import pytest

from edgemeter.agent import records
from edgemeter.agent.errors import ConfigError, TransientError
from edgemeter.collector.keep import drain as drain_module
from edgemeter.collector.keep import line_protocol
from edgemeter.collector.keep.drain import Drain
from edgemeter.collector.keep.influx import InfluxSink
from edgemeter.collector.keep.influx_config import InfluxConfig
from edgemeter.collector.keep.ledger import Arrival, Ledger
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import make_environment, make_record
from tests.fixtures.servers import Influx, free_port

influx = pytest.mark.influx


@pytest.fixture(scope="module")
def server(influxd, tmp_path_factory):
    """Return a running InfluxDB 2."""
    made = Influx(influxd, tmp_path_factory.mktemp("influx"))
    made.start()
    try:
        made.set_up()
        yield made
    finally:
        made.kill()


def config_of(server, **changes):
    """Return the configuration of a server, with changes."""
    return InfluxConfig(**({"url": server.url, "token": server.token, "org": server.org, "bucket": server.bucket} | changes))


@pytest.fixture
def sink_of():
    """Return a maker of sinks that closes them."""
    made = []

    def make(config):
        made.append(InfluxSink(config))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def fill(path, *many):
    """Put records into a ledger."""
    with Ledger(path) as ledger:
        ledger.commit([Arrival(one, records.encode(one), f"edgemeter/v1/{one.fleet}/{one.device}/result", 7) for one in many])


def drained(path, sink, timeout_s=20):
    """Drain the ledger to its end."""
    with Ledger(path, "read") as ledger:
        last = ledger.last_row()
    drain = Drain(path, sink)
    drain.start()
    try:
        assert wait_until(lambda: drain.has_reached(last), timeout_s), drain.trouble
    finally:
        drain.stop()


@influx
def test_what_is_written_is_read_back_by_influxql_with_the_same_numbers(server, sink_of):
    """Every number, text and tag of the point."""
    record = make_record(device="same-numbers", session=5, seq=1)
    assert sink_of(config_of(server)).write([line_protocol.line(record)]) == []
    (row,) = server.query("SELECT * FROM run WHERE device = 'same-numbers'")
    assert row["time"] == line_protocol.point_ns(record)
    assert row["started_at_ns"] == record.started_at_ns
    assert (row["latency_p50_ms"], row["latency_p90_ms"]) == (record.latency.p50_ms, record.latency.p90_ms)
    assert (row["throughput_per_s"], row["accuracy_value"], row["accuracy_ap50"]) == (80.0, 0.625, 0.875)
    assert (row["energy_gross_mj"], row["memory_peak_mb"], row["verdict_state"]) == (62.5, 92.5, "valid")
    assert (row["session"], row["seq"], row["id"], row["dataset_sha256"]) == (5, 1, record.id, record.dataset.sha256)
    assert (row["fleet"], row["role"], row["model"], row["runtime"]) == ("lab", "device", "tiny-detector", "onnx")
    assert (row["board"], row["suite"], row["precision"]) == (record.environment.board, "shipped", "fp32")


NASTY = [
    "a b",
    "a,b",
    "a=b",
    'a"b',
    "a\\",
    'a\\"b',
    "a\\\\",
    "new\nline",
    "tab\t",
    "grün \N{GRINNING FACE}",
    "' OR 1=1",
    "\x01\x7f",
    "#",
    " ",
]


@influx
@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_any_text_comes_back_exactly_from_a_field_and_stays_one_tag(server, sink_of, text):
    """Line ends, quotes, backslashes, commas, blanks, equals signs, Unicode: a real server reads what was meant."""
    device = f"nasty-{NASTY.index(text)}"
    environment = make_environment(board=text)
    record = make_record(device=device, session=5, seq=1, case=text, precision=text, environment=environment, suite=text)
    assert sink_of(config_of(server)).write([line_protocol.line(record)]) == []
    (row,) = server.query(f"SELECT * FROM run WHERE device = '{device}'")  # noqa: S608 - a name of ours
    assert (row["case"], row["environment_board"]) == (text, text)
    plain = "".join(" " if ord(character) < 32 or ord(character) == 127 else character for character in text).replace("\\", "/")
    assert (row["precision"], row["board"], row["suite"]) == (plain, plain, plain)
    assert row["latency_p50_ms"] == 12.25


@influx
def test_the_same_records_again_are_the_same_points(server, sink_of):
    """A retry, and a second collector that holds the same records, add nothing."""
    lines = [line_protocol.line(make_record(device="twice", session=5, seq=seq, id=f"id-{seq}")) for seq in range(1, 51)]
    sink_of(config_of(server)).write(lines)
    sink_of(config_of(server)).write(lines[10:])
    (row,) = server.query("SELECT count(seq) FROM run WHERE device = 'twice'")
    assert row["count"] == 50


@influx
@pytest.mark.parametrize("bad", [(), (0,), (7,), (0, 1, 19), tuple(range(20))])
def test_exactly_the_bad_points_are_returned_and_all_others_are_stored(server, sink_of, bad):
    """A malformed line makes the server refuse the whole batch (400): it is taken apart until the bad ones stand alone."""
    device = f"bad-{len(bad)}-{sum(bad)}"
    seeds = [2**63 if place in bad else 1 for place in range(20)]
    lines = [line_protocol.line(make_record(device=device, session=5, seq=place + 1, seed=seed)) for place, seed in enumerate(seeds)]
    refused = sink_of(config_of(server)).write(lines)
    assert tuple(one.index for one in refused) == bad
    assert all("unable to parse" in one.reason for one in refused)
    rows = server.query(f"SELECT seq FROM run WHERE device = '{device}'")  # noqa: S608 - a name of ours
    assert sorted(row["seq"] for row in rows) == [place + 1 for place in range(20) if place not in bad]


@influx
def test_a_type_conflict_takes_only_its_own_points_out(server, sink_of):
    """422: the server stores the rest and names the first only; somebody else had written the column with another type."""
    sink = sink_of(config_of(server, bucket="conflict"))
    sink.write(["run,device=x seq=1.5 1760000000000000001"])
    lines = [line_protocol.line(make_record(session=5, seq=1)), "run,device=y other=1i 1760000000000000002"]
    refused = sink.write(lines)
    assert [one.index for one in refused] == [0]
    assert "field type conflict" in refused[0].reason
    assert [row["other"] for row in server.query("SELECT other FROM run", "conflict")] == [1]


@influx
def test_the_only_organisation_is_found_and_the_bucket_is_made(server, sink_of):
    """Nothing to configure beyond URL and token."""
    sink_of(config_of(server, org=None, bucket="made by us")).write([line_protocol.line(make_record(session=5, seq=1))])
    assert len(server.query("SELECT seq FROM run", "made by us")) == 1


def limited_token(server, action="write"):
    """Return a token that may only write (or read) the bucket of the tests."""
    org = server.ask("/api/v2/orgs")["orgs"][0]["id"]
    bucket = server.ask(f"/api/v2/buckets?name={server.bucket}")["buckets"][0]["id"]
    permissions = [{"action": action, "resource": {"type": "buckets", "id": bucket, "orgID": org}}]
    return server.ask("/api/v2/authorizations", {"orgID": org, "permissions": permissions})["token"]


@influx
def test_a_token_that_may_only_write_its_bucket_is_enough(server, sink_of):
    """Least privilege: no right to look around is needed."""
    sink = sink_of(config_of(server, token=limited_token(server)))
    assert sink.write([line_protocol.line(make_record(device="least", session=5, seq=1))]) == []


@influx
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token": "wrong"}, r"does not accept the token \(unauthorized access\): give one"),
        ({"org": "nobody"}, r'organization name "nobody" not found: name those that exist'),
        ({"org": None, "token": "write-only"}, r"the token for .* sees no organisation: name one with --influx-org"),
        ({"bucket": "absent", "token": "write-only"}, r'bucket "absent" not found: .*a token that may make the bucket'),
        ({"token": "read-only"}, r"does not accept the token"),
    ],
)
def test_a_wrong_token_organisation_or_bucket_is_one_clear_line(server, sink_of, changes, message):
    """What was tried, on what, and what to do."""
    if changes.get("token", "").endswith("-only"):
        changes = changes | {"token": limited_token(server, changes["token"].removesuffix("-only"))}
    with pytest.raises(ConfigError, match=message) as caught:
        sink_of(config_of(server, **changes)).prepare()
    assert "\n" not in str(caught.value)


@influx
def test_a_ledger_is_drained_in_order_with_bad_points_in_the_quarantine(server, sink_of, tmp_path, monkeypatch):
    """Several batches; the position is kept; what the server does not take does not stop what follows."""
    monkeypatch.setattr(drain_module, "BATCH_RECORDS", 10)
    path = tmp_path / "ledger"
    fill(path, *(make_record(device="drained", session=5, seq=seq, seed=2**63 if seq == 13 else 1) for seq in range(1, 36)))
    sink = sink_of(config_of(server))
    drained(path, sink)
    with Ledger(path, "read") as ledger:
        assert ledger.position(sink.name) == 35
        (entry,) = ledger.quarantined()
    assert entry.reason.startswith("the sink does not take it: unable to parse")
    assert records.decode(entry.payload).seq == 13
    rows = server.query("SELECT seq FROM run WHERE device = 'drained'")
    assert sorted(row["seq"] for row in rows) == [seq for seq in range(1, 36) if seq != 13]


@influx
def test_an_influxdb_that_comes_back_gets_everything(influxd, tmp_path, monkeypatch, caplog):
    """Killed before and between batches: nothing is lost and nothing is there twice."""
    monkeypatch.setattr(drain_module, "BATCH_RECORDS", 5)
    monkeypatch.setattr(drain_module, "FIRST_PAUSE_S", 0.1)
    server = Influx(influxd, tmp_path)
    # Set up beforehand: a token that does not exist yet is a wrong token, which is not asked again soon.
    server.start()
    server.set_up()
    server.kill()
    path = tmp_path / "ledger"
    fill(path, *(make_record(session=5, seq=seq) for seq in range(1, 13)))
    drain = Drain(path, InfluxSink(config_of(server)))
    drain.start()
    try:
        assert wait_until(lambda: "no InfluxDB answers" in (drain.trouble or ""))
        assert caplog.text.count("not drained") == 1
        server.start()
        assert wait_until(lambda: drain.has_reached(12), 30)
        server.kill()
        fill(path, *(make_record(session=5, seq=seq) for seq in range(13, 21)))
        drain.wake()
        assert wait_until(lambda: drain.trouble)
        server.start()
        assert wait_until(lambda: drain.has_reached(20), 30)
        assert drain.trouble is None
        assert [row["count"] for row in server.query("SELECT count(seq) FROM run")] == [20]
    finally:
        drain.stop()
        server.kill()


class Scripted(http.server.BaseHTTPRequestHandler):
    """A server that answers each write with the next status of its script, then 204."""

    script: list[int]
    bodies: list[bytes]

    def do_POST(self):
        """Answer a write; an empty one (the question whether all is well) always with 204."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        status = self.script.pop(0) if self.script and body else 204
        if body:
            self.bodies.append(body)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments):
        """Keep quiet."""


@pytest.fixture
def scripted():
    """Return a running scripted server."""
    handler = type("Handler", (Scripted,), {"script": [], "bodies": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.handler = handler
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_server_that_is_busy_is_asked_again_later_and_gets_the_same_lines(scripted, sink_of, tmp_path, monkeypatch):
    """429 and 5xx: retry with growing pauses, the same points each time."""
    monkeypatch.setattr(drain_module, "FIRST_PAUSE_S", 0.1)
    scripted.handler.script += [429, 503, 500, 502]
    path = tmp_path / "ledger"
    fill(path, *(make_record(session=5, seq=seq) for seq in (1, 2)))
    started = time.monotonic()
    drained(path, sink_of(InfluxConfig(f"http://127.0.0.1:{scripted.server_port}", "t", "org", "b")))
    assert time.monotonic() - started > 0.75 * (0.1 + 0.2 + 0.4 + 0.8)
    assert len(scripted.handler.bodies) == 5
    assert len(set(scripted.handler.bodies)) == 1


def test_a_wrong_configuration_is_said_once_and_aloud_and_nothing_is_skipped(scripted, sink_of, tmp_path, caplog):
    """401 in the middle of the work: an error in the log, the position stays."""
    scripted.handler.script += [401]
    path = tmp_path / "ledger"
    fill(path, make_record(session=5, seq=1))
    sink = sink_of(InfluxConfig(f"http://127.0.0.1:{scripted.server_port}", "t", "org", "b"))
    drain = Drain(path, sink)
    drain.start()
    assert wait_until(lambda: drain.trouble)
    drain.stop()
    assert [record.levelname for record in caplog.records if "not drained" in record.message] == ["ERROR"]
    assert "does not accept the token" in drain.trouble
    with Ledger(path, "read") as ledger:
        assert ledger.position(sink.name) == 0


def test_no_influxdb_is_a_transient_error_of_one_line(sink_of):
    """It may come later; the ledger keeps everything until then."""
    with pytest.raises(TransientError, match=r"no InfluxDB answers at http://127\.0\.0\.1:\d+ .*the ledger keeps everything") as caught:
        sink_of(InfluxConfig(f"http://127.0.0.1:{free_port()}", "t", "org", "b")).write(["run a=1 1"])
    assert "\n" not in str(caught.value)
