"""Profilers: the protocol, the table of names, and the process that profiles, with its messages.

A profiler is one file here and one line in `PROFILERS`; a runtime without one has a line in `ABSENT` that names an alternative.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal, Protocol

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.confinement import grant_for
from edgemeter.agent.engine.isolation import ask
from edgemeter.agent.engine.loading import LoadedModel
from edgemeter.agent.runtimes import Array, Options, Runtime

PROFILERS: Mapping[str, str] = {
    "litert": "edgemeter.agent.profile.litert_profiler:LiteRtProfiler",
    "onnx": "edgemeter.agent.profile.onnx_profiler:OnnxProfiler",
    "pytorch": "edgemeter.agent.profile.torch_profiler:TorchProfiler",
    "executorch": "edgemeter.agent.profile.executorch_profiler:ExecuTorchProfiler",
}
ABSENT: Mapping[str, str] = {
    "edgetpu": "to LiteRT the whole Edge TPU program is one operator: profile the model before its compilation, with litert",
    "openvino": "use its own `benchmark_app -m MODEL -pc`",
    "ncnn": "its wheels are built without its layer timer: use `benchncnn` of a build with NCNN_BENCHMARK",
    "tensorrt": "use `trtexec --loadEngine=FILE --dumpProfile --separateProfileRun`",
    "hailo": "use `hailortcli run MODEL.hef measure-hw-only`, or the profiler of Hailo's Dataflow Compiler",
    "rknn": "use `eval_perf` of RKNN Toolkit2 on a connected board",
    "served": "use the server's own tools, such as Triton's trace; or profile the file itself",
    "python": "use the framework's own profiler, such as `torch.profiler` or `jax.profiler`",
    "replay": "a replay plays back recorded latencies and runs no operators: profile the recorded model",
}
# Before the first recorded query.
WARM_UP_QUERIES = 3


class ProfileEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One operator that ran, or one inference around several; times in us by the profiler's own clock.

    `name` is the operator's in the model, `type` what it does. `laid_out`: the profiler gave a duration only, the start is made up so that
    one follows the other.
    """

    name: str
    type: str
    start_us: float
    duration_us: float
    category: Literal["operator", "inference"] = "operator"
    thread: int = 0
    laid_out: bool = False


class Profiler(Protocol):
    """Runs a model under its runtime's profiler; used in a process of its own, from one thread: open, record*, events."""

    def open(self, case: Case, model: LoadedModel) -> None:
        """Make ready what runs under the profiler, beside `model`, which runs without.

        Raises:
            UnavailableError: this build of the library has no profiler, or not for this backend; the message names an alternative.
        """

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        """Run one query for each set of inputs under the profiler; return how long each took, ns by the monotonic clock."""

    def events(self) -> list[ProfileEvent]:
        """Return what the profiler saw of the recorded queries, and only of these."""


def inference(start_us: float, duration_us: float, thread: int = 0) -> ProfileEvent:
    """Return the event of one inference."""
    return ProfileEvent(name="inference", type="inference", start_us=start_us, duration_us=duration_us, category="inference", thread=thread)


class SecondProgram:
    """The profiler of a runtime that records from the beginning: a second program beside the plain one, of the same file and options."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_warm = False

    def open(self, case: Case, model: LoadedModel) -> None:
        """Load the second program."""
        del model
        self._runtime.load(Path(case.model), Options(threads=case.threads, backend=case.backend, extra=case.options))

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        """Run the queries, the first time after a short warm-up, whose events are skipped later."""
        if not self._is_warm:
            self._is_warm = True
            timed_calls(self._runtime.bind, [inputs[0]] * WARM_UP_QUERIES)
        return timed_calls(self._runtime.bind, inputs)


def timed_calls(bind: Callable[[Sequence[Array]], Callable[[], object]], inputs: Sequence[list[Array]]) -> list[int]:
    """Run one query for each set of inputs and return how long each call took, ns."""
    durations = []
    for arrays in inputs:
        call = bind(arrays)
        begin = time.monotonic_ns()
        call()
        durations.append(time.monotonic_ns() - begin)
    return durations


def create(runtime: str) -> Profiler:
    """Return the profiler of a runtime; raises UnavailableError if it has none."""
    if runtime not in PROFILERS:
        reason = ABSENT.get(runtime, f"use its own tools, or one of {', '.join(PROFILERS)}")
        raise UnavailableError(f"runtime {runtime!r} has no profiler here: {reason}")
    profiler: Profiler = resolve_name(PROFILERS[runtime])()
    return profiler


class ProfileJob(msgspec.Struct, frozen=True, kw_only=True):
    """One model to profile, and the number of queries."""

    case: Case
    queries: int


class ProfiledModel(msgspec.Struct, frozen=True, kw_only=True):
    """The profiled model: its file, by what, and on which data."""

    model: str
    runtime: str
    package: str
    version: str
    backend: str
    threads: int
    data: str


class RecordedProfile(ProfiledModel, frozen=True, kw_only=True, tag=True):
    """Wall time of each query without and with the profiler, taken in turns, and the profiler's events of the latter."""

    plain_ns: list[int]
    profiled_ns: list[int]
    events: list[ProfileEvent]


def profile_in_child(work: ProfileJob) -> RecordedProfile:
    """Profile a model in a process of its own; raises the EdgemeterError of that process, or MeasurementError if it crashed."""
    advice = f"the process that profiled {Path(work.case.model).name!r} on {work.case.runtime}", "measure it with `edgemeter run` instead"
    return ask("edgemeter.agent.profile.worker", [], msgspec.json.encode(work), RecordedProfile, grant_for(work.case), advice)
