"""The machine, by the kernel's files and a few commands. Tests replace it with a recorded tree."""

import os
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgemeter.agent.base.number_text import on_one_line

if TYPE_CHECKING:
    import subprocess

COMMAND_TIMEOUT_S = 5.0


def run_in_english(arguments: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Run a command for at most 5 s, with output in English, and return it.

    Raises OSError or TimeoutExpired.
    """
    import subprocess  # noqa: PLC0415 - most commands start no other

    return subprocess.run(
        arguments,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=COMMAND_TIMEOUT_S,
        env={**os.environ, "LC_ALL": "C"},
    )


def command_output(arguments: Sequence[str]) -> str | None:
    """Return the output of a command, or None if it is absent, fails, or takes longer than 5 s."""
    import subprocess  # noqa: PLC0415 - as above

    try:
        completed = run_in_english(arguments)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if completed.returncode else completed.stdout.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine to read.

    `root` has sys, proc, etc, dev and run; `output` runs a command and returns its output.

    Values that cannot be read are None, because absent hardware is not an error.
    """

    root: Path = Path("/")
    output: Callable[[Sequence[str]], str | None] = command_output
    arch: str = field(default_factory=platform.machine)

    def text(self, path: str | Path) -> str | None:
        """Return the text of a file below the root, without surrounding white space and NULs.

        None if it is empty or unreadable.
        """
        try:
            # Some drivers return EAGAIN while their part of the chip is off; a pipe or a device
            # must not block us.
            descriptor = os.open(self.root / path, os.O_RDONLY | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        try:
            parts = list(iter(lambda: os.read(descriptor, 1 << 16), b""))
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return b"".join(parts).decode(errors="replace").strip("\0 \t\r\n") or None

    def line(self, path: str | Path) -> str | None:
        """Return the text of a file as one line of printable characters."""
        return on_one_line(self.text(path) or "") or None

    def number(self, path: str | Path) -> int | None:
        """Return the integer in a file, None if there is none."""
        return whole_number(self.text(path))

    def find(self, pattern: str) -> list[Path]:
        """Return the paths below the root that match a glob pattern.

        They are relative to the root, in natural order.
        """
        try:
            paths = [path.relative_to(self.root) for path in self.root.glob(pattern)]
        except OSError:
            return []
        return sorted(
            paths,
            key=lambda path: [
                (part.isdigit(), part.zfill(20)) for part in re.split(r"(\d+)", str(path))
            ],
        )


THIS_MACHINE = Machine()


def recorded(root: Path, arch: str = "unknown") -> Machine:
    """Return the machine recorded below `root`; it has no commands."""
    return Machine(root.resolve(), lambda _: None, arch)


def whole_number(text: str | None, base: int = 10) -> int | None:
    try:
        return None if text is None else int(text, base)
    except ValueError:
        return None
