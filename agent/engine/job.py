"""What passes between the session and the process that measures: a job in, events out, one JSON text a line."""

from typing import Literal

import msgspec

from edgemeter.agent import records
from edgemeter.agent.engine.suites import Case


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run to measure. `spawned_ns` is the monotonic clock just before the process was started."""

    case: Case
    sha256: str
    size_bytes: int
    seed: int
    accuracy: bool
    agreement: bool = False
    corrupt: bool = False
    # Only the accuracy is wanted: nothing is timed, the answer is `Scored`.
    is_untimed: bool = False
    idle: bool
    spawned_ns: int


class Phase(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The run has come to its next part; `seconds` is how long it will take, where that is known."""

    name: Literal["cool-down", "load", "prepare", "warm-up", "idle before", "timed", "idle after", "accuracy", "corruption", "agreement"]
    seconds: float | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How far the accuracy pass is, or that over corrupted photographs."""

    done: int
    total: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The run ended without a number; `kind` names the class of the error."""

    kind: str
    message: str


class Window(msgspec.Struct, frozen=True):
    """A stretch of the monotonic clock."""

    start_ns: int
    end_ns: int


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What the measuring process found: the parts of the record that only it can know, and when what happened."""

    model: records.Model
    runtime: records.Runtime
    precision: str
    inputs: tuple[records.Tensor, ...]
    outputs: tuple[records.Tensor, ...]
    dataset: records.Dataset
    latency: records.Latency
    throughput_per_s: float
    preprocess: records.Stage | None
    postprocess: records.Stage | None
    cold_start: records.ColdStart
    warm_up: records.WarmUp
    memory: records.Memory
    accuracy: records.Accuracy | None
    accuracy_reason: str | None
    output_check: records.OutputCheck
    answers: records.Answers | None = None
    agreement: records.Agreement | None = None
    agreement_reason: str | None = None
    accuracy_gate: records.AccuracyGate | None = None
    samples: tuple[records.Series, ...]
    timed: Window
    idle_before: Window | None
    idle_after: Window | None
    # Latencies of the first, middle and last third of the timed part: the verdict looks for drift.
    thirds_p50_ms: tuple[float, ...]
    guesses: tuple[str, ...]
    scheduling: records.Scheduling | None = None
    batch: int = 1
    load: records.Load | None = None
    cpus: tuple[int, ...] | None = None


class Scored(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a job found that was not timed; `accuracy` is null where the ground truth holds nothing to find."""

    accuracy: records.Accuracy | None
    images: int
    subset: records.Subset | None
    notes: tuple[str, ...]
    runtime: records.Runtime
    outputs: tuple[records.Tensor, ...]
    answers: records.Answers | None


Event = Phase | Progress | Failed | Measured | Scored
encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(Event).decode
decode_job = msgspec.json.Decoder(Job).decode
