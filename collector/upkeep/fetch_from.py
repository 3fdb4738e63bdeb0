"""Copies the records of one ledger that another one does not have, as they were received: text, time of receipt, everything."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.contract.record import RunRecord, decode
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger

BATCH_RECORDS = 500


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """What came of one source: its records, how many of them were new here, and how many have a number that belongs to another record."""

    source: LedgerPlace
    records: int
    new: int
    collisions: int


def fetch_from(source: LedgerPlace, ledger: LedgerPlace) -> FetchedRecords:
    """Copy what the ledger at `source` holds and the one at `ledger` does not; the source is only read, and may be in use.

    A record is committed with the text that arrived, so that it is the original. What the retention of either ledger removed stays removed.

    Raises:
        ConfigError: one of them is no ledger, or the source is damaged or the ledger itself.
        UnavailableError: the disk is full; what was copied so far stays, and the call may be repeated.
        TransientError: another process has locked the ledger; as above.
    """
    if _same(source, ledger):
        raise ConfigError(f"{str(source)!r} is the ledger itself: name another one with --from")
    records = new = collisions = 0
    with open_ledger(source, "read") as opened, open_ledger(ledger) as target:
        for batch in _batches(opened):
            done = target.commit(batch)
            records, new, collisions = records + len(batch), new + done.inserted, collisions + done.collisions
    return FetchedRecords(source, records, new, collisions)


def _same(one: LedgerPlace, other: LedgerPlace) -> bool:
    if isinstance(one, Path) and isinstance(other, Path):
        return one.resolve() == other.resolve()
    return one == other


def _batches(source: Ledger) -> Iterator[list[Arrival]]:
    batch: list[Arrival] = []
    for _, received_ns, text, is_checked in source.payloads():
        record = _checked(text, is_checked=is_checked)
        if record is None:
            continue
        batch.append(Arrival(record, text, str(Topic(record.fleet, record.device, "result")), received_ns))
        if len(batch) >= BATCH_RECORDS:
            yield batch
            batch = []
    if batch:
        yield batch


def _checked(text: bytes, *, is_checked: bool) -> RunRecord | None:
    try:
        return decode(text)
    except ConfigError:
        if is_checked:
            raise
        # Its collector will quarantine it.
        return None
