"""The progress, the document and the end of a session, for the commands that measure."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING

import click
import msgspec

from edgemeter.agent.base.cli.notes import is_quiet, passing_note
from edgemeter.agent.base.errors import FAILED, EdgemeterError, TransientError, UnavailableError

if TYPE_CHECKING:
    from edgemeter.agent.measuring.measure_suite import SessionOutcome
    from edgemeter.agent.session.session import OnEvent


@contextmanager
def session_progress() -> Iterator["OnEvent"]:
    """Yield a handler that shows the progress of a session on standard error.

    It shows nothing if the command was given `--quiet`.
    """
    if is_quiet():
        yield lambda _: None
        return
    with passing_note("checking models, data and sensors ..."):
        # Imports take long on a small board.
        from edgemeter.agent.measuring.session_progress import SessionProgress

    with SessionProgress() as progress:
        yield progress


def session_document(outcome: "SessionOutcome") -> bytes:
    """Return the records of a session as JSON.

    A sweep of power modes has its answer too.
    """
    from edgemeter.agent.contract.mode_answer import mode_answers

    document: dict[str, object] = {"runs": outcome.records}
    if of_modes := mode_answers(outcome.records):
        document["answer"] = of_modes
    return msgspec.json.encode(document)


def end_session(outcome: "SessionOutcome") -> None:
    """Print the errors of a session whose results are shown, and exit accordingly."""
    for message, times in Counter(map(str, outcome.errors)).items():
        click.echo(f"edgemeter: {message}{f' ({times} times)' if times > 1 else ''}", err=True)
    if outcome.interruption is not None:
        raise outcome.interruption
    if outcome.undelivered:
        raise TransientError(outcome.undelivered)
    if outcome.errors:
        sys.exit(FAILED)


def write_document(path: Path, document: bytes, errors: list[EdgemeterError]) -> None:
    """Write the document to a file, atomically; a failure is added to `errors`."""
    from edgemeter.agent.base.durable_file import replacing

    try:
        if path.is_symlink() or (
            path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))
        ):
            # Standard output, a pipe, or a file that cannot be replaced.
            path.write_bytes(document + b"\n")
            return
        with replacing(path, S_IMODE(path.stat().st_mode) if path.exists() else 0o644) as file:
            file.write(document + b"\n")
    except OSError as error:
        remedy = "make room there, or use another file (--output)"
        errors.append(
            UnavailableError(
                f"cannot write the results to {str(path)!r} ({error.strerror}): {remedy}"
            )
        )
