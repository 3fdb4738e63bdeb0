"""One run in a fresh process, whose events are followed.

A crash becomes an error that names its cause.
"""

import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from edgemeter.agent.base import errors, interrupts
from edgemeter.agent.base.number_text import count
from edgemeter.agent.contract.model_formats import SERVED
from edgemeter.agent.engine import job
from edgemeter.agent.sandbox import bubblewrap
from edgemeter.agent.sandbox.run_grant import grant_for

logger = logging.getLogger(__name__)
Follow = Callable[[job.Event, int], None]
_Answer = TypeVar("_Answer")
_KINDS = {
    kind.__name__: kind
    for kind in (
        errors.ConfigError,
        errors.UnavailableError,
        errors.TransientError,
        errors.MeasurementError,
    )
}
LAST_LINE = 300
# An event with its samples is much shorter; a process that sends more is not to be trusted.
LONGEST_EVENT = 1 << 30
_LAST_BYTES = 1 << 16
# A part of a run may take this long beyond its plan: compilers take minutes, but a user's code or a
# driver may never return.
OVERTIME_S = 600.0
BYTECODE_S = 120.0


def run_isolated(work: job.RunJob, follow: Follow, meet: job.Meet | None = None) -> job.MeasuredRun:
    """Measure `work` in a process of its own; `follow(event, pid)` is called with every event.

    `meet` replies to a run that is timed at the same time as others, and may wait for them.

    Raises:
        EdgemeterError: the run failed; MeasurementError if the process died.
    """
    grant = grant_for(work.case)
    run = _run(work, grant, follow, job.MeasuredRun, meet)
    if run.compiled_modules and not os.environ.get("PYTHONDONTWRITEBYTECODE"):
        _write_bytecode(work.case.runtime)
    facts = {}
    if note := bubblewrap.note_of(grant):
        _warn_of(f"sandbox: {note}; `edgemeter doctor` has the remedy")
        facts["sandbox"] = note
    if grant.links:
        facts["links"] = f"{len(grant.links)} followed out of their folders"
    if not facts:
        return run
    return msgspec.structs.replace(
        run, runtime=msgspec.structs.replace(run.runtime, facts={**run.runtime.facts, **facts})
    )


def score_isolated(work: job.RunJob, follow: Follow) -> job.Scored:
    """Score the job's model in a separate process, without timing it; otherwise like `run`.

    Raises:
        EdgemeterError: it failed; MeasurementError if the process died.
    """
    return _run(
        msgspec.structs.replace(work, is_untimed=True), grant_for(work.case), follow, job.Scored
    )


def ask(
    module: str,
    arguments: Sequence[str],
    request: bytes,
    answers: type[_Answer],
    grant: bubblewrap.SandboxGrant,
    advice: tuple[str, str],
    limit_s: float = math.inf,
) -> _Answer:
    """Return the one answer of `python -m MODULE ARGUMENTS`, which runs in the sandbox.

    The process reads `request`.

    `advice` names the process, and the remedy for a crash. Raises the EdgemeterError that the
    process reports, MeasurementError, or TransientError after `limit_s`.
    """
    pipe = subprocess.PIPE
    with bubblewrap.started(
        module, arguments, grant, None, stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        try:
            output, stderr = interrupts.communicate(process, request, limit_s)
        except subprocess.TimeoutExpired as error:
            raise errors.TransientError(f"{advice[0]} did not answer in {limit_s:g} s") from error
    try:
        answer: _Answer | job.Failed = msgspec.json.decode(output, type=answers | job.Failed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MeasurementError(
            f"{advice[0]} {ending(process.status)}: {advice[1]}"
            f"{last_line(stderr, '; its last output: ')}"
        ) from error
    if isinstance(answer, job.Failed):
        raise error_of(answer.kind, answer.message)
    return answer


def _run(
    work: job.RunJob,
    grant: bubblewrap.SandboxGrant,
    follow: Follow,
    answers: type[_Answer],
    meet: job.Meet | None = None,
) -> _Answer:
    if grant.links:
        _warn_of(
            f"{count(len(grant.links), 'link')} followed out of the folders of model and data "
            f"(first {str(grant.links[0])!r})"
        )
    cpus = [",".join(map(str, work.case.cpus))] if work.case.cpus else []
    with bubblewrap.scratch_folder() as scratch, tempfile.TemporaryFile() as stderr:
        with bubblewrap.started(
            "edgemeter.agent.engine.worker",
            cpus,
            grant,
            scratch,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr.fileno(),
        ) as process:
            work = msgspec.structs.replace(work, spawned_ns=process.spawned_ns)
            limit = _TimeLimit(process)
            try:
                event = _follow(process, work, follow, meet, limit)
            finally:
                limit.pause()
            if limit.is_exceeded:
                raise limit.error(work)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
        if event is None:
            raise _crash(work, process.status, stderr, is_loading=limit.part == "load")
        if not isinstance(event, answers):
            raise errors.MeasurementError(
                f"the process that ran {work.case.model!r} answered another request: do not "
                "trust this model"
            )
        return event


class _TimeLimit:
    """Ends a process that sends nothing for too long.

    The limit is `OVERTIME_S` after the planned end of the current part of its run.
    """

    def __init__(self, process: bubblewrap.SandboxProcess) -> None:
        self.part: str | None = None
        self.is_exceeded = False
        self._process = process
        self._begun_s = time.monotonic()
        self._planned_s = 0.0
        self._timer = threading.Timer(0.0, self._end)

    def restart(self, event: job.Event | None) -> None:
        """Restart the clock after this event (None: before the first).

        By its limit the process has to send the next.
        """
        self._planned_s = 0.0
        if isinstance(event, job.Phase):
            self.part, self._planned_s = event.name, event.seconds or 0.0
        self._timer = threading.Timer(self._planned_s + OVERTIME_S, self._end)
        self._timer.daemon = True
        self._timer.start()

    def pause(self) -> None:
        """Stop the clock until the next restart."""
        self._timer.cancel()

    def _end(self) -> None:
        self.is_exceeded = True
        self._process.kill()

    def error(self, work: job.RunJob) -> errors.MeasurementError:
        """Return why the run was ended."""
        part = self.part or "load"
        planned = f", of which {self._planned_s:.3g} s were planned" if self._planned_s else ""
        advice = "use a smaller model or another backend"
        if work.case.runtime in {SERVED, "server"}:
            advice = "see the server's log, or start it again"
        elif job.is_code(work.case):
            advice = (
                f"let {'the code and its first call' if part == 'load' else 'each call'} return"
            )
        took_s, limit_s = time.monotonic() - self._begun_s, self._planned_s + OVERTIME_S
        return errors.MeasurementError(
            f"{work.case.model!r} was ended after {took_s:.0f} s: its part {part!r} took longer "
            f"than its limit of {limit_s:.0f} s"
            f"{planned}: {advice}"
        )


@cache
def _write_bytecode(runtime: str) -> None:
    """Let Python write the missing bytecode of a run, so that later cold starts find it.

    Failures are ignored.
    """
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "edgemeter.agent.engine.bytecode", runtime],
            capture_output=True,
            check=False,
            timeout=BYTECODE_S,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )


