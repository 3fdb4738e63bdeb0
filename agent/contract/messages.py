"""Messages over MQTT.

Topics (`edgemeter/v1/<fleet>/<device>/<kind>`), and all messages but records and orders (receipt,
birth, state, activity, progress).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar, get_args

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.nanoseconds import NS_PER_HOUR
from edgemeter.agent.base.types import Count, Hex, TimeNs

TopicKind = Literal[
    "birth", "state", "result", "receipt", "command", "activity", "progress", "job", "health",
]  # fmt: skip
TOPIC_ROOT = "edgemeter/v1"
# Retained, and the Will of each collector.
COLLECTOR_STATE = "edgemeter/collector/{collector}/state"
EVERY_COLLECTOR_STATE = COLLECTOR_STATE.format(collector="+")
COLLECTOR_STATE_S = 30.0
# A run with the accuracy on all images may take this long on a small board; later nobody knows
# whether it goes on.
ACTIVITY_STALE_NS = NS_PER_HOUR
# Retained, from the fleet's service.
JOB_STATE = "edgemeter/job/{job}/state"
EVERY_JOB_STATE = JOB_STATE.format(job="+")


def topics_of(kind: TopicKind) -> str:
    """Return the topics of a kind, of all devices, to subscribe to."""
    return f"{TOPIC_ROOT}/+/+/{kind}"


@dataclass(frozen=True, slots=True)
class Topic:
    """The parts of a topic."""

    fleet: str
    device: str
    kind: TopicKind

    def __str__(self) -> str:
        return f"{TOPIC_ROOT}/{self.fleet}/{self.device}/{self.kind}"


def parse_topic(text: str) -> Topic:
    """Return the parts of a topic; raises ConfigError if it is not one of ours."""
    parts = text.split("/")
    if (
        len(parts) == 5
        and "/".join(parts[:2]) == TOPIC_ROOT
        and parts[4] in get_args(TopicKind)
        and all(parts)
    ):
        kind: TopicKind = parts[4]  # type: ignore[assignment]
        return Topic(parts[2], parts[3], kind)
    raise ConfigError(f"{text!r} is not a topic of ours ({TOPIC_ROOT}/<fleet>/<device>/<kind>)")


LONGEST_BATCH = 10_000
LARGEST_REPORT_BYTES = 64 << 10  # A birth of a board with everything has a few kB.
_Message = TypeVar("_Message")


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ranges of sequence numbers of a session that a collector has committed.

    Both ends are included.

    `received_ns` is the time of arrival (UTC), if the device's clock cannot be right.
    """

    session: Count
    held: tuple[tuple[Count, Count], ...]
    received_ns: TimeNs | None = None


class AgainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A collector's request, also on `receipt`, for records that it needs again.

    They are the records that the device put into its outbox since `since_ns`.

    It is retained, so an offline device answers later. Each random id `again` is answered once.
    """

    again: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16,64}\Z")]
    since_ns: TimeNs = 0


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a device is online; `session` distinguishes its current session from earlier ones.

    The broker publishes `lost`, the device's will. The operator publishes `revoked` for a removed
    device. `challenge` is a random number that orders have to repeat; null if the process takes no
    orders.
    """

    state: Literal["online", "offline", "lost", "revoked"]
    session: Count
    challenge: Hex | None = None


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a device and what it can run.

    `dropped_*` counts what its outbox had no space for.
    """

    device: str
    fleet: str
    session: Count
    agent: str
    board: str | None
    os: str | None
    arch: str
    runtimes: dict[str, str]
    sensors: tuple[str, ...] = ()
    dropped_traces: Count = 0
    dropped_records: Count = 0


ShortText = Annotated[str, msgspec.Meta(max_length=300)]


class CollectorState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a collector receives results; repeated every `COLLECTOR_STATE_S`.

    Devices that flood it are named once, not retained.
    """

    state: Literal["online", "offline"]
    flooding: tuple[ShortText, ...] = ()


