"""One run in a fresh process: start it, follow its events, and turn a crash into an error that names its cause."""

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

from edgemeter.agent.base import errors
from edgemeter.agent.engine import job

Follow = Callable[[job.Event, int], None]
_KINDS = {kind.__name__: kind for kind in (errors.ConfigError, errors.UnavailableError, errors.TransientError, errors.MeasurementError)}
LAST_LINE = 300


def run_isolated(work: job.RunJob, follow: Follow) -> job.MeasuredRun:
    """Measure `work` in a process of its own; `follow(event, pid)` is called with every event as it comes.

    Raises:
        EdgemeterError: what the run ended with; MeasurementError when the process died.
    """
    event = _run(work, follow)
    if not isinstance(event, job.MeasuredRun):
        raise errors.MeasurementError(f"the process that was to time {work.case.model!r} only scored it: is_untimed was set")
    return event


def score_isolated(work: job.RunJob, follow: Follow) -> job.Scored:
    """Score the job's model in a separate process, without timing it; otherwise like `run`.

    Raises:
        EdgemeterError: what it ended with; MeasurementError when the process died.
    """
    event = _run(msgspec.structs.replace(work, is_untimed=True), follow)
    if not isinstance(event, job.Scored):
        raise errors.MeasurementError(f"the process that was to score {work.case.model!r} timed it")
    return event


def _run(work: job.RunJob, follow: Follow) -> job.MeasuredRun | job.Scored:
    phase: str | None = None

    def noted(event: job.Event, pid: int) -> None:
        nonlocal phase
        phase = event.name if isinstance(event, job.Phase) else phase
        follow(event, pid)

    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgemeter.agent.engine.worker", *([",".join(map(str, work.case.cpus))] if work.case.cpus else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            # The working directory must not shadow a library: it may hold a numpy.py.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        try:
            event = _follow(process, msgspec.structs.replace(work, spawned_ns=time.monotonic_ns()), noted)
            process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if event is None:
            raise _crash(work, process.returncode, stderr, is_loading=phase == "load")
        return event


def _follow(process: subprocess.Popen[bytes], work: job.RunJob, follow: Follow) -> job.MeasuredRun | job.Scored | None:
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
            raise error_of(event.kind, event.message)
        if isinstance(event, (job.MeasuredRun, job.Scored)):
            return event
    return None


def _crash(work: job.RunJob, status: int, stderr: IO[bytes], *, is_loading: bool) -> errors.MeasurementError:
    stderr.seek(0)
    output = last_line(stderr.read(), "; its last output: ")
    advice = {
        -signal.SIGKILL: "; the kernel kills processes when memory runs out: see `dmesg`, or use a smaller model",
        -signal.SIGILL: "; this build of the runtime uses instructions that the CPU lacks: install another version",
    }.get(status, "")
    if is_loading and status < 0:
        # Libraries abort on files that they do not understand.
        advice = advice or "; the file may be garbled: fetch or export it again"
        text = (
            f"the runtime {work.case.runtime} crashed (signal {-status}, {signal.Signals(-status).name}) while loading {work.case.model!r}"
        )
        return errors.MeasurementError(f"{text}{advice}{output}")
    text = f"the process that ran {Path(work.case.model).name!r} on {work.case.runtime}"
    return errors.MeasurementError(f"{text} {ending(status)}{advice}{output}")


def error_of(kind: str, message: str) -> errors.EdgemeterError:
    """Return the error that a child process reported; `kind` names its class."""
    return _KINDS.get(kind, errors.MeasurementError)(message)


def ending(status: int) -> str:
    """Return how a process ended, in words."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def last_line(output: bytes, before: str = "") -> str:
    """Return the last line of an output after `before`, at most 300 characters; empty where there is none."""
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return f"{before}{lines[-1].strip()[:LAST_LINE]}" if lines else ""
