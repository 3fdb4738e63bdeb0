"""Admission: what of a message is taken into the ledger, and what is not and why. Any bytes at all may come in here."""

from dataclasses import dataclass, field

from edgemeter.agent import records
from edgemeter.agent.delivery import messages, topics
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import RunRecord
from edgemeter.collector.keep.ledger import Arrival
from edgemeter.collector.keep.presence import Change
from edgemeter.collector.keep.quarantine import Rejection

# Session and seq travel as JSON numbers that every language reads exactly; time is a column of 64 bits.
NUMBER_LIMIT = 2**53
TIME_LIMIT_NS = 2**63


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a group of messages comes to."""

    arrivals: list[Arrival] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def add(self, message: Message, received_ns: int) -> None:
        """Look at one message and sort it in."""
        try:
            topic = topics.parse(message.topic)
            if topic.kind == "result":
                for payload in messages.split(message.payload):
                    self._add_record(topic, payload, received_ns)
            elif message.payload:
                self.changes.append(Change(topic.fleet, topic.device, _presence(topic, message.payload), received_ns))
        except ConfigError as error:
            self.rejections.append(Rejection(message.topic, message.payload, str(error), received_ns))

    def _add_record(self, topic: Topic, payload: bytes, received_ns: int) -> None:
        try:
            record = records.decode(payload)
            _check(record, topic)
            self.arrivals.append(Arrival(record, payload, str(topic), received_ns))
        except ConfigError as error:
            self.rejections.append(Rejection(str(topic), payload, str(error), received_ns))


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


def _presence(topic: Topic, payload: bytes) -> messages.Birth | messages.State:
    if topic.kind == "state":
        return messages.decode_state(payload)
    birth = messages.decode_birth(payload)
    if (birth.fleet, birth.device) != (topic.fleet, topic.device):
        message = f"the birth is of device {birth.device!r} of fleet {birth.fleet!r}, it came on the topic {str(topic)!r}"
        raise ConfigError(message)
    return birth
