"""Profiles in a process of its own, and turns its death into an error that says what died and why."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from edgemeter.agent import errors
from edgemeter.agent.profile import job

_KINDS = {kind.__name__: kind for kind in (errors.ConfigError, errors.UnavailableError, errors.TransientError, errors.MeasurementError)}
LAST_WORDS = 300


def profile(work: job.Job) -> job.Recorded:
    """Return what a profiler saw of a model.

    Raises:
        EdgemeterError: what it ended with; MeasurementError when the process died.
    """
    done = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.profile.worker"],
        input=job.encode(work),
        capture_output=True,
        check=False,
        # The working directory must not shadow a library: somebody's folder may hold a numpy.py.
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    try:
        answer: job.Recorded | job.Failed = job.decode_answer(done.stdout)
    except msgspec.MsgspecError as error:
        raise errors.MeasurementError(_obituary(work, done)) from error
    if isinstance(answer, job.Failed):
        raise _KINDS.get(answer.kind, errors.MeasurementError)(answer.message)
    return answer


def _obituary(work: job.Job, done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    said = f"; its last words: {lines[-1][:LAST_WORDS]}" if lines else ""
    ended = f"was killed by {signal.Signals(-done.returncode).name}" if done.returncode < 0 else f"ended with status {done.returncode}"
    name = Path(work.case.model).name
    return f"the process that profiled {name!r} on {work.case.runtime} {ended}: measure it with `edgemeter run` instead{said}"
