"""A fuzzer of everything that reads what comes from a broker.

It makes mutations of good messages by a seed, millions of them.

These must hold for any bytes at all: nothing is raised but our own errors, what is admitted is
numbered, named and of its topic, and what the MQTT reader makes of a stream does not depend on
where the stream was cut.
"""

import itertools
import json
import random
import struct
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages, record
from edgemeter.agent.ledger.chunks import unpack_chunk
from edgemeter.collector.receive.admission import Admitted
from edgemeter.collector.receive.feed import PacketReader
from tests.fixtures.mqtt_packets import sized
from tests.fixtures.record_factory import make_record

STREAM_SHARE = 10
TOPIC = "edgemeter/v1/lab/pi-1/result"
ODD = [
    *(
        b"",
        b"0",
        b"-1",
        b"1e400",
        b"-0.0",
        b"null",
        b"true",
        b"NaN",
        b"[]",
        b"{}",
        b'""',
        b'"\\u0000"',
        b'"\\ud800"',
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(
        str(2**power + offset).encode()
        for power in (15, 31, 53, 63, 64, 70)
        for offset in (-1, 0, 1)
    ),
    *(
        b"9" * 400,
        b"[" * 300,
        b'{"a":' * 300,
        b'"' + b"x" * 300 + b'"',
        b" " * 50,
        b"\0",
        b"\xef\xbb\xbf",
        b"x\x9c",
    ),
]


class FlawError(Exception):
    """Something did not hold for these bytes."""


@dataclass(slots=True)
class Fuzzer:
    """One seed's inputs; `counts` is what became of them."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    _draw: random.Random = field(init=False)
    _good: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)  # noqa: S311 - the same inputs for the same seed
        self._good = _seeds()

    def run(self, inputs: int, until_s: float = float("inf")) -> None:
        """Try so many inputs, or until then by the monotonic clock.

        Raises:
            FlawError: one of them broke something; the message holds it whole.
        """
        for number in range(inputs):
            if number % 256 == 0 and time.monotonic() > until_s:
                return
            payload = self.payload()
            try:
                self._try(payload)
            except Exception as error:
                message = f"seed {self.seed}, input {number}: {error!r} of {payload!r}"
                raise FlawError(message) from error
            self.counts["inputs"] += 1

    def payload(self) -> bytes:
        """Return the next input: a good message after some mutations.

        Sometimes it is compressed, sometimes mutated after that.
        """
        draw = self._draw
        payload = draw.choice(self._good)
        for _ in range(draw.choice((0, 1, 1, 1, 2, 3, 8))):
            payload = self._mutated(payload)
        if draw.random() < 0.15:
            payload = zlib.compress(payload, draw.choice((0, 1, 9)))
            if draw.random() < 0.5:
                payload = self._mutated(payload)
        return payload

    def _mutated(self, payload: bytes) -> bytes:
        draw = self._draw
        index = draw.randrange(len(payload) + 1)
        kind = draw.randrange(8)
        if kind == 0:
            return payload[:index]
        if kind == 1:
            return payload[:index] + bytes([draw.randrange(256)]) + payload[index + 1 :]
        if kind == 2:
            return payload[:index] + payload[index + draw.randrange(1, 40) :]
        if kind == 3:
            return b"[" + b",".join([payload] * draw.choice((1, 2, 3))) + b"]"
        return self._with_something_else(payload, index, kind)

    def _with_something_else(self, payload: bytes, index: int, kind: int) -> bytes:
        draw = self._draw
        if kind == 4:
            return payload[:index] + draw.choice(ODD) + payload[index:]
        if kind == 5:
            other = draw.choice(self._good)
            return payload[:index] + other[draw.randrange(len(other)) :]
        return self._with_odd_value(payload, index)

    def _with_odd_value(self, payload: bytes, index: int) -> bytes:
        # After a colon stands a value: an odd one in its place gets past the outer syntax.
        start = payload.find(b":", index) + 1
        ends = [
            end for end in (payload.find(mark, start) for mark in (b",", b"}", b"]")) if end >= 0
        ]
        return (
            payload[:start] + self._draw.choice(ODD) + payload[min(ends) :]
            if start and ends
            else payload + self._draw.choice(ODD)
        )

    def _try(self, payload: bytes) -> None:
        message = Message(TOPIC, payload, 1, 1, 1)
        admitted = Admitted(1)
        admitted.add(message)
        _check(admitted, payload)
        self.counts["admitted" if admitted.arrivals or admitted.batches else "refused"] += 1
        for kind in ("birth", "state"):
            Admitted(1).add(Message(f"edgemeter/v1/lab/pi-1/{kind}", payload, 1, 1, 1))
        try:
            receipt = messages.decode_receipt(payload)
        except ConfigError:
            return
        if not 0 <= receipt.session < 2**53:
            raise AssertionError(receipt)

    def try_stream(self) -> None:
        """Read one stream of packets, good and mutated, whole and in pieces: both give the same.

        Raises:
            FlawError: they differ, or something else than our own error was raised.
        """
        draw = self._draw
        version = draw.choice(("5", "3.1.1"))
        stream = b"".join(_packet(draw, version) for _ in range(draw.randrange(1, 6)))
        for _ in range(draw.choice((0, 0, 1, 2, 4))):
            stream = self._mutated(stream)
        cuts = sorted(draw.randrange(len(stream) + 1) for _ in range(draw.randrange(6)))
        pieces = [
            stream[first:last] for first, last in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        ]
        try:
            if _read([stream], version) != _read(pieces, version):
                # It is reported below with the stream.
                raise AssertionError("in pieces it reads otherwise")  # noqa: TRY301
        except Exception as error:
            message = f"seed {self.seed}, version {version}: {error!r} of {pieces!r}"
            raise FlawError(message) from error
        self.counts["streams"] += 1


def _records(admitted: Admitted) -> list[record.RunRecord]:
    payloads = [arrival.payload for arrival in admitted.arrivals]
    return [
        *map(
            record.decode,
            itertools.chain(payloads, *(unpack_chunk(batch.body) for batch in admitted.batches)),
        )
    ]


def _check(admitted: Admitted, payload: bytes) -> None:
    records = _records(admitted)
    if (
        not records
        and not admitted.rejections
        and payload.lstrip() != b"[]"
        and not _is_empty_batch(payload)
    ):
        raise AssertionError("neither taken nor refused")
    for run in records:
        if (run.fleet, run.device) != ("lab", "pi-1") or not (
            0 < (run.session or 0) < 2**53 and 0 < (run.seq or 0) < 2**53
        ):
            raise AssertionError(run)
        if not 0 <= run.started_at_ns < 2**63 or run.schema > record.SCHEMA:
            raise AssertionError(run)


def _is_empty_batch(payload: bytes) -> bool:
    try:
        text = zlib.decompress(payload) if payload[:1] == b"x" else payload
        return json.loads(text) == []
    except (zlib.error, ValueError, RecursionError):
        return False


def _packet(draw: random.Random, version: str) -> bytes:
    kind = draw.randrange(5)
    if kind < 3:
        topic = (
            TOPIC.encode()
            if draw.random() < 0.9
            else bytes(draw.randrange(256) for _ in range(draw.randrange(20)))
        )
        payload = bytes(
            draw.randrange(256) for _ in range(draw.choice((0, 1, 5, 100, 200, 20_000)))
        )
        qos = draw.randrange(2)
        body = (
            struct.pack(">H", len(topic))
            + topic
            + (struct.pack(">H", draw.randrange(1, 65536)) if qos else b"")
        )
        return bytes([0x30 | qos << 1]) + sized(body + (b"\0" if version == "5" else b"") + payload)
    if kind == 3:
        return draw.choice(
            (b"\xd0\x00", b"\x90\x04\x00\x01\x00\x01", b"\x20\x03\x00\x00\x00", b"\xe0\x01\x8e")
        )
    return bytes(draw.randrange(256) for _ in range(draw.randrange(1, 12)))


def _read(pieces: list[bytes], version: str) -> tuple[list[object], str | None]:
    reader = PacketReader(version, 1, lambda: 0.0)  # type: ignore[arg-type]
    values: list[object] = []
    for part in pieces:
        try:
            for came in reader.read(part):
                values += came if isinstance(came, list) else [came]
        except TransientError:
            # How much was read before a stream breaks off depends on the pieces.
            return [], "broken"
    return sorted(values, key=repr), None


def _seeds() -> list[bytes]:
    plain = [record.encode(make_record(session=7, seq=seq)) for seq in (1, 2)]
    bare = record.encode(
        make_record(session=7, seq=3, samples=(), conditions=(), energy=None, accuracy=None)
    )
    several = messages.join_records([*plain, bare])
    other = [
        messages.encode_message(messages.Receipt(session=7, held=((1, 3), (5, 5)))),
        messages.encode_message(messages.DeviceState(state="online", session=7)),
        messages.encode_message(
            messages.Birth(
                device="pi-1",
                fleet="lab",
                session=7,
                agent="1",
                board=None,
                os="x",
                arch="y",
                runtimes={"a": "b"},
            )
        ),
    ]
    return [*plain, *([bare] * 6), several, zlib.compress(several), zlib.compress(plain[0]), *other]


def work(seed: int, inputs: int, until_s: float) -> Counter[str] | str:
    """Return what became of one process's inputs, or the flaw that was found."""
    fuzzer = Fuzzer(seed)
    try:
        while fuzzer.counts["inputs"] < inputs and time.monotonic() < until_s:
            fuzzer.run(STREAM_SHARE, until_s)
            fuzzer.try_stream()
    except FlawError as flaw:
        return str(flaw)
    return fuzzer.counts
