"""Messages between the session and the process that measures.

A job goes in, events come out, one JSON text per line.
"""

import os
import resource
import sys
from collections.abc import Callable
from typing import BinaryIO, Literal, TypeVar

import msgspec

from edgemeter.agent.base.errors import EdgemeterError, one_line
from edgemeter.agent.base.types import Count, Positive
from edgemeter.agent.contract.model_card import Guess
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.record import Series
from edgemeter.agent.contract.record_accuracy import Accuracy, OutputCheck
from edgemeter.agent.contract.record_conditions import DatasetInfo, Model, RuntimeInfo, Tensor
from edgemeter.agent.contract.record_figures import (
    ColdStart,
    Latency,
    Load,
    Memory,
    Stage,
    Steady,
    Together,
    WarmUp,
)
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.energy.window import Window
from edgemeter.agent.sandbox.user_code import raised

# Runs at a fixed frame rate have a curve over time from this length on.
SHORTEST_CURVE_S = 60.0
Request = TypeVar("Request")
encode = msgspec.json.Encoder().encode
# Runtime and backend of a function that is measured in its caller's process; every other run has a
# process of its own.
FUNCTION_RUNTIME, IN_PROCESS = PYTHON, "in-process"


NO_PREDICTIONS = msgspec.Raw(b"null")


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Plausibility of the outputs of the accuracy pass, regardless of whether they are right.

    Fields are null where no detector was run.
    """

    inputs: Count  # Inputs of the pass.
    alike: Count  # Inputs that differ from the first but have the same output, bit by bit.
    not_finite: Count  # Inputs whose output holds NaN or infinity.
    objects: Count | None = None  # Objects in the ground truth.
    found: Count | None = None  # Boxes above the model card's threshold.
    highest_score: float | None = None  # Highest score of a box.
    distinct_scores: Count | None = None  # Number of different scores.
    boxed: Count | None = None  # Photographs with boxes that count.
    without_extent: Count | None = None  # Those of them whose best boxes have no extent.


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """How the kernel scheduled the measured process while queries were timed.

    All its threads are counted together.
    """

    window_ms: float  # Length of the timed part in ms.
    ran_ms: float | None = None  # CPU time in ms.
    # Time in ms in which a thread that did not end was ready to run and no core was free.
    waited_ms: float | None = None
    cores: Positive = 1  # Number of cores the process may use.


class OutputTensor(msgspec.Struct, frozen=True, kw_only=True):
    """One output of the model, with its affine quantisation.

    The quantisation is real = scale x (q - zero_point); null where it has none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


class RunJob(msgspec.Struct, frozen=True, kw_only=True):
    """One run to measure; `spawned_ns` is the monotonic clock just before the process was started.

    With `idle` the run idles before and after the timed part, unless that is clearly shorter than
    `energy_from_s`, so that no sensor would give an energy. With `pauses` a closed loop of such a
    run has random pauses.
    """

    case: Case
    sha256: str
    size_bytes: int
    seed: int
    accuracy: bool
    # Whether it is timed at the same time as other runs (`Encounter`).
    meets: bool = False
    # Whether only the accuracy is wanted; then the answer is `Scored`.
    is_untimed: bool = False
    idle: bool
    pauses: bool = False
    energy_from_s: float = 0.0
    spawned_ns: int


