"""Import of one ledger's records into another, which may hold other records; afterwards every record is verified by its hash.

What a ledger holds already is not stored twice, so that an import that was interrupted is simply started again.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.messages import DeviceState, Topic
from edgemeter.agent.contract.record import RunRecord, decode, split_samples
from edgemeter.agent.ledger.chunks import Arrival
from edgemeter.agent.ledger.ledger import Ledger
from edgemeter.agent.ledger.presence import DevicePresence, PresenceChange
from edgemeter.agent.ledger.quarantine import QuarantinedMessage, Rejection
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
class _ExpectedHashes:
    """Hashes of what the target has to hold: `new` was inserted for certain, `other` it may have had, or have removed."""

    new: set[bytes] = field(default_factory=set)
    other: set[bytes] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.new) + len(self.other)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self.new or digest in self.other

    def found(self, digest: bytes) -> None:
        """It is there."""
        self.new.discard(digest)
        self.other.discard(digest)


@dataclass(slots=True)
class _Portion:
    """The content of one commit."""

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

    Records, presence of devices, and quarantine are imported. Positions of sinks are not: the records are drained again.

    Raises:
        ConfigError: a record of the source cannot be read.
        UnavailableError: the target's disk is full, or its server does not answer; start it again.
        TransientError: somebody else holds one of them.
    """
    last_row = target.last_row()
    done, wanted = _commit_records(source, target, watch)
    # What the target had before has to be looked for there.
    _find(target, 0 if wanted.other else last_row, wanted, watch)
    done = _classified(source, target, done, wanted)
    entries = _new_entries(source.quarantined(), target.quarantined())
    present = _newer(source.devices(), target.devices())
    changes = [change for one in present for change in _changes(one)]
    if entries or changes:
        target.commit((), [_rejection(one) for one in entries], changes)
    return replace(done, devices=len(present), quarantined=len(entries))


def _commit_records(source: Ledger, target: Ledger, watch: ImportWatch) -> tuple[LedgerImport, _ExpectedHashes]:
    total, done, wanted = source.count(), LedgerImport(), _ExpectedHashes()
    for portion in _portions(source):
        committed = target.commit(portion.arrivals, portion.rejections)
        hashes = wanted.new if committed.inserted == len(portion.arrivals) else wanted.other
        hashes.update(_hash(one.payload) for one in portion.arrivals)
        done = replace(
            done,
            records=done.records + len(portion.arrivals) + len(portion.rejections),
            inserted=done.inserted + committed.inserted,
            invalid=done.invalid + len(portion.rejections),
        )
        watch("importing records", done.records, max(total, done.records))
    return done, wanted


def _portions(source: Ledger) -> Iterator[_Portion]:
    portion = _Portion()
    for held in source.chunks():
        for _, payload in held.payloads():
            portion.add(payload, held.received_ns, is_checked=held.is_checked)
            if portion.is_full():
                yield portion
                portion = _Portion()
    if portion.arrivals or portion.rejections:
        yield portion


def _hash(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()[:HASH_BYTES]


def _find(target: Ledger, after_row: int, wanted: _ExpectedHashes, watch: ImportWatch) -> None:
    """Look for every text in `target` after a row."""
    total = len(wanted)
    for number, (_, _, payload) in enumerate(target.texts(after_row=after_row) if wanted else ()):
        wanted.found(_hash(payload))
        if number % COMMIT_RECORDS == 0:
            watch("verifying", total - len(wanted), total)
        if not wanted:
            return


def _classified(source: Ledger, target: Ledger, done: LedgerImport, wanted: _ExpectedHashes) -> LedgerImport:
    """Return the import with why each text that is still wanted is not in `target`."""
    count: Counter[str] = Counter()
    differing = []
    refused = {_hash(one.payload) for one in target.quarantined()} if wanted else frozenset()
    for _, _, payload in source.texts() if wanted else ():
        digest = _hash(payload)
        if digest in wanted:
            record = cast("RunRecord", read_envelope(payload))
            reason = _why_absent(target, record, payload, is_new=digest in wanted.new)
            if reason == "removed" and digest in refused:
                reason = "refused"
            count[reason] += 1
            if reason == "differing":
                differing.append(f"{record.id} of device {record.device!r}")
    found = done.records - done.invalid - sum(count.values())
    return replace(
        done,
        held=max(0, found - done.inserted),
        stripped=count["stripped"],
        removed=count["removed"],
        invalid=done.invalid + count["refused"],
        collisions=count["collision"],
        differing=tuple(differing),
    )


def _why_absent(target: Ledger, record: RunRecord, payload: bytes, *, is_new: bool) -> str:
    held = target.text(record)
    if held is not None:
        # Retention has removed the raw samples there, or here.
        return "stripped" if split_samples(held)[0] == split_samples(payload)[0] else "differing"
    if any(first <= (record.seq or 0) <= last for first, last in target.ranges(record.device, record.session or 0)):
        return "collision"
    return "differing" if is_new else "removed"


def _new_entries(entries: Sequence[QuarantinedMessage], there: Sequence[QuarantinedMessage]) -> list[QuarantinedMessage]:
    known = {(one.topic, one.reason, one.payload) for one in there}
    return [one for one in entries if (one.topic, one.reason, one.payload) not in known]


def _rejection(entry: QuarantinedMessage) -> Rejection:
    return Rejection(entry.topic, entry.payload, entry.reason, entry.received_ns)


def _newer(devices: Sequence[DevicePresence], there: Sequence[DevicePresence]) -> list[DevicePresence]:
    """Return the devices that the target has not heard of since."""
    known = {(one.fleet, one.device): one.changed_ns for one in there}
    return [one for one in devices if known.get((one.fleet, one.device), -1) < one.changed_ns]


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
