"""The process that profiles: one job on standard input, one answer on standard output. A crash of a native library ends only it."""

import os
import signal
import sys

from edgemeter.agent.errors import EdgemeterError
from edgemeter.agent.profile import job, record


def main() -> int:
    """Profile the job on standard input and return the exit status: 0 when an answer was written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Native libraries print to standard output; it carries the answer only.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    work = job.decode_job(sys.stdin.buffer.read())
    answer: job.Recorded | job.Failed
    try:
        answer = record.record(work)
    except EdgemeterError as error:
        answer = job.Failed(kind=type(error).__name__, message=str(error))
    except Exception as error:  # noqa: BLE001 - the outer loop: a runtime may raise anything from inside the bare call, which nothing wraps
        message = f"{work.case.runtime} failed on {work.case.model!r}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        answer = job.Failed(kind="MeasurementError", message=message)
    with answers:
        answers.write(job.encode(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