class Phase(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The next part of the run begins; `seconds` is its expected duration, if known."""

    name: Literal[
        "quiet moment",
        "start",
        "settle",
        "load",
        "prepare",
        "warm-up",
        "idle before",
        "timed",
        "idle after",
        "accuracy",
    ]
    seconds: float | None = None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Progress of the accuracy pass, in items."""

    done: int
    total: int


class Encounter(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A run waits for the others that are timed at the same time.

    The reply on standard input is a `Window`.

    It is sent three times: when the model is loaded (the window means nothing); when the run is
    warm, with the least time to be timed and the time that its queries would take alone (the window
    is when all are to be timed); and with the window in which the run was `timed` (the window is
    when all of them were timed).
    """

    seconds: float = 0.0
    queries_s: float = 0.0
    timed: Window | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The run failed; `kind` names the class of the error."""

    kind: str
    message: str


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The result of the measuring process.

    It has its parts of the record, and the times of the parts of the run.
    """

    model: Model
    runtime: RuntimeInfo
    precision: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[OutputTensor, ...]
    dataset: DatasetInfo
    latency: Latency
    throughput_per_s: float
    preprocess: Stage | None = None
    postprocess: Stage | None = None
    cold_start: ColdStart
    warm_up: WarmUp
    memory: Memory
    # At the beginning, one third, two thirds and the end of the timed part; may be empty.
    memory_thirds_mb: tuple[float, ...] = ()
    # Python modules without bytecode, which every cold start compiles.
    compiled_modules: int | None = None
    accuracy: Accuracy | None = None
    reasons: dict[str, str] = {}
    output_check: OutputCheck
    answers: Answers | None = None
    predictions: msgspec.Raw = NO_PREDICTIONS  # COCO results as JSON, if asked for.
    samples: tuple[Series, ...]
    timed: Window
    idle_before: Window | None
    idle_after: Window | None
    guesses: tuple[Guess, ...] = ()
    scheduling: Scheduling | None = None
    batch: int = 1
    load: Load | None = None
    steady: Steady | None = None
    together: Together | None = None
    generation: Generation | None = None
    cpus: tuple[int, ...] | None = None

    @property
    def is_long_schedule(self) -> bool:
        """Whether the run had a fixed frame rate for long enough to have a curve over time."""
        return self.steady is not None and self.timed.length_ns >= SHORTEST_CURVE_S * 1e9


NOTHING_TO_FIND = (
    "the ground truth has nothing to find (no objects, or crowds only), so there is no accuracy"
)


class Scored(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The result of a job that was not timed.

    `accuracy` is null if the ground truth has no objects.
    """

    accuracy: Accuracy | None
    accuracy_reason: str | None = None
    images: int
    drawn_from: int | None = None
    notes: tuple[str, ...]
    runtime: RuntimeInfo
    outputs: tuple[OutputTensor, ...]
    answers: Answers | None


Event = Encounter | Phase | RunProgress | Failed | MeasuredRun | Scored
Meet = Callable[[Encounter], Window]
decode_event = msgspec.json.Decoder(Event).decode
decode_job = msgspec.json.Decoder(RunJob).decode


def take_stdout() -> BinaryIO:
    """Return standard output for messages.

    From now on, prints of native libraries go to standard error.
    """
    messages = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return messages


def take_stdin() -> BinaryIO:
    """Return standard input for messages; code that asks a user for input finds it closed."""
    messages = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return messages


def answer_one(
    kind: type[Request],
    work: Callable[[Request], msgspec.Struct],
    failed: Callable[[BaseException, Request], Failed],
) -> None:
    """Handle the one request on standard input.

    The answer, or the return value of `failed`, goes to standard output.
    """
    output = take_stdout()
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
    try:
        answer = work(request)
    # This is the outer loop: a runtime may raise anything from inside the bare call, which nothing
    # wraps.
    except Exception as error:  # noqa: BLE001
        answer = failed(error, request)
    with output:
        output.write(encode(answer))


def is_code(case: Case) -> bool:
    """Return whether the user's code is measured: a factory, or a runtime in a file."""
    return case.runtime == PYTHON or bool(case.plugin_files)


def failure(error: BaseException, case: Case) -> Failed:
    """Return the message about an error that ended a run of `case`."""
    if isinstance(error, EdgemeterError):
        return Failed(kind=type(error).__name__, message=str(error))
    words = raised(error) if is_code(case) else f"{type(error).__name__}: {one_line(error)}"
    message = f"{case.runtime} failed on {case.model!r}: {words}"
    if isinstance(error, MemoryError):
        limit_bytes = resource.getrlimit(resource.RLIMIT_DATA)[0]
        may = (
            ""
            if limit_bytes == resource.RLIM_INFINITY
            else f"a run may take {limit_bytes / 1e9:.3g} GB on this machine: "
        )
        message = f"out of memory while measuring {case.model!r}: {may}use a smaller model"
    return Failed(kind="MeasurementError", message=message)