class Measuring(msgspec.Struct, frozen=True, kw_only=True):
    """The current run.

    Number `run` (from 1) of the `runs` of its suite, of which `failed` gave no result.

    `job` is the job that ordered it, null if it was started by hand.
    """

    suite: ShortText
    case: ShortText
    run: Count
    runs: Count
    failed: Count = 0
    job: ShortText | None = None

    @property
    def text(self) -> str:
        failed = f", {self.failed} failed before" if self.failed else ""
        job = f", job {self.job}" if self.job else ""
        return f"{self.case}: run {self.run:,} of {self.runs:,} of suite {self.suite}{failed}{job}"


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The current measurement of a device, or null.

    Sent before each run and after the last, never while a query is timed.

    It has no time: the time of receipt counts. The measurement is also over once `state` is not
    `online`, or names another `session`.
    """

    session: Count
    measuring: Measuring | None = None

    def current(
        self, received_ns: int, state: str | None, session: int | None, since_ns: int | None
    ) -> Measuring | None:
        """Return the current measurement, None once it is over.

        It is over if the device is offline, or another process started after this report.

        `state` (None: not reported) holds for `session` since `since_ns`. `edgemeter run` beside
        the agent reports under a session of its own, while the state is the agent's, from before.
        """
        if state is None:
            return self.measuring
        is_followed = session != self.session and since_ns is not None and since_ns > received_ns
        return self.measuring if state == "online" and not is_followed else None


class ExecutionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a device with its part of a job.

    `note` is the current step, or why it ended.
    """

    fleet: ShortText
    device: ShortText
    state: ShortText
    done_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    note: ShortText | None = None


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a job: the number of executions by state, and the current `wave` (from 1).

    `failed` includes rejections and time-outs. `executions` lists some that run or failed. Retained
    until a day after its end.
    """

    job: ShortText
    title: ShortText
    state: Literal["running", "paused", "stopped", "done", "cancelled"]
    reason: Annotated[str, msgspec.Meta(max_length=2000)] | None = None
    wave: Count
    waves: Count
    done: Count
    failed: Count
    cancelled: Count = 0
    running: Count
    repeating: Count = 0
    waiting: Count
    executions: tuple[ExecutionProgress, ...] = ()

    @property
    def total(self) -> int:
        return (
            self.done + self.failed + self.cancelled + self.running + self.repeating + self.waiting
        )

    @property
    def is_current(self) -> bool:
        """Whether a device carries it out, or is about to.

        A job that was stopped or paused still ends the part in flight.
        """
        return self.running > 0 or (self.state == "running" and self.waiting > 0)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The current work of a device in words, and the share of its order that is done."""

    session: Count
    doing: str
    done_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


def decode_message(
    payload: bytes, kind: type[_Message], title: str, largest_bytes: int | None = None
) -> _Message:
    """Return the message in `payload`; `title` names it in errors.

    Raises:
        ConfigError: it is longer than `largest_bytes`, or not such a message.
    """
    if largest_bytes is not None and len(payload) > largest_bytes:
        raise ConfigError(f"not {title}: {len(payload)} bytes, at most {largest_bytes}")
    try:
        return decode_json(payload, kind)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"not {title}: {error}") from error


Message = (
    Receipt
    | AgainRequest
    | DeviceState
    | Birth
    | Activity
    | JobProgress
    | Progress
    | CollectorState
)
encode_message: Callable[[Message], bytes] = msgspec.json.encode


def decoder_of(
    kind: type[_Message], title: str, largest_bytes: int | None = LARGEST_REPORT_BYTES
) -> Callable[[bytes], _Message]:
    """Return the function that decodes messages of one kind.

    It raises as `decode_message`; `largest_bytes` is None for any length.
    """
    return lambda payload: decode_message(payload, kind, title, largest_bytes)


decode_receipt = decoder_of(Receipt, "a receipt", None)
_decode_again_request = decoder_of(AgainRequest, "a request for records")
decode_state = decoder_of(DeviceState, "a device's state")
decode_birth = decoder_of(Birth, "a device's birth")
decode_collector_state = decoder_of(CollectorState, "a collector's state")
decode_activity = decoder_of(Activity, "a device's activity")
decode_job_progress = decoder_of(JobProgress, "a job's progress")
decode_progress = decoder_of(Progress, "a device's progress")


def decode_from_collector(payload: bytes) -> Receipt | AgainRequest:
    """Return what a collector sends on `receipt`; raises as `decode_message`."""
    return (
        _decode_again_request(payload)
        if payload.startswith(b'{"again"')
        else decode_receipt(payload)
    )


def join_records(encoded: list[bytes]) -> bytes:
    """Return one payload of several encoded records.

    It is a JSON array, or the record itself when there is one.
    """
    return encoded[0] if len(encoded) == 1 else b"[" + b",".join(encoded) + b"]"
