"""The daemon's program, `python -m edgemeter.agent.daemon OPTIONS`: see `daemon`.

It blocks modules that its libraries import if they are present and that nothing here uses: 0.7 MB
on a small board.
"""

import sys
from typing import Any

# `shutil` imports the first two for archives that are not used here, msgspec the third although
# Python has the same built in.
UNUSED = ("bz2", "lzma", "typing_extensions")


def main(options: str) -> int:
    """Run the daemon with `options` (JSON); return the exit status."""
    # None marks a module as absent.
    absent: Any = None
    for name in UNUSED:
        sys.modules.setdefault(name, absent)
    from edgemeter.agent.daemon.daemon import run_daemon  # noqa: PLC0415 - after that

    return run_daemon(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
