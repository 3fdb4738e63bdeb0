"""The retrial: what lies in quarantine is looked at again, after an update, or after somebody corrected what stood in the way."""

from dataclasses import dataclass

from edgemeter.agent import records
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.errors import ConfigError
from edgemeter.collector.keep import quarantine
from edgemeter.collector.keep.ledger import Ledger
from edgemeter.collector.keep.ledger_writer import COLLISION
from edgemeter.collector.keep.quarantine import Quarantined
from edgemeter.collector.receive.admission import Admitted


@dataclass(frozen=True, slots=True)
class Retried:
    """One entry: how many records the ledger took of it, or why it stays where it is."""

    row: int
    taken: int
    reason: str | None = None


def retry(ledger: Ledger, entry: Quarantined) -> Retried:
    """Look at `entry` again; what is taken leaves the quarantine. What a sink refused is brought to it anew.

    Raises:
        UnavailableError: the disk is full.
        TransientError: another process holds the ledger.
    """
    if entry.size_bytes > len(entry.payload):
        return Retried(entry.row, 0, f"only the first {len(entry.payload)} of {entry.size_bytes} bytes are kept")
    is_sinks = quarantine.is_sinks(entry.topic)
    try:
        message = _anew(ledger, entry.payload) if is_sinks else Message(entry.topic, entry.payload)
    except ConfigError as error:
        return Retried(entry.row, 0, str(error))
    admitted = Admitted()
    admitted.add(message, entry.received_ns)
    if admitted.rejections:
        return Retried(entry.row, 0, admitted.rejections[0].reason)
    if not admitted.arrivals and not admitted.shipments:
        return Retried(entry.row, 0, "there is no record in it")
    committed = ledger.release(entry.row, admitted.arrivals, admitted.shipments, anew=is_sinks)
    return Retried(entry.row, len(committed.held), COLLISION if committed.collisions else None)


def _anew(ledger: Ledger, head: bytes) -> Message:
    # Of what a sink refused the head lies there; the ledger has the samples as well, unless retention took the record.
    record = records.decode(head)
    return Message(str(Topic(record.fleet, record.device, "result")), ledger.text(record) or head)
