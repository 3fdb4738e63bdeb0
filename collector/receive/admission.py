"""Admission: which records of a message enter the ledger, and which are rejected and why.

The bytes are not trusted.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from edgemeter.agent.base import deflate
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.health import Health, ReportedMessage, decode_report
from edgemeter.agent.contract.messages import Topic, parse_topic
from edgemeter.agent.contract.record import RunRecord, change_fields, decode_head, decode_heads
from edgemeter.agent.contract.record_time import off_by_ns, was_never_set
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.chunks import Arrival, ArrivedBatch, arrived, pack_array
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage
from edgemeter.agent.ledger.quarantine import Rejection, RejectionKind
from edgemeter.agent.ledger.run_row import RecordKey, RunRow, row_of

# Limits of a group: messages, decompressed text, rejections. Decoded, records take a few times
# their text.
GROUP_MESSAGES = 2000
GROUP_TEXT_BYTES = 4 << 20
GROUP_REJECTIONS = 2000
JOB_TOPICS = messages.JOB_STATE.partition("{")[0]
# Limit of an unpacked message of 16 MiB: most of a large record are raw samples, already
# compressed, whose base64 shrinks by a quarter.
LONGEST_TEXT_BYTES = 24 << 20
# Records that travel together have at most 512 KiB; a larger one travels alone
# (`agent/delivery/sender.py`).
LONGEST_BATCH_BYTES = 2 << 20
# A record without its samples has kilobytes; decoded, text may take thirty times its size.
LARGEST_HEAD_BYTES = deflate.BEGINNING_BYTES
MOST_SERIES = 1000
# Source: RFC 1950, 2.2: deflate with a window of 32 KiB, as zlib writes it.
ZLIB_FIRST_BYTE = b"x"

_has_samples = re.compile(rb'"samples"\s*:\s*\[').search
# A batch of records is a JSON array.
_is_batch = re.compile(rb"\s*\[").match


@dataclass(slots=True)
class Admitted:
    """A group of messages received at one time, with the parts to be committed.

    `text_bytes` is the decompressed size of its results.

    `timeless` are the keys of the records whose only time is that of their receipt; `arrived_s`
    counts messages with records by the time when they were read, which is one for all messages of
    one read of the socket.
    """

    received_ns: int
    messages: list[Message] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    batches: list[ArrivedBatch] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    changes: list[PresenceChange | RetainedMessage] = field(default_factory=list)
    text_bytes: int = 0
    timeless: list[RecordKey] = field(default_factory=list)
    arrived_s: Counter[float] = field(default_factory=Counter)

    def is_full(self) -> bool:
        """Return whether the next message belongs to another group."""
        return (
            len(self.messages) >= GROUP_MESSAGES
            or self.text_bytes >= GROUP_TEXT_BYTES
            or len(self.rejections) >= GROUP_REJECTIONS
        )

    def add(self, message: Message) -> None:
        """Validate one message and add its parts."""
        self.messages.append(message)
        kind: RejectionKind = "topic"
        try:
            if message.topic.startswith(JOB_TOPICS):
                kind = "presence"
                self.changes.append(
                    RetainedMessage(message.topic, _job_progress(message), self.received_ns)
                )
                return
            topic = parse_topic(message.topic)
            if topic.kind == "result":
                kind = "payload"
                if self._add_results(topic, message):
                    self.arrived_s[message.arrived_s] += 1
                return
            kind = "presence"
            if topic.kind == "activity":
                self.changes.append(
                    RetainedMessage(
                        message.topic,
                        msgspec.json.encode(decode_report(topic, message.payload))
                        if message.payload
                        else b"",
                        self.received_ns,
                    )
                )
            elif message.payload:
                report = _presence(topic, message.payload, self.received_ns)
                self.changes.append(
                    PresenceChange(topic.fleet, topic.device, report, self.received_ns)
                )
        except ConfigError as error:
            self.rejections.append(
                Rejection(message.topic, message.payload, str(error), self.received_ns, kind)
            )

    def _add_results(self, topic: Topic, message: Message) -> bool:
        """Return whether the message contains a record to be stored, so that it gets a receipt."""
        text = payload_text(message.payload)
        self.text_bytes += len(text)
        if _is_batch(text) and (batch := _read_batch(text, topic, self.received_ns)):
            body = pack_array(text) if text is message.payload else message.payload
            self.timeless += [run.key for run in batch if run.is_wrong_time]
            self.batches.append(ArrivedBatch(batch, body, message.topic, self.received_ns))
            return True
        before = len(self.rejections)
        is_stored = [
            self._add_record(topic, message.topic, raw_record) for raw_record in split_records(text)
        ]
        self.rejections[before:] = quarantine.of_one_message(
            self.rejections[before:], message.payload
        )
        return any(is_stored)

    def _add_record(self, topic: Topic, name: str, text: bytes) -> bool:
        kind: RejectionKind = "record"
        try:
            check_size(text)
            record = decode_head(text)
            has_no_time = was_never_set(record)
            if has_no_time:
                text = change_fields(text, started_at_ns=self.received_ns, stamped_by="collector")
                record = decode_head(text)
            kind = "origin"
            _check_origin(record, topic)
        except ConfigError as error:
            self.rejections.append(Rejection(name, text, str(error), self.received_ns, kind))
            return False
        # Only the row of a record waits for the commit.
        arrival = arrived(record, text, name, self.received_ns)
        self.arrivals.append(arrival)
        if has_no_time or arrival.run.is_wrong_time:
            self.timeless.append(arrival.run.key)
        return True


def _read_batch(text: bytes, topic: Topic, received_ns: int) -> list[RunRow] | None:
    """Return the rows of a batch, or None unless all may be stored as they are.

    After None they are read one by one, to find which may not.
    """
    # A head longer than agents send is rejected before it is parsed.
    if len(text) > LARGEST_HEAD_BYTES:
        return None
    rows: list[RunRow] = []
    try:
        for record in decode_heads(text):
            _check_origin(record, topic)
            if was_never_set(record):
                return None
            rows.append(row_of(record, received_ns))
    except ConfigError:
        return None
    return None if len(rows) > messages.LONGEST_BATCH else rows


def _check_origin(record: RunRecord, topic: Topic) -> None:
    if (record.fleet, record.device) != (topic.fleet, topic.device):
        source = f"device {record.device!r} of fleet {record.fleet!r}"
        raise ConfigError(
            f"the record is of {source}, but arrived on the topic of device {topic.device!r} of "
            f"fleet {topic.fleet!r}"
        )
    if record.session is None or record.seq is None:
        raise ConfigError("the record has no session or no seq: it did not come from an outbox")


def _job_progress(message: Message) -> bytes:
    """Return the progress of a job as it is stored, empty if its topic is cleared."""
    if not message.payload:
        return b""
    progress = messages.decode_job_progress(message.payload)
    if message.topic != messages.JOB_STATE.format(job=progress.job):
        raise ConfigError(
            f"the progress is of job {progress.job!r}, but arrived on {message.topic!r}"
        )
    return messages.encode_message(progress)


def _presence(topic: Topic, payload: bytes, received_ns: int) -> ReportedMessage:
    report = decode_report(topic, payload)
    if not isinstance(report, Health):
        return report
    off_ns = off_by_ns(report.told_ns, received_ns)
    return msgspec.structs.replace(
        report,
        clock=msgspec.structs.replace(
            report.clock, off_by_ns=msgspec.UNSET if off_ns is None else off_ns
        ),
    )


def payload_text(payload: bytes) -> bytes:
    """Return the JSON text of a payload, at most 2 MiB for many records.

    An unpacked text has at most 24 MiB with raw samples, and 1 MiB without.

    Raises:
        ConfigError: it is not valid zlib data, or longer.
    """
    if payload[:1] == ZLIB_FIRST_BYTE:
        try:
            return deflate.expand(payload, _longest_bytes)
        except ConfigError as error:
            raise ConfigError(f"not a run record: {error}") from error
    if len(payload) > LONGEST_BATCH_BYTES and _is_batch(payload):
        raise ConfigError(f"not a batch of records: more than {LONGEST_BATCH_BYTES >> 20} MiB")
    return payload


def _longest_bytes(beginning: bytes) -> int:
    """Return the maximum length of a text with this beginning.

    A large record is large by its samples, which begin within its first MiB.
    """
    if _is_batch(beginning):
        return LONGEST_BATCH_BYTES
    return LONGEST_TEXT_BYTES if _has_samples(beginning) else LARGEST_HEAD_BYTES


class _Outline(msgspec.Struct, frozen=True, gc=False):
    id: str


class _SamplesOnly(msgspec.Struct, frozen=True, gc=False):
    samples: msgspec.Raw = msgspec.Raw(b"[]")


def check_size(text: bytes) -> None:
    """Check that a record of more than 1 MiB is large only by its raw samples.

    This is checked before anything is built from it.

    Raises:
        ConfigError: the rest is larger than 1 MiB, there are more than 1,000 series, or it is not a
            JSON object.
    """
    if len(text) <= LARGEST_HEAD_BYTES:
        return
    try:
        samples = bytes(decode_json(text, _SamplesOnly).samples)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"not a run record: {error}") from error
    if len(text) - len(samples) > LARGEST_HEAD_BYTES:
        raise ConfigError(
            f"not a run record: more than {LARGEST_HEAD_BYTES >> 20} MiB without its samples"
        )
    # Each series is an object, and their content has no braces.
    if samples.count(b"{") > MOST_SERIES:
        raise ConfigError(f"not a run record: more than {MOST_SERIES} series")


def split_records(payload: bytes) -> list[bytes]:
    """Return the encoded records of a payload, each as its own JSON text.

    Their content is not checked here.

    Raises:
        ConfigError: the payload is a list, but not one of up to 10,000 objects that look like
            records.
    """
    if not _is_batch(payload):
        return [payload]
    try:
        # Most payloads that are not a batch have no ids, and are cheap to read.
        if len(decode_json(payload, list[_Outline])) > messages.LONGEST_BATCH:
            raise ConfigError(f"not a batch of records: more than {messages.LONGEST_BATCH}")
        return [bytes(raw) for raw in decode_json(payload, list[msgspec.Raw])]
    except msgspec.MsgspecError as error:
        raise ConfigError(f"not a batch of records: {error}") from error
