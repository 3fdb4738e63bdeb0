"""The wall clock of other processes, stepped from here (`stepped/sitecustomize.py` reads it)."""

import os
import struct
from pathlib import Path

STEPPED = Path(__file__).parent / "stepped"


class Clock:
    """One clock; processes started with `environment` follow it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.step(0)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that a process needs to follow the clock."""
        path = os.pathsep.join(filter(None, [str(STEPPED), os.environ.get("PYTHONPATH")]))
        return {"EDGEMETER_TEST_CLOCK": str(self._path), "PYTHONPATH": path}

    def step(self, ns: int) -> None:
        """Be off by so much from now on."""
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.write(struct.pack("<q", ns))
