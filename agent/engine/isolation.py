"""One run in a fresh process: start it, follow its events, and turn its death into an error that says what died and why."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from edgemeter.agent import errors
from edgemeter.agent.engine import job

Follow = Callable[[job.Event, int], None]
_KINDS = {kind.__name__: kind for kind in (errors.ConfigError, errors.UnavailableError, errors.TransientError, errors.MeasurementError)}
LAST_WORDS = 300


def run(work: job.Job, follow: Follow) -> job.Measured:
    """Measure `work` in a process of its own; `follow(event, pid)` is called with every event as it comes.

    Raises:
        EdgemeterError: what the run ended with; MeasurementError when the process died.
    """
    found = _run(work, follow)
    if not isinstance(found, job.Measured):
        message = f"the process that was to time {work.case.model!r} only scored it: is_untimed was set"
        raise errors.MeasurementError(message)
    return found


def score(work: job.Job, follow: Follow) -> job.Scored:
    """Score the job's model in a process of its own, without timing it; for the rest as `run`.

    Raises:
        EdgemeterError: what it ended with; MeasurementError when the process died.
    """
    found = _run(msgspec.structs.replace(work, is_untimed=True), follow)
    if not isinstance(found, job.Scored):
        message = f"the process that was to score {work.case.model!r} timed it"
        raise errors.MeasurementError(message)
    return found


def _run(work: job.Job, follow: Follow) -> job.Measured | job.Scored:
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgemeter.agent.engine.worker", *([",".join(map(str, work.case.cpus))] if work.case.cpus else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            # The working directory must not shadow a library: somebody's folder may hold a numpy.py.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        try:
            found = _follow(process, msgspec.structs.replace(work, spawned_ns=time.monotonic_ns()), follow)
            process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if found is None:
            raise errors.MeasurementError(_obituary(work, process.returncode, stderr))
        return found


def _follow(process: subprocess.Popen[bytes], work: job.Job, follow: Follow) -> job.Measured | job.Scored | None:
    if process.stdin is None or process.stdout is None:
        return None
    try:
        process.stdin.write(job.encode(work))
        process.stdin.close()
    except BrokenPipeError:
        return None
    for line in process.stdout:
        event = job.decode_event(line)
        follow(event, process.pid)
        if isinstance(event, job.Failed):
            raise _KINDS.get(event.kind, errors.MeasurementError)(event.message)
        if isinstance(event, (job.Measured, job.Scored)):
            return event
    return None


def _obituary(work: job.Job, status: int | None, stderr: IO[bytes]) -> str:
    """Return one line on how the process ended: the signal or status, and the last line that it printed."""
    stderr.seek(0)
    lines = [line for line in stderr.read().decode(errors="replace").splitlines() if line.strip()]
    said = f"; its last words: {lines[-1].strip()[:LAST_WORDS]}" if lines else ""
    ended = f"was killed by {signal.Signals(-status).name}" if status is not None and status < 0 else f"ended with status {status}"
    advice = {
        -signal.SIGKILL: "; the kernel kills when memory runs out: see `dmesg`, use a smaller model",
        -signal.SIGILL: "; this build of the runtime uses instructions that the CPU lacks: install another version",
    }.get(status or 0, "")
    name = Path(work.case.model).name
    return f"the process that ran {name!r} on {work.case.runtime} {ended}{advice}{said}"
