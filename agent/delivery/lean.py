"""The program of the agent that stays, without what its libraries take along if they can and nothing here uses: 0.7 MB on a small board.

`python -m edgemeter.agent.delivery.lean ORDERS`: see `resident`.
"""

import sys
from typing import Any

# `shutil` takes the first two for archives that nobody unpacks here, msgspec the third for what Python has by itself.
UNUSED = ("bz2", "lzma", "typing_extensions")


def main(orders: str) -> int:
    """Stay as `orders` says; return the exit status."""
    # None is how Python is told that a module is absent.
    absent: Any = None
    for name in UNUSED:
        sys.modules.setdefault(name, absent)
    from edgemeter.agent.delivery import resident  # noqa: PLC0415 - after that

    return resident.main(orders)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
