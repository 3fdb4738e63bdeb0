"""Import of one ledger's records into another, which may hold other records; afterwards every record is verified by its hash.

What a ledger holds already is not stored twice, so that an import that was interrupted is simply started again.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.messages import DeviceState, Topic
from edgemeter.agent.contract.record import RunRecord, decode, split_samples
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.presence import DevicePresence, PresenceChange
from edgemeter.agent.ledger.quarantine import Rejection
from edgemeter.agent.ledger.run_history import LedgerRuns
from edgemeter.collector.receive.envelope import read_envelope

# Of one commit: some seconds of a slow disk's work at most.
COMMIT_RECORDS = 2000
COMMIT_BYTES = 8 << 20
# Of a hash that is compared; sixteen bytes of a million records are some 100 MB of memory.
HASH_BYTES = 16

# Called with the step, how many records of it are done, and how many there are.
ImportWatch = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LedgerImport:
    """The result of importing the `records` of a source. `differing` names the first of those that differ in the target.

    Each of the others is one of: `inserted`, `held` (the target had it), `stripped` (one of both has it without its raw samples),
    `removed` (the target's retention has removed it), `invalid` (it was never valid, or the target cannot store it: now in quarantine),
    `collisions` (another record has its number: now in quarantine).
    """

    records: int = 0
    inserted: int = 0
    held: int = 0
    stripped: int = 0
    removed: int = 0
    invalid: int = 0
    collisions: int = 0
    differing: tuple[str, ...] = ()
    devices: int = 0
    quarantined: int = 0


@dataclass(slots=True)
class _Portion:
    arrivals: list[Arrival] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    size_bytes: int = 0

    def is_full(self) -> bool:
        return len(self.arrivals) + len(self.rejections) >= COMMIT_RECORDS or self.size_bytes >= COMMIT_BYTES

    def add(self, payload: bytes, received_ns: int, *, is_checked: bool) -> None:
        self.size_bytes += len(payload)
        envelope = cast("RunRecord", read_envelope(payload))
        topic = str(Topic(envelope.fleet, envelope.device, "result"))
        try:
            if not is_checked:
                decode(payload)
        except ConfigError as error:
            self.rejections.append(Rejection(topic, payload, str(error), received_ns))
            return
        self.arrivals.append(Arrival(envelope, payload, topic, received_ns))


def import_ledger(source: Ledger, target: Ledger, watch: ImportWatch = lambda *_: None) -> LedgerImport:
    """Commit what `source` holds to `target`, then read it back and compare; nothing is removed from either.

    Records, their history, presence of devices, and quarantine are imported. Positions of sinks are not: the records are drained again.

    Raises:
        ConfigError: a record of the source cannot be read.
        UnavailableError: the target's disk is full, or its server does not answer; start it again.
        TransientError: somebody else holds one of them.
    """
    last_row = target.last_row()
    result, expected = _commit_records(source, target, watch)
    # What the target had before has to be looked for there.
    _find(target, last_row if all(expected.values()) else 0, expected, watch)
    result = _classified(source, target, result, expected)
    LedgerRuns(target).copy(source)
    stored_entries = {(entry.topic, entry.reason, entry.payload) for entry in target.quarantined()}
    entries = [entry for entry in source.quarantined() if (entry.topic, entry.reason, entry.payload) not in stored_entries]
    # Devices that the target has not heard of since.
    changed_ns = {(device.fleet, device.device): device.changed_ns for device in target.devices()}
    present = [device for device in source.devices() if changed_ns.get((device.fleet, device.device), -1) < device.changed_ns]
    changes = [change for device in present for change in _changes(device)]
    if entries or changes:
        rejections = [Rejection(entry.topic, entry.payload, entry.reason, entry.received_ns) for entry in entries]
        target.commit((), rejections, changes)
    return replace(result, devices=len(present), quarantined=len(entries))


def _commit_records(source: Ledger, target: Ledger, watch: ImportWatch) -> tuple[LedgerImport, dict[bytes, bool]]:
    """Return the counts, and the hashes of what the target has to hold: whether it was inserted for certain, or may have been removed."""
    total, result = source.count(), LedgerImport()
    expected: dict[bytes, bool] = {}
    for portion in _portions(source):
        committed = target.commit(portion.arrivals, portion.rejections)
        is_new = committed.inserted == len(portion.arrivals)
        for digest in (_hash(arrival.payload) for arrival in portion.arrivals):
            expected[digest] = is_new or expected.get(digest, False)
        result = replace(
            result,
            records=result.records + len(portion.arrivals) + len(portion.rejections),
            inserted=result.inserted + committed.inserted,
            invalid=result.invalid + len(portion.rejections),
        )
        watch("importing records", result.records, max(total, result.records))
    return result, expected


def _portions(source: Ledger) -> Iterator[_Portion]:
    portion = _Portion()
    for chunk in source.chunks():
        for _, payload in chunk.payloads():
            portion.add(payload, chunk.received_ns, is_checked=chunk.is_checked)
            if portion.is_full():
                yield portion
                portion = _Portion()
    if portion.arrivals or portion.rejections:
        yield portion


def _hash(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()[:HASH_BYTES]


def _find(target: Ledger, after_row: int, expected: dict[bytes, bool], watch: ImportWatch) -> None:
    """Take from `expected` the hash of every text of `target` after a row."""
    total = len(expected)
    for number, (_, _, payload) in enumerate(target.texts(after_row=after_row) if expected else ()):
        expected.pop(_hash(payload), None)
        if number % COMMIT_RECORDS == 0:
            watch("verifying", total - len(expected), total)
        if not expected:
            return


def _classified(source: Ledger, target: Ledger, result: LedgerImport, missing: dict[bytes, bool]) -> LedgerImport:
    """Return the import with why each text that is still missing is not in `target`."""
    count: Counter[str] = Counter()
    differing = []
    refused = {_hash(entry.payload) for entry in target.quarantined()} if missing else frozenset()
    for _, _, payload in source.texts() if missing else ():
        digest = _hash(payload)
        if digest in missing:
            record = cast("RunRecord", read_envelope(payload))
            reason = _why_absent(target, record, payload, is_new=missing[digest])
            if reason == "removed" and digest in refused:
                reason = "refused"
            count[reason] += 1
            if reason == "differing":
                differing.append(f"{record.id} of device {record.device!r}")
    present = result.records - result.invalid - sum(count.values())
    return replace(
        result,
        held=max(0, present - result.inserted),
        stripped=count["stripped"],
        removed=count["removed"],
        invalid=result.invalid + count["refused"],
        collisions=count["collision"],
        differing=tuple(differing),
    )


def _why_absent(target: Ledger, record: RunRecord, payload: bytes, *, is_new: bool) -> str:
    stored_text = target.text(record)
    if stored_text is not None:
        # Retention has removed the raw samples there, or here.
        return "stripped" if split_samples(stored_text)[0] == split_samples(payload)[0] else "differing"
    if any(first <= (record.seq or 0) <= last for first, last in target.ranges(record.device, record.session or 0)):
        return "collision"
    return "differing" if is_new else "removed"


def _changes(device: DevicePresence) -> Iterator[PresenceChange]:
    for report in (device.birth, device.health):
        if report is not None:
            yield PresenceChange(device.fleet, device.device, report, device.changed_ns)
    if device.state is None or device.session is None:
        return
    # The end of a session is heard only by who knows that it began.
    for state in dict.fromkeys(("online", device.state)):
        message = DeviceState(state=state, session=device.session)  # type: ignore[arg-type]
        yield PresenceChange(device.fleet, device.device, message, device.changed_ns)
