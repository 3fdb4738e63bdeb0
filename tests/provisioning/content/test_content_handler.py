"""The handler for content: every wish is answered, in turn, and only those of accepted devices."""

import time

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.orders import LARGEST_CHUNK_BYTES, Doctor, Measure, Update, Want, encode_order, split_chunk
from edgemeter.provisioning.content.content_handler import BURST_BYTES, BYTES_PER_S, COLLECT_S, MOST_REQUESTS, TRUST_CHECK_S, ContentHandler
from edgemeter.provisioning.content.store import YOUNG_NS, ContentStore
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.jobs import NewJob
from edgemeter.provisioning.registry.registry import Registry, insert_rows
from edgemeter.provisioning.update.releases import Release
from tests.fixtures.rows import table_row


class World:
    """A handler over a real registry and store, with a clock of its own and what it sent."""

    def __init__(self, path, names=("pi-1", "pi-2")):
        self.folder = FleetFolder(path)
        self.registry = Registry(self.folder.registry)
        self.store = ContentStore(self.folder.content)
        self.now_s = 0.0
        self.sent = []
        for name in names:
            self.stand(name, "accepted")
        self.handler = ContentHandler(self.folder, self.registry, lambda *sent: self.sent.append(sent), lambda: self.now_s)

    def stand(self, name, standing):
        """Let the registry say that of a device."""
        with self.registry.transaction() as connection:
            devices.put(connection, Device(name, "lab", None, None, (), standing, None, 0))

    def want(self, device, sha256, offset=0, length=LARGEST_CHUNK_BYTES, fleet="lab"):
        """Let a device wish for a piece."""
        payload = encode_order(Want(sha256=sha256, offset=offset, length=length))
        self.handler.received(Message(f"edgemeter/v1/{fleet}/{device}/want", payload))

    def answers(self):
        """Return what was sent since the last time: topic, head, piece."""
        sent, self.sent = self.sent, []
        return [(topic, *split_chunk(payload)) for topic, payload in sent]


@pytest.fixture
def world(tmp_path):
    """Return a world with two accepted devices."""
    world = World(tmp_path)
    yield world
    world.registry.close()


def test_a_device_gets_a_large_content_piece_by_piece(world):
    """Until it is whole, at the device's own topic, never more than was asked for."""
    content = bytes(range(256)) * 4000
    put = world.store.put_bytes(content, "model")
    got = b""
    while len(got) < put.size_bytes:
        world.want("pi-1", put.sha256, len(got), 100_000)
        ((topic, head, data),) = world.answers()
        assert topic == "edgemeter/v1/lab/pi-1/content"
        assert (head.sha256, head.offset, head.size_bytes) == (put.sha256, len(got), len(content))
        assert 0 < len(data) <= 100_000
        got += data
        world.now_s += 1
    assert got == content


def test_what_is_absent_and_what_is_beyond_the_end_are_reported(world):
    """A reply in either case, or the device would ask for ever."""
    put = world.store.put_bytes(b"abc", "model")
    world.want("pi-1", "0" * 64)
    world.want("pi-1", put.sha256, 3)
    (_, absent, _), (_, end, data) = world.answers()
    assert (absent.size_bytes, end.size_bytes, data) == (None, 3, b"")


def test_who_is_not_accepted_gets_nothing(world):
    """A stranger, one who waits, one of another fleet; and one who was revoked, soon after."""
    put = world.store.put_bytes(b"abc", "model")
    world.stand("pi-3", "pending")
    for device in ("stranger", "pi-3"):
        world.want(device, put.sha256)
    world.want("pi-1", put.sha256, fleet="another")
    assert world.answers() == []
    world.want("pi-1", put.sha256)
    assert len(world.answers()) == 1
    world.stand("pi-1", "revoked")
    world.now_s += TRUST_CHECK_S + 1
    world.want("pi-1", put.sha256)
    assert world.answers() == []


def test_one_who_asks_for_much_does_not_keep_the_others_waiting(world):
    """With the budget spent, pieces go out in turn; what is asked for beyond the limit is dropped."""
    put = world.store.put_bytes(b"x" * (16 << 20), "model")
    request_count = 0
    while sum(len(payload) for _, payload in world.sent) < BURST_BYTES:
        world.want("pi-1", put.sha256, request_count * LARGEST_CHUNK_BYTES)
        request_count += 1
    world.answers()
    for number in range(10 * MOST_REQUESTS):
        world.want("pi-1", put.sha256, number)
    world.want("pi-2", put.sha256)
    assert world.answers() == []
    world.now_s += 2 * LARGEST_CHUNK_BYTES / BYTES_PER_S
    world.handler.poll(0)
    assert [topic.split("/")[3] for topic, _, _ in world.answers()][:2] == ["pi-1", "pi-2"]
    for _ in range(1000):
        world.now_s += 1
        world.handler.poll(0)
    assert len(world.answers()) <= MOST_REQUESTS


def test_a_request_that_comes_twice_is_served_once(world):
    """An impatient device does not double its traffic."""
    put = world.store.put_bytes(b"x" * (8 << 20), "model")
    for number in range(BURST_BYTES // LARGEST_CHUNK_BYTES + 1):
        world.want("pi-1", put.sha256, number * LARGEST_CHUNK_BYTES)
    world.answers()
    for _ in range(5):
        world.want("pi-2", put.sha256)
    world.now_s += 1
    world.handler.poll(0)
    assert [topic.split("/")[3] for topic, _, _ in world.answers()].count("pi-2") == 1


def test_garbage_is_refused(world):
    """In one line that the service logs."""
    for payload in (b"", b"[]", b'{"sha256": "../x", "offset": 0, "length": 1}', b'{"sha256": "' + b"0" * 64 + b'"}'):
        with table_row(payload), pytest.raises(ConfigError, match="not a request for content"):
            world.handler.received(Message("edgemeter/v1/lab/pi-1/want", payload))


def test_what_an_open_job_or_a_release_names_is_kept(world):
    """What only an ended job names goes; nothing goes before its hour, nor while it is young."""
    referenced, gone = {}, {}
    for number, group in enumerate((referenced, referenced, referenced, referenced, gone, gone)):
        put = world.store.put_bytes(b"content %d" % number, "x")
        group[put.sha256] = put
    (suite, model, repeated, released), (ended, forgotten) = referenced.values(), gone.values()
    works = (
        (Measure(suite=suite, models=(model,)), "queued"),
        (Measure(suite=repeated, every_s=3600), "repeating"),
        (Update(version="1.0", bundle=ended), "done"),
        (Doctor(), "queued"),
    )
    with world.registry.transaction() as connection:
        for work, state in works:
            job = jobs.add(connection, NewJob((work,), "t", 60), [("pi-1", "lab")], 1)
            connection.execute("UPDATE executions SET state = ?, ended_ns = ? WHERE job = ?", (state, 1 if state == "done" else None, job))
        insert_rows(connection, "releases", [Release(released.sha256, 1, "x", "1.0", "pi5", "aarch64", "3.11", "2.36", 1, 1)])
    assert len(jobs.select_executions(world.registry, "WHERE device = 'pi-1'")) == len(works)
    later_ns = time.time_ns() + 2 * YOUNG_NS
    world.handler.poll(later_ns)
    assert world.store.path(forgotten.sha256)
    world.now_s += COLLECT_S + 1
    world.handler.poll(time.time_ns())
    assert world.store.path(forgotten.sha256)
    world.now_s += COLLECT_S + 1
    world.handler.poll(later_ns)
    assert all(world.store.path(sha256) for sha256 in referenced)
    assert not any(world.store.path(sha256) for sha256 in gone)
