"""Profilers: the protocol and the table of names.

A profiler is one file here and one line in `PROFILERS`.
"""

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
    """One run of an operator, or one inference around several.

    Times are in us by the profiler's own clock. `name` is the operator's in the model; `thread` is
    None if the start is derived from durations.
    """

    name: str
    type: str
    start_us: float
    duration_us: float
    thread: int | None = None
    is_inference: bool = False


class Profiler(Protocol):
    """Runs a model under its runtime's profiler, in its own process and from one thread.

    The calls come in this order: made once, then record*, events. `model` runs beside it without
    the profiler; `inputs`, of one query, are for the warm-up. Raises UnavailableError if this build
    of the library has no profiler, or none for this backend.
    """

    def __init__(self, case: Case, model: LoadedModel, inputs: list[Array]) -> None: ...

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        """Run one query per set of inputs under the profiler, and return their durations.

        The durations are in ns by the monotonic clock.
        """

    def events(self) -> list[ProfileEvent]:
        """Return the events of the recorded queries only."""


def inference(start_us: float, duration_us: float) -> ProfileEvent:
    return ProfileEvent(
        name="inference",
        type="inference",
        start_us=start_us,
        duration_us=duration_us,
        is_inference=True,
    )


def timed_calls(
    bind: Callable[[Sequence[Array]], Callable[[], object]], inputs: Sequence[list[Array]]
) -> list[int]:
    """Run one query per set of inputs and return their durations, ns."""
    durations = []
    for arrays in inputs:
        call = bind(arrays)
        begin = time.monotonic_ns()
        call()
        durations.append(time.monotonic_ns() - begin)
    return durations


def profiler_class(runtime: str) -> type[Profiler]:
    """Return the profiler of a runtime; raises UnavailableError if there is none."""
    if runtime not in PROFILERS:
        raise UnavailableError(
            f"runtime {runtime!r} has no profiler here: use the runtime's own tools, or one of "
            f"{', '.join(PROFILERS)}"
        )
    return cast("type[Profiler]", resolve_name(PROFILERS[runtime]))
