"""The content of a store or document: its runs, and omissions with reasons.

Documents are as printed by `edgemeter run --format json`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.number_text import count
from edgemeter.agent.contract.record import RunRecord, decode
from edgemeter.agent.ledger.chunks import SkippedRecord
from edgemeter.agent.ledger.ledger import Ledger

UNREAD = "in the ledger, but it cannot be read"  # Begins the reason of a `LeftOut`.
_AT_ONCE = 500  # Values in one statement.


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run, or a part of one, that is left out, and why.

    `run` is None if even its id could not be read, `device` if unknown.
    """

    run: str | None
    reason: str
    device: str | None = None

    @property
    def name(self) -> str:
        """The run and its device: `run-7 of pi-1`."""
        return (
            f"{self.run or 'a record whose id cannot be read'}"
            f"{f' of {self.device}' if self.device else ''}"
        )


@dataclass(frozen=True, slots=True)
class StoreContents:
    """The content of a store: the runs, and entries that could not be read as runs."""

    runs: Sequence[RunRecord]
    left_out: Sequence[LeftOut] = ()


def oldest_first(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Return `runs` in the order of their start, then of device and numbers.

    The order does not depend on the store.
    """
    return sorted(
        runs, key=lambda run: (run.started_at_ns, run.device, run.session or 0, run.seq or 0)
    )


class _RunsDocument(msgspec.Struct):
    runs: list[msgspec.Raw]


class _Identity(msgspec.Struct, frozen=True):
    id: str
    device: str | None = None


def read_document(path: Path) -> StoreContents:
    """Return the runs in a document, oldest first, with their samples.

    Those of a newer schema or damaged are left out.

    Raises:
        ConfigError: it cannot be read, is not such a document, or no run in it can be read.
    """
    try:
        raw_runs = decode_json(path.read_bytes(), _RunsDocument).runs
    except OSError as error:
        raise ConfigError(f"cannot read the store {str(path)!r}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{str(path)!r} is neither a ledger nor the output of `edgemeter run --format json` "
            f'({{"runs": [...]}}): {error}'
        ) from error
    runs: list[RunRecord] = []
    left_out: list[LeftOut] = []
    for raw in map(bytes, raw_runs):
        try:
            runs.append(decode(raw))
        except ConfigError as error:
            identity = _identity(raw)
            left_out.append(
                LeftOut(identity.id, str(error), identity.device)
                if identity
                else LeftOut(None, str(error))
            )
    if left_out and not runs:
        raise ConfigError(f"no run in {str(path)!r} can be read: {left_out[0].reason}")
    return StoreContents(oldest_first(runs), left_out)


def _identity(raw: bytes) -> _Identity | None:
    try:
        return decode_json(raw, _Identity)
    except msgspec.MsgspecError:
        return None


def unread_run(skipped: SkippedRecord) -> LeftOut:
    """Return the omission of a record in a ledger that cannot be read."""
    return LeftOut(skipped.run, f"{UNREAD}: {skipped.reason}", skipped.device or None)


def left_out_of(ledger: Ledger) -> list[LeftOut]:
    """Return the entries of a ledger's quarantine, except runs in the ledger.

    Runs rejected by InfluxDB are quarantined too.
    """
    messages = [(_identity(entry.payload), entry.reason) for entry in ledger.quarantined()]
    named = [(identity, reason) for identity, reason in messages if identity is not None]
    ids = sorted({identity.id for identity, _ in named})
    stored: set[str] = set()
    for first in range(0, len(ids), _AT_ONCE):
        part = ids[first : first + _AT_ONCE]
        stored.update(
            run
            for (run,) in ledger.query(
                "SELECT id FROM runs "  # noqa: S608 - question marks
                f"WHERE id IN ({', '.join('?' * len(part))})",
                *part,
            )
        )
    left_out = [
        LeftOut(identity.id, f"in the ledger's quarantine: {reason}", identity.device)
        for identity, reason in named
        if identity.id not in stored
    ]
    if unnamed := len(messages) - len(named):
        left_out.append(
            LeftOut(
                None, f"in the ledger's quarantine: {count(unnamed, 'message')} without a run id"
            )
        )
    return left_out
