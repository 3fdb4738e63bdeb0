"""Profilers: what a runtime's own profiler saw. The protocol, and the table of names.

A profiler is one file here and one line in `PROFILERS`; a runtime without one has a line in `ABSENT` that says what to use instead.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Literal, Protocol

import msgspec

from edgemeter.agent.engine.loading import Model
from edgemeter.agent.engine.suites import Case
from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.runtimes import Array

PROFILERS: Mapping[str, str] = {
    "litert": "edgemeter.agent.profile.litert_events:LiteRtProfiler",
    "onnx": "edgemeter.agent.profile.onnx_events:OnnxProfiler",
    "pytorch": "edgemeter.agent.profile.torch_events:TorchProfiler",
}
ABSENT: Mapping[str, str] = {
    "edgetpu": "what the Edge TPU does is one operator to LiteRT: profile the model before it was compiled, with litert",
    "openvino": "use its own `benchmark_app -m MODEL -pc`",
    "ncnn": "its wheels are built without its layer timer: use `benchncnn` of a build with NCNN_BENCHMARK",
    "tensorrt": "use `trtexec --loadEngine=FILE --dumpProfile --separateProfileRun`",
    "replay": "a replay plays recorded latencies back and runs no operators: profile the model that was recorded",
}


class Event(msgspec.Struct, frozen=True, kw_only=True):
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

    def open(self, case: Case, model: Model) -> None:
        """Make ready what runs under the profiler, beside `model`, which runs without.

        Raises:
            UnavailableError: this build of the library has no profiler, or not for this backend; says what to use instead.
        """
        ...

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        """Run one query for each set of inputs under the profiler; return how long each took, ns by the monotonic clock."""
        ...

    def events(self) -> list[Event]:
        """Return what the profiler saw of the recorded queries, and only of these."""
        ...


def create(runtime: str) -> Profiler:
    """Return the profiler of a runtime.

    Raises:
        UnavailableError: it has none.
    """
    if runtime in PROFILERS:
        module, _, attribute = PROFILERS[runtime].partition(":")
        profiler: Profiler = getattr(import_module(module), attribute)()
        return profiler
    reason = ABSENT.get(runtime, f"edgemeter reads no profiler of it: use its own tools, or one of {', '.join(PROFILERS)}")
    message = f"runtime {runtime!r} has no profile: {reason}"
    raise UnavailableError(message)
