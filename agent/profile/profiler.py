"""Profilers: the protocol and the table of names; a profiler is one file here and one line in `PROFILERS`."""

import time
from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Protocol, cast

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.loading import LoadedModel
from edgemeter.agent.runtimes import Array

PROFILERS: Mapping[str, str] = {
    "litert": "edgemeter.agent.profile.litert_profiler:LiteRtProfiler",
    "onnx": "edgemeter.agent.profile.onnx_profiler:OnnxProfiler",
}
# Before the first recorded query.
WARM_UP_QUERIES = 3


class ProfileEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One operator that ran, or one inference around several; times in us by the profiler's own clock.

    `name` is the operator's in the model, `type` what it does; `thread` is None where the start is made up from durations.
    """

    name: str
    type: str
    start_us: float
    duration_us: float
    thread: int | None = None
    is_inference: bool = False


class Profiler(Protocol):
    """Runs a model under its runtime's profiler; in a process of its own, from one thread: made once, then record*, events.

    Made of the case, of its model, which runs beside it without the profiler, and of the inputs of a query for its own warm-up; raises
    UnavailableError where this build of the library has no profiler, or none for this backend.
    """

    def __init__(self, case: Case, model: LoadedModel, inputs: list[Array]) -> None: ...

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        """Run one query for each set of inputs under the profiler; return how long each took, ns by the monotonic clock."""

    def events(self) -> list[ProfileEvent]:
        """Return what the profiler saw of the recorded queries, and only of these."""


def inference(start_us: float, duration_us: float) -> ProfileEvent:
    """Return the event of one inference."""
    return ProfileEvent(name="inference", type="inference", start_us=start_us, duration_us=duration_us, is_inference=True)


def timed_calls(bind: Callable[[Sequence[Array]], Callable[[], object]], inputs: Sequence[list[Array]]) -> list[int]:
    """Run one query for each set of inputs and return how long each call took, ns."""
    durations = []
    for arrays in inputs:
        call = bind(arrays)
        begin = time.monotonic_ns()
        call()
        durations.append(time.monotonic_ns() - begin)
    return durations


def profiler_class(runtime: str) -> type[Profiler]:
    """Return the profiler of a runtime; raises UnavailableError if it has none here."""
    if runtime not in PROFILERS:
        raise UnavailableError(f"runtime {runtime!r} has no profiler here: use the runtime's own tools, or one of {', '.join(PROFILERS)}")
    return cast("type[Profiler]", resolve_name(PROFILERS[runtime]))