def _follow(
    process: bubblewrap.SandboxProcess,
    work: job.RunJob,
    follow: Follow,
    meet: job.Meet | None,
    limit: _TimeLimit,
) -> job.MeasuredRun | job.Scored | None:
    if process.stdin is None or process.stdout is None:
        return None
    try:
        _send(process.stdin, job.encode(work))
        limit.restart(None)
        pid = None
        for line in interrupts.lines(process.stdout, LONGEST_EVENT):
            limit.pause()
            event = job.decode_event(line)
            pid = pid or process.inner_pid
            if isinstance(event, job.Encounter) and meet is not None:
                _send(process.stdin, job.encode(meet(event)))
            else:
                follow(event, pid)
                if isinstance(event, job.Failed):
                    raise error_of(event.kind, event.message)
                if isinstance(event, job.MeasuredRun | job.Scored):
                    return event
            limit.restart(event)
    except BrokenPipeError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise errors.MeasurementError(
            f"the process that ran {work.case.model!r} sent an invalid message ({error}): do not "
            "trust this model"
        ) from error
    return None


@cache
def _warn_of(note: str) -> None:
    """Warn once of an incomplete sandbox, or of links that were followed."""
    logger.warning("%s", note)


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(message + b"\n")
    pipe.flush()


def _crash(
    work: job.RunJob, status: int, stderr: IO[bytes], *, is_loading: bool
) -> errors.MeasurementError:
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _LAST_BYTES))
    output = last_line(stderr.read(), "; its last output: ")
    is_signal = status < 0
    if status == -signal.SIGKILL:
        advice = (
            "the kernel kills processes when memory runs out: see `dmesg`, or use a smaller model"
        )
    elif status == -signal.SIGILL:
        advice = (
            "this build of the runtime uses instructions that the CPU lacks: "
            "install another version"
        )
    elif job.is_code(work.case):
        advice = "correct the code, or the library that it calls"
    elif is_loading and is_signal:
        # Libraries abort on invalid files.
        advice = "the file may be garbled: fetch or export it again"
    else:
        advice = "install another version of the runtime, or use another backend"
    text = (
        f"the process that ran {Path(work.case.model).name!r} on {work.case.runtime} "
        f"{ending(status)}"
    )
    if is_loading and is_signal:
        text = (
            f"the runtime {work.case.runtime} crashed (signal {-status}, "
            f"{signal.Signals(-status).name}) while loading {work.case.model!r}"
        )
    return errors.MeasurementError(f"{text}; {advice}{output}")


def error_of(kind: str, message: str) -> errors.EdgemeterError:
    """Return the error that a child process reported; `kind` names its class."""
    return _KINDS.get(kind, errors.MeasurementError)(message)


def ending(status: int) -> str:
    """Return how a process ended, in words."""
    return (
        f"was killed by {signal.Signals(-status).name}"
        if status < 0
        else f"ended with status {status}"
    )


def last_line(output: bytes, before: str = "") -> str:
    """Return the last line of an output after `before`, at most 300 characters.

    Empty if there is none.
    """
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return f"{before}{lines[-1].strip()[:LAST_LINE]}" if lines else ""
