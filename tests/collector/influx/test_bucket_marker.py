import json
import time
import urllib.request

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx import bucket_marker
from edgemeter.collector.influx.client import PointsRejectedError
from tests.fixtures.draining import drained
from tests.fixtures.ledgers import fill
from tests.fixtures.record_factory import make_record


def keep_an_hour(influx_place):
    """Let the bucket or database keep what is younger than an hour."""
    if influx_place.version == 1:
        influx_place.query(f'ALTER RETENTION POLICY "autogen" ON "{influx_place.name}" DURATION 1h SHARD DURATION 1h')
        return
    (bucket,) = influx_place.server.ask(f"/api/v2/buckets?name={influx_place.name}")["buckets"]
    rule = {"type": "expire", "everySeconds": 3600, "shardGroupDurationSeconds": 3600}
    headers = {"Authorization": f"Token {influx_place.server.token}", "Content-Type": "application/json"}
    url = f"{influx_place.server.url}/api/v2/buckets/{bucket['id']}"
    request = urllib.request.Request(url, json.dumps({"retentionRules": [rule]}).encode(), headers, method="PATCH")  # noqa: S310 - loopback
    urllib.request.urlopen(request, timeout=60).close()  # noqa: S310 - loopback


def test_a_marker_is_kept_by_its_bucket_and_absent_from_others(influx_place, sink_of):
    """However often it is asked, by other connections too; two markers of one bucket do not answer for each other."""
    sink = sink_of(influx_place.config())
    first, second = sink.set_marker(), sink.set_marker()
    assert first != second
    assert all(map(bucket_marker.is_marker, (first, second)))
    for _ in range(3):
        assert [sink_of(influx_place.config()).marker_state(name) for name in (first, second)] == ["kept", "kept"]
    other = "bucket" if influx_place.version == 2 else "database"
    other_sink = sink_of(influx_place.config(**{other: f"{influx_place.name}-other"}))
    assert other_sink.marker_state(first) == "absent"
    assert other_sink.marker_state(other_sink.set_marker()) == "kept"


def test_a_server_that_stores_any_type_cannot_be_marked(scripted, sink_of):
    """It is left as it is: its position is that of its address."""
    assert sink_of(scripted.config).set_marker() is None


def test_a_marker_older_than_what_the_bucket_retains_is_replaced_and_nothing_is_drained_again(influx_place, sink_of, tmp_path):
    """Nobody can know whether the bucket is the same one; a full drain each time that a month has passed would be wrong too."""
    path = tmp_path / "ledger"
    fill(path, [make_record(session=5, seq=seq, started_at_ns=time.time_ns()) for seq in (1, 2)])
    sink_of(influx_place.config()).prepare()
    keep_an_hour(influx_place)
    sink = sink_of(influx_place.config())
    old = f"marker-0123abcd-{int(time.time()) - 7200}"
    assert sink.marker_state(old) == "unknown"
    with SqliteLedger(path) as ledger:
        ledger.advance(sink.name, 1)
        ledger.claim_position(sink.name, old)
    drained(path, sink)
    assert [row["seq"] for row in influx_place.query("SELECT seq FROM run")] == [2]
    with SqliteLedger(path) as ledger:
        (name,) = ledger.positions()
    assert old not in name
    assert name.startswith(f"{sink.name} #marker-")


@pytest.mark.parametrize("of_sink", ["1a2b3c", None])
def test_a_position_from_before_markers_is_this_buckets(influx_place, sink_of, tmp_path, of_sink):
    """Of an address alone, or with the bucket's id."""
    path = tmp_path / "ledger"
    fill(path, [make_record(session=5, seq=seq) for seq in (1, 2)])
    sink_of(influx_place.config()).prepare()
    sink = sink_of(influx_place.config())
    with SqliteLedger(path) as ledger:
        ledger.advance(sink.name, 1)
        if of_sink is not None:
            ledger.claim_position(sink.name, of_sink)
    drained(path, sink)
    assert [row["seq"] for row in influx_place.query("SELECT seq FROM run")] == [2]


def test_a_bucket_at_another_address_keeps_its_position(influx_place, sink_of, tmp_path):
    """A host that got a name: what was drained to it by its number is not drained again."""
    path = tmp_path / "ledger"
    fill(path, [make_record(session=5, seq=seq) for seq in (1, 2)])
    drained(path, sink_of(influx_place.config()))
    moved = sink_of(influx_place.config(url=influx_place.server.url.replace("127.0.0.1", "localhost")))
    with SqliteLedger(path) as ledger:
        (before,) = ledger.positions()
    fill(path, [make_record(session=5, seq=3)])
    writes = []
    inner = moved.write
    moved.write = lambda lines: (writes.extend(lines), inner(lines))[-1]
    drained(path, moved)
    assert len(writes) == 1
    with SqliteLedger(path) as ledger:
        assert ledger.positions() == {before.replace("127.0.0.1", "localhost"): 3}


def test_a_place_that_rejects_a_marker_is_drained_to_all_the_same(influx_place, sink_of, tmp_path, monkeypatch, caplog):
    """As one with as many series as it may have, which takes points of those that it has; one line says what cannot be noticed."""
    path = tmp_path / "ledger"
    fill(path, [make_record(session=5, seq=seq) for seq in (1, 2)])
    sink = sink_of(influx_place.config())
    post = sink._post

    def without_room(lines):
        if any(line.startswith("marker ") for line in lines):
            raise PointsRejectedError("partial write: max-series-per-database limit exceeded: (2) dropped=1")
        post(lines)

    monkeypatch.setattr(sink, "_post", without_room)
    assert sink.marker_state(f"marker-0123abcd-{int(time.time())}") == "unknown"
    drained(path, sink)
    assert [row["seq"] for row in influx_place.query("SELECT seq FROM run")] == [1, 2]
    assert caplog.text.count("cannot be marked") == 1
