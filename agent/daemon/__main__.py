"""The daemon's program, `python -m edgemeter.agent.daemon OPTIONS`: see `daemon`.

It blocks modules that its libraries import if they are present and that nothing here uses: 5 MB on a small board.
"""

import sys
from typing import Any

# `shutil` imports the first two for archives that are not used here. Of the last two, Python has the same built in: msgspec imports the
# one, hashlib the other, which brings OpenSSL.
UNUSED = ("bz2", "lzma", "typing_extensions", "_hashlib")


def main(options: str) -> int:
    """Run the daemon with `options` (JSON); return the exit status."""
    # None marks a module as absent.
    absent: Any = None
    for name in UNUSED:
        sys.modules.setdefault(name, absent)
    from edgemeter.agent.base import mqtt_session  # noqa: PLC0415 - after that

    if "mqtts:" not in options:
        mqtt_session.import_without_tls()
    from edgemeter.agent.daemon.daemon import run_daemon  # noqa: PLC0415 - after that

    return run_daemon(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
