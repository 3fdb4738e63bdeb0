"""Admission: which records of a message enter the ledger, and which are rejected and why. Any bytes at all may come in here."""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.health import Health, decode_health
from edgemeter.agent.contract.messages import Topic, parse_topic
from edgemeter.agent.contract.record import RunRecord, change_fields, decode_head, decode_heads
from edgemeter.agent.contract.record_time import is_timeless, off_by_ns, was_never_set
from edgemeter.agent.ledger import quarantine
from edgemeter.agent.ledger.chunks import Arrival, ArrivedBatch, RecordKey, key_of, pack_array
from edgemeter.agent.ledger.presence import PresenceChange, RetainedMessage
from edgemeter.agent.ledger.quarantine import Rejection, RejectionKind
from edgemeter.collector.receive.payload import check_size, is_batch, payload_text, split_records

# A group is full at this much decompressed text, or this many rejections. Decoded, records take a few times their text.
GROUP_TEXT_BYTES = 4 << 20
GROUP_REJECTIONS = 2000
TOPICS_REMEMBERED = 50_000
CAMPAIGN_TOPICS = messages.CAMPAIGN_STATE.partition("{")[0]

_parse_topic = lru_cache(TOPICS_REMEMBERED)(parse_topic)


@dataclass(slots=True)
class Admitted:
    """A group of messages received at one time, and what of it is to be committed; `text_bytes` is the size of its results, decompressed.

    `timeless` are the keys of the records that have no time but that of their receipt; `arrived_s` counts messages with records by the time
    when they were read, which is one for all that one read of the socket brought.
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
        return self.text_bytes >= GROUP_TEXT_BYTES or len(self.rejections) >= GROUP_REJECTIONS

    def add(self, message: Message) -> None:
        """Validate one message and add it where it belongs."""
        self.messages.append(message)
        kind: RejectionKind = "topic"
        try:
            if message.topic.startswith(CAMPAIGN_TOPICS):
                kind = "presence"
                self.changes.append(RetainedMessage(message.topic, _campaign(message), self.received_ns))
                return
            topic = _parse_topic(message.topic)
            if topic.kind == "result":
                kind = "payload"
                if self._add_results(topic, message):
                    self.arrived_s[message.arrived_s] += 1
                return
            kind = "presence"
            if topic.kind == "activity":
                text = messages.encode_message(messages.decode_activity(message.payload)) if message.payload else b""
                self.changes.append(RetainedMessage(message.topic, text, self.received_ns))
            elif message.payload:
                report = _presence(topic, message.payload, self.received_ns)
                self.changes.append(PresenceChange(topic.fleet, topic.device, report, self.received_ns))
        except ConfigError as error:
            self.rejections.append(Rejection(message.topic, message.payload, str(error), self.received_ns, kind))

    def _add_results(self, topic: Topic, message: Message) -> bool:
        """Return whether the message holds a record to be stored, so that it gets a receipt."""
        text = payload_text(message.payload)
        self.text_bytes += len(text)
        if not is_batch(text):
            return self._add_record(topic, message.topic, text)
        if batch := _read_batch(text, topic):
            body = pack_array(text) if text is message.payload else message.payload
            self.timeless += [key_of(record) for record in batch if is_timeless(record, self.received_ns)]
            self.batches.append(ArrivedBatch(batch, body, message.topic, self.received_ns))
            return True
        before = len(self.rejections)
        is_stored = [self._add_record(topic, message.topic, raw_record) for raw_record in split_records(text)]
        self.rejections[before:] = quarantine.of_one_message(self.rejections[before:], message.payload)
        return any(is_stored)

    def _add_record(self, topic: Topic, name: str, text: bytes) -> bool:
        kind: RejectionKind = "record"
        try:
            check_size(text)
            record = decode_head(text)
            has_no_time = is_timeless(record, self.received_ns)
            if has_no_time and was_never_set(record):
                text = change_fields(text, started_at_ns=self.received_ns, stamped_by="collector")
                record = decode_head(text)
            kind = "origin"
            _check_origin(record, topic)
        except ConfigError as error:
            self.rejections.append(Rejection(name, text, str(error), self.received_ns, kind))
            return False
        self.arrivals.append(Arrival(record, text, name, self.received_ns))
        if has_no_time:
            self.timeless.append(key_of(record))
        return True


def _read_batch(text: bytes, topic: Topic) -> list[RunRecord] | None:
    """Return the records of a batch, None unless all may be stored as they are: then they are read one by one, to find which."""
    try:
        records = decode_heads(text)
        for record in records:
            _check_origin(record, topic)
    except ConfigError:
        return None
    return None if len(records) > messages.LONGEST_BATCH or any(map(was_never_set, records)) else records


def _check_origin(record: RunRecord, topic: Topic) -> None:
    if (record.fleet, record.device) != (topic.fleet, topic.device):
        source = f"device {record.device!r} of fleet {record.fleet!r}"
        raise ConfigError(f"the record is of {source}, but arrived on the topic of device {topic.device!r} of fleet {topic.fleet!r}")
    if record.session is None or record.seq is None:
        raise ConfigError("the record has no session or no seq: it did not come from an outbox")


def _campaign(message: Message) -> bytes:
    """Return the progress of a campaign as it is kept, empty where its topic is cleared."""
    if not message.payload:
        return b""
    progress = messages.decode_campaign(message.payload)
    if message.topic != messages.CAMPAIGN_STATE.format(campaign=progress.campaign):
        raise ConfigError(f"the progress is of campaign {progress.campaign!r}, but arrived on {message.topic!r}")
    return messages.encode_message(progress)


def _presence(topic: Topic, payload: bytes, received_ns: int) -> messages.Birth | messages.DeviceState | Health:
    if topic.kind == "state":
        return messages.decode_state(payload)
    report = decode_health(payload) if topic.kind == "health" else messages.decode_birth(payload)
    if (report.fleet, report.device) != (topic.fleet, topic.device):
        raise ConfigError(
            f"the {topic.kind} is of device {report.device!r} of fleet {report.fleet!r}, but arrived on the topic {str(topic)!r}"
        )
    if not isinstance(report, Health):
        return report
    off_ns = off_by_ns(report.told_ns, received_ns)
    clock = msgspec.structs.replace(report.clock, off_by_ns=msgspec.UNSET if off_ns is None else off_ns)
    return msgspec.structs.replace(report, clock=clock)
