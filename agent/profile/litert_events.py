"""LiteRT's profiler, by the C interface of the library in the ai-edge-litert wheel: one event an operator, in whole us.

The Python interpreter offers no profiler, `litert-benchmark` neither; `libLiteRt.so` beside them does, for its CompiledModel. The plain
queries go through the interpreter, as `edgemeter run` measures them: same file, kernels and threads. Operators that XNNPACK took are named
for its kernels and come as durations without a start. Whole us: what takes less than one counts as 0, and of each about half a us is lost.
Tested with ai-edge-litert 2.3.0, x86_64.
"""

import math
import time
from collections.abc import Iterator, Sequence

from edgemeter.agent.engine.loading import Model
from edgemeter.agent.engine.suites import Case
from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.profile import litert_c
from edgemeter.agent.profile.litert_c import RawEvent
from edgemeter.agent.profile.profiler import Event
from edgemeter.agent.runtimes import Array

# Source: litert/c/litert_profiler_event.h, LiteRtProfilerEventType.
_OPERATOR, _DELEGATE_OPERATOR, _RUN = 1 << 1, 1 << 3, 1 << 4
_WARM_UP_QUERIES = 3


class LiteRtProfiler:
    """Runs the model as a compiled model with profiling on."""

    def __init__(self) -> None:
        self._compiled: litert_c.CompiledModel | None = None
        self._events: list[Event] = []

    def open(self, case: Case, model: Model) -> None:
        """Compile the model for the CPU, with the kernels that the plain queries ran on."""
        if model.loaded.package.startswith("tflite"):
            message = (
                f"{model.loaded.package} {model.loaded.version} brings no profiler: pip install 'ai-edge-litert>=2.3' where it can be had"
            )
            raise UnavailableError(message)
        inputs = {info.name: info for info in model.loaded.inputs}
        sizes = [math.prod(array.shape) * array.itemsize for array in model.runtime.outputs()]
        self._compiled = litert_c.CompiledModel(
            case.model, builtin=model.loaded.backend == "builtin", threads=case.threads, outputs_bytes=sizes
        )
        if len(inputs) != self._compiled.inputs:
            message = f"LiteRT's profiler sees {self._compiled.inputs} inputs, the interpreter {len(inputs)}: measure with `edgemeter run`"
            raise UnavailableError(message)

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        """Run the queries with the profiler on; what ran before is forgotten."""
        compiled = self._compiled
        if compiled is None or not inputs:
            return []
        if not self._events:
            for _ in range(_WARM_UP_QUERIES):
                compiled.bind(inputs[0])()
        compiled.start()
        durations = []
        for one in inputs:
            call = compiled.bind(one)
            begin = time.monotonic_ns()
            call()
            durations.append(time.monotonic_ns() - begin)
        self._events.extend(events(compiled.stop()))
        return durations

    def events(self) -> list[Event]:
        """Return what was seen."""
        return self._events


def events(raw: Sequence[RawEvent]) -> Iterator[Event]:
    """Yield the operators and inferences among the library's events; one without a start follows the one before it."""
    now_us = 0.0
    counts: dict[str, int] = {}
    for one in raw:
        if one.kind == _RUN:
            now_us, counts = float(one.start_us), {}
            yield Event(name="inference", type="inference", start_us=now_us, duration_us=one.elapsed_us, category="inference")
        elif one.kind in (_OPERATOR, _DELEGATE_OPERATOR):
            start_us = float(one.start_us) or now_us
            counts[one.tag] = counts.get(one.tag, 0) + 1
            yield Event(
                name=f"{one.tag} #{counts[one.tag]}", type=one.tag, start_us=start_us, duration_us=one.elapsed_us, laid_out=not one.start_us
            )
            now_us = start_us + one.elapsed_us
