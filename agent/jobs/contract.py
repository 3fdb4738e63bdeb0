"""What travels between the fleet's server and a device: orders, reports on them, and content by its hash.

An order names things by hash and by name; it never carries code, a path or shell text. Whatever is unknown in it refuses all of it.

    server -> device   .../command   an Order, QoS 1
    device -> server   .../job       a Report, QoS 1
    device -> server   .../want      a Want, QoS 0: a piece of content, please
    server -> device   .../content   a Chunk: one line of JSON, then the bytes
"""

from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from edgemeter.agent.delivery.messages import Number
from edgemeter.agent.errors import ConfigError

JobId = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}\Z")]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
# A plain file name: no folder, nothing that a shell or a terminal reads as anything else.
FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")]
Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9][A-Za-z0-9.+]{0,63}\Z")]
Reason = Annotated[str, msgspec.Meta(max_length=2000)]
LARGEST_ORDER_BYTES = 64 << 10
LARGEST_CHUNK_BYTES = 256 << 10
# Photographs of one data set, as one archive: what a device keeps of content where its configuration says nothing else.
LARGEST_DATA_BYTES = 2048 << 20

_Part = TypeVar("_Part")


class Content(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file by its hash; `name` is what it is called where a name is needed, never where it is put."""

    sha256: Sha256
    size_bytes: Number
    name: FileName


class Data(Content, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Photographs with their ground truth, as one archive; see `data_archive`."""

    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_DATA_BYTES)]


# What has its default is left out: an agent that does not know `data` yet takes an order without.
class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag="measure"):
    """Measure a suite, whose cases name models by the `name` of one of `models`, and photographs by that of one of `data`."""

    suite: Content
    models: tuple[Content, ...] = ()
    cool_down_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    data: tuple[Data, ...] = ()

    @property
    def contents(self) -> tuple[Content, ...]:
        """All that has to be fetched first."""
        return (self.suite, *self.models, *self.data)


class Golden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="golden"):
    """Measure the model that ships with the agent, by which a board is held against its own past."""

    discard_first: bool = False


class Update(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="update"):
    """Go to a release: a signed bundle; an older one, or one that failed here before, only where `even_if` says so."""

    version: Version
    bundle: Content
    even_if: tuple[Literal["older", "bad"], ...] = ()


class Doctor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="doctor"):
    """Examine yourself and report."""


class Logs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="logs"):
    """Report the last lines that the agent logged."""

    lines: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 200


class Restart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="restart"):
    """Start the agent anew, or the whole board; never during a run."""

    what: Literal["agent", "board"] = "agent"


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="schedule"):
    """Measure a suite by yourself from now on, whenever `cron` (five fields, local time) says; an empty `cron` ends the schedule `name`."""

    name: JobId
    cron: Annotated[str, msgspec.Meta(max_length=200)]
    work: Measure | Golden


class Cancel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="cancel"):
    """Give up the job of this order, whatever it was; the run in progress is ended and publishes nothing."""


Work: TypeAlias = Measure | Golden | Update | Doctor | Logs | Restart | Schedule | Cancel


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One execution of one job by one device.

    `version` is that of the execution as the server holds it; each report names the one it expects, and each accepted report adds 1.
    An order that comes again, with the same `attempt`, is answered from the device's journal and not done again.
    """

    job: JobId
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    version: Number
    work: Work
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=604_800)]


State: TypeAlias = Literal["accepted", "rejected", "running", "done", "failed", "timed_out", "cancelled"]
FINAL = frozenset({"rejected", "done", "failed", "timed_out", "cancelled"})


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How an execution stands on the device; sent again until the server's next order or acknowledgement names a later version.

    `figures` are the golden run's: `latency_p50_ms`, `energy_net_mj`, ...; `text` a doctor's report or log lines.
    """

    job: JobId
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    expected_version: Number
    state: State
    session: Number
    reason: Reason | None = None
    done_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    runs: tuple[str, ...] = ()
    figures: dict[str, float] = {}
    text: Annotated[str, msgspec.Meta(max_length=200_000)] | None = None


class Noted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server's word, on `command` too, that it holds the execution at this version and in this state.

    A report of another state was not taken, unless the execution has ended for the server: it is sent again and expects this version.
    """

    noted: JobId
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    version: Number
    state: State | None = None


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """A device's wish for `length` bytes of a content from `offset` on."""

    sha256: Sha256
    offset: Number
    length: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_CHUNK_BYTES)]


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """The head of one piece of content; `size_bytes` is that of the whole, None when the server has no such content."""

    sha256: Sha256
    offset: Number
    size_bytes: Number | None


def encode(message: Order | Report | Noted | Want) -> bytes:
    """Return the message as JSON."""
    return msgspec.json.encode(message)


def decode_command(payload: bytes) -> Order | Noted:
    """Return what a server said on `command`.

    Raises:
        ConfigError: it is neither, has an unknown field, a path or anything else that an order may not hold.
    """
    if len(payload) > LARGEST_ORDER_BYTES:
        message = f"not an order: {len(payload)} bytes, at most {LARGEST_ORDER_BYTES}"
        raise ConfigError(message)
    if payload.startswith(b'{"noted"'):
        return _decode(payload, Noted, "an acknowledgement")
    return _decode(payload, Order, "an order")


def decode_report(payload: bytes) -> Report:
    """Return the report in `payload`.

    Raises:
        ConfigError: it is none.
    """
    return _decode(payload, Report, "a report")


def decode_want(payload: bytes) -> Want:
    """Return the wish in `payload`.

    Raises:
        ConfigError: it is none.
    """
    return _decode(payload, Want, "a wish for content")


def join_chunk(head: Chunk, piece: bytes) -> bytes:
    """Return the payload that carries `piece`."""
    return msgspec.json.encode(head) + b"\n" + piece


def split_chunk(payload: bytes) -> tuple[Chunk, bytes]:
    """Return the head and the bytes of a piece of content.

    Raises:
        ConfigError: it is none.
    """
    head, _, piece = payload.partition(b"\n")
    return _decode(head, Chunk, "a piece of content"), piece


def _decode(payload: bytes, kind: type[_Part], what: str) -> _Part:
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        message = f"not {what}: {error}"
        raise ConfigError(message) from error
