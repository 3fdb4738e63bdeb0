"""The machine as the kernel's files and a few commands describe it. A recorded tree stands in for it in tests."""

import os
import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

COMMAND_TIMEOUT_S = 5.0


def run_in_english(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Return a command that has ended within 5 s, its output in English; raises OSError or TimeoutExpired, whatever its exit status."""
    env = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(arguments, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT_S, env=env)


def command_output(arguments: Sequence[str]) -> str | None:
    """Return what the command prints, or None where it is absent, fails, or takes longer than 5 s."""
    try:
        completed = run_in_english(arguments)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if completed.returncode else completed.stdout.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where to read: `root` holds sys, proc, etc, dev and run; `output` runs a command and returns what it printed.

    Whatever cannot be read is None: absent hardware is not an error.
    """

    root: Path = Path("/")
    output: Callable[[Sequence[str]], str | None] = command_output
    arch: str = field(default_factory=platform.machine)

    def text(self, path: str | Path) -> str | None:
        """Return what the file below the root holds, without surrounding white space and NULs; None where it is empty or cannot be read."""
        try:
            # Some drivers return EAGAIN while their part of the chip is off; a pipe or a device must not block us.
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
        """Return what the file holds as one line of printable characters: a name or a word."""
        text = self.text(path) or ""
        return " ".join("".join(char if char.isprintable() else " " for char in text).split()) or None

    def number(self, path: str | Path) -> int | None:
        """Return the whole number that the file holds, None where it holds none."""
        return whole_number(self.text(path))

    def find(self, pattern: str) -> list[Path]:
        """Return the paths below the root that match a glob pattern, relative to the root, numbers in counting order."""
        try:
            paths = [path.relative_to(self.root) for path in self.root.glob(pattern)]
        except OSError:
            return []
        return sorted(paths, key=lambda path: [(part.isdigit(), part.zfill(20)) for part in re.split(r"(\d+)", str(path))])


THIS_MACHINE = Machine()


def recorded(root: Path, arch: str = "unknown") -> Machine:
    """Return the machine whose files were recorded below `root`; it has no commands."""
    return Machine(root.resolve(), lambda _: None, arch)


def whole_number(text: str | None, base: int = 10) -> int | None:
    """Return the whole number that `text` is, or None."""
    try:
        return None if text is None else int(text, base)
    except ValueError:
        return None
