"""The process that measures, started in a sandbox (`agent/sandbox`).

It takes one job on standard input, sends events on standard output, and does one run.

A fresh process per run keeps runs independent, makes cold starts cold, and turns a crash of a
native library into an error line. Its argument, where there is one, names the cores that it may
use: `2,3`.
"""

import time

STARTED_NS = time.monotonic_ns()

import os  # noqa: E402 - the clock is read before anything is imported
import sys  # noqa: E402

if __name__ == "__main__" and len(sys.argv) > 1:
    # Before any library starts threads, which inherit the affinity.
    os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))

import signal  # noqa: E402

import msgspec  # noqa: E402

from edgemeter.agent.energy.window import Window  # noqa: E402
from edgemeter.agent.engine import job  # noqa: E402


def main() -> int:
    """Measure the job on standard input and return the exit status.

    It is 0 when a `MeasuredRun` or `Failed` event was sent.
    """
    # Ctrl-C goes to the whole process group; the session handles it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    events, requests = job.take_stdout(), job.take_stdin()

    def emit(event: job.Event) -> None:
        events.write(job.encode(event) + b"\n")

    def meet(event: job.Encounter) -> Window:
        emit(event)
        return msgspec.json.decode(requests.readline(), type=Window)

    work = job.decode_job(requests.readline())
    try:
        # Imported here, because an unused import would take time and memory of the run.
        if work.is_untimed:
            from edgemeter.agent.engine.predictions import score_untimed  # noqa: PLC0415

            emit(score_untimed(work, emit))
        else:
            from edgemeter.agent.engine.measure import measure  # noqa: PLC0415

            emit(measure(work, STARTED_NS, emit, meet if work.meets else None))
    # This is the outer loop: the bare call, which nothing wraps, may raise anything.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        emit(job.failure(error, work.case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
