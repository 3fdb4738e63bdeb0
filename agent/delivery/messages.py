"""What travels beside records: receipt, birth, state; and results as one record or a batch."""

from typing import Annotated, Literal, TypeVar

import msgspec

from edgemeter.agent.errors import ConfigError

LONGEST_BATCH = 10_000

_Message = TypeVar("_Message")

# What every language reads exactly from JSON, and what fits a column of any store.
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A collector's word that it holds, committed, these ranges of sequence numbers (both ends included) of one session."""

    session: Number
    held: tuple[tuple[Number, Number], ...]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a device is there; `session` tells the Will of a dead session from the state of a live one.

    `revoked` is its fleet's word about a device that was put out, which cannot say anything itself any more.
    """

    state: Literal["online", "offline", "lost", "revoked"]
    session: Number


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """Who a device is and what it can run; `dropped_*` is what its outbox had no room for, since it was made."""

    device: str
    fleet: str
    session: Number
    agent: str
    board: str | None
    os: str | None
    arch: str
    runtimes: dict[str, str]
    sensors: tuple[str, ...] = ()
    dropped_traces: Number = 0
    dropped_records: Number = 0


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a device is doing now, for people to read; not kept anywhere."""

    session: Number
    doing: str


def encode(message: Receipt | State | Birth | Progress) -> bytes:
    """Return the message as JSON."""
    return msgspec.json.encode(message)


def decode_receipt(payload: bytes) -> Receipt:
    """Return the receipt in `payload`.

    Raises:
        ConfigError: it is none.
    """
    return _decode(payload, Receipt, "a receipt")


def decode_state(payload: bytes) -> State:
    """Return the state in `payload`.

    Raises:
        ConfigError: it is none.
    """
    return _decode(payload, State, "a device's state")


def decode_birth(payload: bytes) -> Birth:
    """Return the birth in `payload`.

    Raises:
        ConfigError: it is none.
    """
    return _decode(payload, Birth, "a device's birth")


def decode_progress(payload: bytes) -> Progress:
    """Return what a device says that it does.

    Raises:
        ConfigError: it is no such word.
    """
    return _decode(payload, Progress, "a device's progress")


def join(encoded: list[bytes]) -> bytes:
    """Return one payload of several encoded records: a JSON array, or the record itself when there is one."""
    return encoded[0] if len(encoded) == 1 else b"[" + b",".join(encoded) + b"]"


def split(payload: bytes) -> list[bytes]:
    """Return the encoded records of a payload, each as its own JSON text; what each holds is not checked here.

    Raises:
        ConfigError: the payload is a list, but not one of up to 10,000 objects that look like records.
    """
    if payload.lstrip()[:1] != b"[":
        return [payload]
    try:
        # Millions of empty elements would take a hundred times their text as texts of their own.
        if len(msgspec.json.decode(payload, type=list[_Outline])) > LONGEST_BATCH:
            message = f"not a batch of records: more than {LONGEST_BATCH}"
            raise ConfigError(message)
        return [bytes(raw) for raw in msgspec.json.decode(payload, type=list[msgspec.Raw])]
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        message = f"not a batch of records: {error}"
        raise ConfigError(message) from error


class _Outline(msgspec.Struct, frozen=True, gc=False):
    id: str


def _decode(payload: bytes, kind: type[_Message], what: str) -> _Message:
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        message = f"not {what}: {error}"
        raise ConfigError(message) from error
