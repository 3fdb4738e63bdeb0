"""Whether a program has a file open, mapped, or named on its command line: what Linux tells of the processes that we may look at."""

import os
from pathlib import Path


def in_use(path: Path, proc: Path = Path("/proc")) -> bool:
    """Return whether a process other than this one uses `path`."""
    real = path.resolve()
    return any(_uses(process, real) for process in proc.glob("[0-9]*") if process.name != str(os.getpid()))


def _uses(process: Path, path: Path) -> bool:
    try:
        if os.fsencode(path) in process.joinpath("cmdline").read_bytes().split(b"\0"):
            return True
        if any(link.readlink() == path for link in process.joinpath("fd").iterdir()):
            return True
        # The last of a mapping's six columns is its file, blanks and all.
        return any(line.split(maxsplit=5)[-1:] == [str(path)] for line in process.joinpath("maps").read_text(errors="replace").splitlines())
    except OSError:
        # Gone meanwhile, or another user's.
        return False
