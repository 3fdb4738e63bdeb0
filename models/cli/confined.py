"""Runs a command of this package again in a sandbox.

There, libraries open other people's files, and write only where the user allowed.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.cli.notes import warn
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.sandbox.bubblewrap import (
    SandboxGrant,
    SandboxProcess,
    is_narrow,
    is_started,
    no_sandbox,
    started,
)

# Programs that a conversion may start, outside the system's folders.
PROGRAMS = ("edgetpu_compiler", "trtexec")


def run_confined(source: Path, read: Iterable[Path | None], out: Path, *, is_trusted: bool) -> None:
    """Run this command in a sandbox that may write `out`, and exit with its status.

    It reads the file `source`.

    Returns in the sandbox, and if the command does not have the process to itself (a test, a
    program that calls it). Without a sandbox, only a source that `is_trusted` is converted.

    Raises:
        ConfigError: `out` is a home folder or a parent of one, which would be open as a whole.
        UnavailableError: there is no sandbox, and the source is not trusted.
    """
    context = click.get_current_context()
    if is_started() or context.find_root().obj != "process":
        return
    # A model of the catalogue is passed by its path: the sandbox has no catalogue.
    words = [str(source) if word == context.params["source"] else word for word in sys.argv[1:]]
    with confined(words, read, out, is_trusted=is_trusted) as process:
        interrupts.wait(process)
    sys.exit(process.status if process.status >= 0 else 1)


@contextmanager
def confined(
    words: Sequence[str],
    read: Iterable[Path | None],
    out: Path,
    *,
    is_trusted: bool,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Iterator[SandboxProcess]:
    """Yield `edgemeter WORDS`, running in a sandbox that ends with the block.

    It may read `read` and write the folder `out`.

    Raises:
        ConfigError: `out` is a home folder or a parent of one, which would be open as a whole.
        UnavailableError: there is no sandbox, and the source is not trusted.
    """
    if gap := no_sandbox():
        if not is_trusted:
            raise UnavailableError(
                f"no sandbox, because {gap.reason}: {gap.remedy}, or convert a model that you "
                "trust with --trusted"
            )
        warn(f"edgemeter: no sandbox, because {gap.reason}: {gap.remedy}")
    if not is_narrow(out.resolve()):
        raise ConfigError(
            f"--output {str(out)!r} would open that whole folder to the converters: give one for "
            "the files, --output converted"
        )
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    programs = (Path(path) for name in PROGRAMS if (path := shutil.which(name)))
    grant = SandboxGrant(read=(*filter(None, read), *programs), write=(out,))
    try:
        with started(
            "edgemeter.agent.cli",
            words,
            grant,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        ) as process:
            yield process
    finally:
        if is_new:
            with suppress(OSError):
                # Only if nothing was written.
                out.rmdir()
