"""`python -m tests.benchmarks.timed_blocks RUNTIME MODEL`: for each number of queries read, a line with p50 and mean CPU time in ns.

It is the peer of itself in a sandbox: the same process, once with and once without it, takes turns on one core.
"""

import os
import statistics
import sys
from pathlib import Path
from time import monotonic_ns, process_time_ns

from edgemeter.agent import runtimes
from edgemeter.agent.runtimes import noise


def main(runtime_name: str, model: str) -> None:
    """Load the model on one thread of the last core, and time what is asked for until the input ends."""
    print(monotonic_ns(), flush=True)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    runtime = runtimes.create(runtime_name)
    inputs = noise.inputs(runtime.load(Path(model), runtimes.Options(threads=1, backend=None, extra={})), 0)
    invoke = runtime.bind(inputs[0])
    for line in sys.stdin:
        durations, spent_ns = [], process_time_ns()
        for _ in range(int(line)):
            start = monotonic_ns()
            invoke()
            durations.append(monotonic_ns() - start)
        print(statistics.median(durations), (process_time_ns() - spent_ns) / len(durations), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
