"""The system under test of the loop benchmarks: one loaded model, and p50 of a block of its queries, by our loop and by a bare one.

Both are fed in the same way outside the clock, so that caches are in the same state: what is left is what our loop adds to the call.
Blocks of two loops take turns in one process: between processes p50 moves by 1%, and no number of rounds that anybody waits for
tells 0.2% through that.
"""

import statistics
import time
from array import array
from pathlib import Path
from typing import Any

from edgemeter.agent import runtimes
from edgemeter.agent.engine.scenarios import closed_loop
from edgemeter.agent.engine.scenarios.timing import TimingPlan, TimingSubject, no_collection
from edgemeter.agent.runtimes import noise


class Loops:
    """One model on one thread of LiteRT; a block is so many queries."""

    def __init__(self, model: Path, queries: int) -> None:
        self._queries = queries
        self._runtime: Any = runtimes.create("litert")
        self._inputs = noise.inputs(self._runtime.load(model, runtimes.Options(threads=1, backend=None, extra={})), 0)
        self._subject = TimingSubject(self._runtime.bind, self._runtime.outputs, self._inputs)
        self.invoke = self._runtime.bind(self._inputs[0])
        for loop in (self.ours_ms, self.bare_ms) * 3:
            loop()

    def ours_ms(self) -> float:
        """Return p50 of a block that our own single_stream timed."""
        plan = TimingPlan(queries=self._queries, seconds=0, expected_ns=1, seed=1)
        return statistics.median(closed_loop.run_single_stream(self._subject, plan).latency_ns.tolist()) / 1e6

    def bare_ms(self) -> float:
        """Return p50 of a block in a loop of nothing but LiteRT's set_tensor, two clock reads and its invoke."""
        interpreter, clock, queries = self._runtime._interpreter, time.monotonic_ns, self._queries
        index, set_tensor, invoke = interpreter.get_input_details()[0]["index"], interpreter.set_tensor, interpreter.invoke
        arrays = [array for (array,) in self._inputs]
        durations = array("q", bytes(8 * queries))
        with no_collection():
            for query in range(queries):
                set_tensor(index, arrays[query % len(arrays)])
                start = clock()
                invoke()
                durations[query] = clock() - start
        return statistics.median(durations) / 1e6

    def close(self) -> None:
        """Let the model go."""
        self._runtime.close()
