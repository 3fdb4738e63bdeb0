"""Messages between the fleet's server and a device.

Orders, reports on them, content by its hash, and which of two versions is newer.
"""

import re
from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.types import Count
from edgemeter.agent.contract.messages import decode_message, decoder_of

JobId = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}\Z")]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
# A plain file name without a folder and without characters that are special to a shell or a
# terminal.
FILE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
FileName = Annotated[str, msgspec.Meta(pattern=FILE_NAME)]
Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9][A-Za-z0-9.+]{0,63}\Z")]
Reason = Annotated[str, msgspec.Meta(max_length=2000)]
TimeOfDay = Annotated[str, msgspec.Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]\Z")]
IntervalSeconds = Annotated[int, msgspec.Meta(ge=60, le=31 * 86_400)]
LARGEST_ORDER_BYTES = 64 << 10
# A report's text has up to 200,000 characters, each escaped as six at most.
LARGEST_JOB_REPORT_BYTES = 2 << 20
# Images of one data set, as one archive: the default limit of content on a device.
LARGEST_DATA_BYTES = 2048 << 20


class Content(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file by its hash; `name` is its display name, never its location."""

    sha256: Sha256
    size_bytes: Count
    name: FileName


class Data(Content, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Photographs with their ground truth, as one archive; see `data_archive`."""

    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_DATA_BYTES)]


class Measure(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag="measure",
):
    """Measure a suite.

    Its cases name models by the `name` of one of `models`, and photographs by that of one of
    `data`.

    With `at`, the device measures it each day at that local time, with `every_s` at once and then
    at that interval, until it is cancelled.
    """

    suite: Content
    models: tuple[Content, ...] = ()
    data: tuple[Data, ...] = ()
    at: TimeOfDay | None = None
    every_s: IntervalSeconds | None = None

    @property
    def repeats(self) -> bool:
        """Whether the device repeats it by itself."""
        return self.at is not None or self.every_s is not None

    @property
    def contents(self) -> tuple[Content, ...]:
        """All that has to be fetched first."""
        return (self.suite, *self.models, *self.data)


class Update(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="update"):
    """Install a signed release.

    An older one, or one that failed here before, only if `even_if` allows it.
    """

    version: Version
    bundle: Content
    even_if: tuple[Literal["older", "bad"], ...] = ()


class Doctor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="doctor"):
    """Examine yourself and report."""


class Logs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="logs"):
    """Report the last lines that the agent logged."""

    lines: Annotated[int, msgspec.Meta(ge=1, le=2000)] = 200


class Restart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="restart"):
    """Restart the agent or the whole board, never during a run."""

    what: Literal["agent", "board"] = "agent"


class Cancel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="cancel"):
    """Give up the job of this order, whatever it was, and repeat it no more.

    The run in progress is ended and publishes nothing.
    """


Work: TypeAlias = Measure | Update | Doctor | Logs | Restart | Cancel


def contents_of(work: Work) -> tuple[Content, ...]:
    """Return the contents that a piece of work refers to."""
    if isinstance(work, Measure):
        return work.contents
    return (work.bundle,) if isinstance(work, Update) else ()


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One execution of one job by one device.

    `version` is that of the execution as the server holds it; each report names the one it expects,
    and each accepted report adds 1. An order that comes again, with the same `attempt`, is answered
    from the device's journal and not done again.
    """

    job: JobId
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    version: Count
    work: Work
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=604_800)]


# repeating: the device measures it by itself, again and again.
JobState: TypeAlias = Literal[
    "accepted", "rejected", "running", "repeating", "done", "failed", "timed_out", "cancelled"
]
FINAL = frozenset({"rejected", "done", "failed", "timed_out", "cancelled"})


class ExecutionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an execution on the device.

    Sent again until the server's next order or acknowledgement names a later version.

    `text` is a doctor's report or log lines.
    """

    job: JobId
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    expected_version: Count
    state: JobState
    session: Count
    reason: Reason | None = None
    runs: tuple[str, ...] = ()
    text: Annotated[str, msgspec.Meta(max_length=200_000)] | None = None


class ReportReceipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server's word, on `command` too, that it holds the execution.

    It holds it at this version and in this state. A report of another state was not taken, unless
    the execution has ended for the server: it is sent again and expects this version.
    """

    noted: JobId
    attempt: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    version: Count
    state: JobState | None = None


encode_order: Callable[[Order | ExecutionReport | ReportReceipt], bytes] = msgspec.json.encode


def decode_command(payload: bytes) -> Order | ReportReceipt:
    """Return a message of the server on `command`.

    Raises:
        ConfigError: it is neither, has an unknown field, a path or anything else that an order may
            not hold.
    """
    if payload.startswith(b'{"noted"'):
        return decode_message(payload, ReportReceipt, "an acknowledgement", LARGEST_ORDER_BYTES)
    return decode_message(payload, Order, "an order", LARGEST_ORDER_BYTES)


decode_report = decoder_of(ExecutionReport, "a report", LARGEST_JOB_REPORT_BYTES)


# Source: PEP 440, without epochs, which are never published here.
_VERSION_FORM = re.compile(
    r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+[A-Za-z0-9.]+)?"
)
_VERSION_STAGES = {"a": 0, "b": 1, "rc": 2, None: 3}


def version_key(version: str) -> tuple[tuple[int, ...], int, int, int, float]:
    """Return the key by which versions are compared; a local part (`+...`) does not count.

    Raises ConfigError if it is not a version.
    """
    if (parts := _VERSION_FORM.fullmatch(version)) is None:
        raise ConfigError(f"{version!r} is not a version that can be compared: write it like 1.2.3")
    numbers, stage, stage_number, post, dev = parts.groups()
    release = [int(number) for number in numbers.split(".")]
    while release and release[-1] == 0:
        release.pop()
    rank = -1 if dev is not None and stage is None and post is None else _VERSION_STAGES[stage]
    return (
        tuple(release),
        rank,
        int(stage_number or 0),
        -1 if post is None else int(post),
        float("inf") if dev is None else int(dev),
    )
