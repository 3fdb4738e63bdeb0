"""A light publisher, a process of its own: many records at QoS 1 over one raw connection.

The same for us and for a peer that sends no receipts. Prints one line of JSON. Usage: python -m
tools.benchmarks.flood SETTINGS_JSON
"""

import json
import re
import select
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from edgemeter.agent.contract import messages, record
from edgemeter.collector.receive.feed import PacketReader
from tests.fixtures.mqtt_packets import connect_packet, publish_packet, subscribe_packet
from tests.fixtures.record_factory import make_record

WINDOW = 1500
TIMEOUT_S = 120.0
SEND_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Settings:
    """The records to send: `count` of them, `batch` in a message, from so many devices.

    `rate_per_s` 0 is as fast as it goes.
    """

    port: int
    count: int
    batch: int = 1
    devices: int = 50
    rate_per_s: float = 0.0
    awaits_receipts: bool = True


@dataclass(frozen=True, slots=True)
class Flooded:
    """The time until all was sent and, if awaited, receipted.

    With a rate it also has the time from sending to receipt of each record.
    """

    took_s: float
    delays_ms: list[float]


def _connected(port: int, name: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(connect_packet(name))
    assert connection.recv(4)[3] == 0
    return connection


class Texts:
    """Records' JSON, made from one text.

    No earlier flood had the session, a time in ms, and no two records begin at one time.
    """

    def __init__(self, session: int) -> None:
        text = record.encode(
            make_record(
                device="DEVICE",
                session=session,
                seq=987654321,
                id="ID",
                started_at_ns=1_234_567_890_123_456_789,
            )
        )
        self._session = session
        self._parts = re.split(rb"ID|DEVICE|987654321|1234567890123456789", text)

    def one(self, device: int, seq: int, number: int) -> bytes:
        """Return one record, the `number`th of all."""
        before_id, before_device, before_seq, before_start, remainder = self._parts
        begin_ns = self._session * 1_000_000 + number * 1_003
        head = b"%s%013d-%022d%spi-%d" % (before_id, self._session, number, before_device, device)
        return b"%s%s%d%s%d%s" % (head, before_seq, seq, before_start, begin_ns, remainder)


def packets(settings: Settings, session: int) -> Iterator[bytes]:
    """Yield PUBLISH packets; every device has the numbers 1, 2, 3 ... of one session."""
    texts = Texts(session)
    topics = [f"edgemeter/v1/lab/pi-{device}/result" for device in range(settings.devices)]
    batch = settings.batch
    for number in range(settings.count // batch):
        device, turn = number % settings.devices, number // settings.devices
        several = [
            texts.one(device, turn * batch + offset + 1, number * batch + offset)
            for offset in range(batch)
        ]
        payload = several[0] if batch == 1 else zlib.compress(messages.join_records(several), 1)
        yield publish_packet(topics[device], payload, mid=number % 65535 + 1, version="3.1.1")


class Receipts:
    """Counts the records that receipts name, over a connection of its own."""

    def __init__(self, port: int) -> None:
        self.socket = _connected(port, "flood-receipts")
        self.socket.sendall(subscribe_packet("edgemeter/v1/lab/+/receipt"))
        self.socket.recv(16)
        self.socket.setblocking(False)
        self.named = 0
        self.seen: list[tuple[str, int, int, float]] = []
        self._reader = PacketReader("3.1.1", 1)

    def read(self, *, remember: bool) -> None:
        now_s = time.perf_counter()
        came = [
            message
            for part in self._reader.read(self.socket.recv(1 << 20))
            if isinstance(part, list)
            for message in part
        ]
        for message in came:
            for first, last in messages.decode_receipt(message.payload).held:
                self.named += last - first + 1
                if remember:
                    self.seen.append((message.topic, first, last, now_s))


def flood(settings: Settings) -> Flooded:
    """Send everything, and wait for the receipts."""
    ready = list(packets(settings, int(time.time() * 1000)))
    receipts = Receipts(settings.port)
    with closing(receipts.socket), closing(_connected(settings.port, "flood")) as publisher:
        publisher.setblocking(False)
        return _flood(settings, ready, publisher, receipts)


def _flood(
    settings: Settings, ready: list[bytes], publisher: socket.socket, receipts: Receipts
) -> Flooded:
    sent_s = [0.0] * len(ready) if settings.rate_per_s else []
    sent = answered = 0
    pending = memoryview(b"")
    begun_s = time.perf_counter()
    while answered < len(ready) or (settings.awaits_receipts and receipts.named < settings.count):
        now_s = time.perf_counter()
        assert now_s < begun_s + TIMEOUT_S, (
            f"{sent} messages sent, {receipts.named} of {settings.count} records receipted"
        )
        allowed = min(len(ready), answered + WINDOW)
        if settings.rate_per_s:
            allowed = min(
                allowed, int((now_s - begun_s) * settings.rate_per_s / settings.batch) + 1
            )
        if not pending and sent < allowed:
            until, size_bytes = sent, 0
            while until < allowed and size_bytes < SEND_BYTES:
                size_bytes += len(ready[until])
                until += 1
            pending = memoryview(b"".join(ready[sent:until]))
            for number in range(sent, until) if sent_s else ():
                sent_s[number] = now_s
            sent = until
        wait_s = 0.001 if settings.rate_per_s else 1.0
        readable, writable, _ = select.select(
            [publisher, receipts.socket], [publisher] if pending else [], [], wait_s
        )
        if writable:
            pending = pending[publisher.send(pending) :]
        if publisher in readable:
            answered += len(publisher.recv(1 << 16)) // 4
        if receipts.socket in readable:
            receipts.read(remember=bool(sent_s))
    return Flooded(time.perf_counter() - begun_s, _delays_ms(settings, sent_s, receipts))


def _delays_ms(settings: Settings, sent_s: list[float], receipts: Receipts) -> list[float]:
    delays = []
    for topic, first, last, seen_s in receipts.seen:
        device = int(topic.split("/")[3].removeprefix("pi-"))
        delays += [
            1000 * (seen_s - sent_s[(seq - 1) * settings.devices + device])
            for seq in range(first, last + 1)
        ]
    return sorted(delays)


def send(settings: Settings) -> Flooded:
    """Return what a flood took that a process of its own sent.

    So publisher and collector do not share an interpreter.
    """
    command = [sys.executable, "-m", "tools.benchmarks.flood", json.dumps(asdict(settings))]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[2], check=True
    )
    return Flooded(**json.loads(finished.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(flood(Settings(**json.loads(sys.argv[1]))))))
