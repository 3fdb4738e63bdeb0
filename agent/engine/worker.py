"""The process that measures: one job on standard input, events on standard output, one run, and gone.

A fresh process per run keeps runs independent, makes cold starts cold, and turns a crash of a native library into an error line.
Its argument, where there is one, names the cores that it is kept to: `2,3`.
"""

import time

STARTED_NS = time.monotonic_ns()

import os  # noqa: E402 - the clock is read before anything is imported
import sys  # noqa: E402

if __name__ == "__main__" and len(sys.argv) > 1:
    # Before any library makes threads: they take over the cores that this one may use.
    os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))

import signal  # noqa: E402

from edgemeter.agent.engine import job, measure  # noqa: E402
from edgemeter.agent.engine.answers import score  # noqa: E402
from edgemeter.agent.errors import EdgemeterError  # noqa: E402


def main() -> int:
    """Measure the job on standard input and return the exit status: 0 when a `Measured` or `Failed` event was sent."""
    # Ctrl-C goes to the whole process group; the session decides what happens then, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Native libraries print to standard output; it carries events only.
    events = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def emit(event: job.Event) -> None:
        events.write(job.encode(event) + b"\n")

    work = job.decode_job(sys.stdin.buffer.read())
    try:
        emit(score.score(work, emit) if work.is_untimed else measure.measure(work, STARTED_NS, emit))
    except EdgemeterError as error:
        emit(job.Failed(kind=type(error).__name__, message=str(error)))
    except MemoryError:
        emit(job.Failed(kind="MeasurementError", message=f"out of memory while measuring {work.case.model!r}: use a smaller model"))
    except Exception as error:  # noqa: BLE001 - the outer loop: a runtime may raise anything from inside the bare call, which nothing wraps
        message = f"{work.case.runtime} failed on {work.case.model!r}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        emit(job.Failed(kind="MeasurementError", message=message))
    return 0


if __name__ == "__main__":
    sys.exit(main())
