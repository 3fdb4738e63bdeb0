"""Admission: what of a message is taken into the ledger, and what is not and why. Any bytes at all may come in here."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, cast

import msgspec

from edgemeter.agent import record_parts, records
from edgemeter.agent.delivery import messages, topics
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.health import contract as health
from edgemeter.agent.health.contract import Health
from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep import chunks
from edgemeter.collector.keep.arrival import Arrival, Shipment
from edgemeter.collector.keep.presence import Change
from edgemeter.collector.keep.quarantine import Rejection
from edgemeter.collector.receive import envelope

# Session and seq travel as JSON numbers that every language reads exactly; time is a column of 64 bits.
NUMBER_LIMIT = 2**53
TIME_LIMIT_NS = 2**63
TOPICS_REMEMBERED = 50_000

# Look at the whole of a record, or for now at its envelope only: the ledger looks at the rest when there is time.
Look = Literal["whole", "envelope"]

_parse_topic = lru_cache(TOPICS_REMEMBERED)(topics.parse)
_several = msgspec.json.Decoder(list[RunRecord])


@dataclass(slots=True)
class Admitted:
    """What a group of messages comes to; `text_bytes` is how much text that was, decompressed."""

    look: Look = "whole"
    arrivals: list[Arrival] = field(default_factory=list)
    shipments: list[Shipment] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    text_bytes: int = 0

    def add(self, message: Message, received_ns: int) -> None:
        """Look at one message and sort it in."""
        try:
            topic = _parse_topic(message.topic)
            if topic.kind == "result":
                self._add_results(topic, message, received_ns)
            elif message.payload:
                self.changes.append(Change(topic.fleet, topic.device, _presence(topic, message.payload), received_ns))
        except ConfigError as error:
            self.rejections.append(Rejection(message.topic, message.payload, str(error), received_ns))

    def _add_results(self, topic: Topic, message: Message, received_ns: int) -> None:
        text = envelope.text_of(message.payload)
        self.text_bytes += len(text)
        if not envelope.is_batch(text):
            self._add_record(topic, message.topic, text, received_ns)
            return
        if len(text) <= chunks.LARGEST_TEXT_BYTES and (several := self._read_batch(text, topic)):
            body = chunks.pack_array(text) if text is message.payload else message.payload
            self.shipments.append(Shipment(several, body, message.topic, received_ns, self.look == "whole"))
            return
        for one in messages.split(text):
            self._add_record(topic, message.topic, one, received_ns)

    def _read_batch(self, text: bytes, topic: Topic) -> list[RunRecord] | None:
        # All or nothing: what is wrong with which record shows when they are looked at one by one.
        if self.look == "envelope":
            several = cast("list[RunRecord] | None", envelope.read_batch(text))
        else:
            try:
                several = _several.decode(text)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                return None
        if several is None or len(several) > messages.LONGEST_BATCH or not _are_in_order(several, topic):
            return None
        return several

    def _add_record(self, topic: Topic, name: str, text: bytes, received_ns: int) -> None:
        try:
            record = self._read(text)
            if _has_no_time(record):
                text = record_parts.changed(text, started_at_ns=received_ns, stamped_by="collector")
                record = self._read(text)
            _check(record, topic)
            self.arrivals.append(Arrival(record, text, name, received_ns, self.look == "whole"))
        except ConfigError as error:
            self.rejections.append(Rejection(name, text, str(error), received_ns))

    def _read(self, text: bytes) -> RunRecord:
        # An envelope has the fields of a record that the ledger looks at.
        return records.decode(text) if self.look == "whole" else cast("RunRecord", envelope.read(text))


def _has_no_time(record: RunRecord) -> bool:
    """Return whether the device's clock was wrong and never came right: then all that is known is when the record came."""
    return record.clock_synchronised is False and record.stamped_by == "device"


def _are_in_order(several: Iterable[RunRecord], topic: Topic) -> bool:
    fleet, device = topic.fleet, topic.device
    return all(
        one.device == device
        and one.fleet == fleet
        and one.schema <= records.SCHEMA
        and 0 < (one.session or 0) < NUMBER_LIMIT
        and 0 < (one.seq or 0) < NUMBER_LIMIT
        and 0 < one.started_at_ns < TIME_LIMIT_NS
        and not _has_no_time(one)
        for one in several
    )


def _check(record: RunRecord, topic: Topic) -> None:
    if (record.fleet, record.device) != (topic.fleet, topic.device):
        said = f"device {record.device!r} of fleet {record.fleet!r}"
        message = f"the record is of {said}, it came on the topic of device {topic.device!r} of fleet {topic.fleet!r}"
        raise ConfigError(message)
    for name, value, limit in (
        ("session", record.session, NUMBER_LIMIT),
        ("seq", record.seq, NUMBER_LIMIT),
        ("started_at_ns", record.started_at_ns, TIME_LIMIT_NS),
    ):
        if value is None or not 0 < value < limit:
            message = f"{name} is {value}, not a number above 0 and below 2**{limit.bit_length() - 1}: the record went through no outbox"
            raise ConfigError(message)


def _presence(topic: Topic, payload: bytes) -> messages.Birth | messages.State | Health:
    if topic.kind == "state":
        return messages.decode_state(payload)
    said = health.decode(payload) if topic.kind == "health" else messages.decode_birth(payload)
    if (said.fleet, said.device) != (topic.fleet, topic.device):
        message = f"the {topic.kind} is of device {said.device!r} of fleet {said.fleet!r}, it came on the topic {str(topic)!r}"
        raise ConfigError(message)
    return said
