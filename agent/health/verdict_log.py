"""The verdicts of the last runs, in a small text file beside the outbox, which forgets a record once it is delivered.

One line a run: its start (UTC, ns) and its verdict. A line that a power cut tore is left out.
"""

import contextlib
import os
from collections import Counter
from pathlib import Path

from edgemeter.agent.health.contract import Runs

FILE = "verdicts"
KEPT = 100
# A line has some 30 bytes; the file is written anew when it has twice what is kept.
REWRITE_BYTES = 2 * KEPT * 30
VERDICTS = frozenset({"valid", "suspect", "invalid"})


def note(home: Path, started_at_ns: int, verdict: str) -> None:
    """Keep the verdict of one run; a disk that is full or gone costs no more than this line."""
    path = home / FILE
    with contextlib.suppress(OSError):
        with path.open("a", encoding="ascii") as file:
            file.write(f"{started_at_ns} {verdict}\n")
        if path.stat().st_size > REWRITE_BYTES:
            beside = path.with_suffix(f".{os.getpid()}")
            beside.write_text("".join(f"{started_ns} {said}\n" for started_ns, said in _lines(path)[-KEPT:]), encoding="ascii")
            beside.replace(path)


def read(home: Path) -> Runs:
    """Return the last run, and the verdicts of the last `KEPT`."""
    lines = _lines(home / FILE)[-KEPT:]
    if not lines:
        return Runs()
    last_ns, last_verdict = lines[-1]
    return Runs(last_ns=last_ns, last_verdict=last_verdict, verdicts=dict(Counter(verdict for _, verdict in lines)))


def changed_ns(home: Path) -> int | None:
    """Return when the file was last written, None where there is none."""
    try:
        return (home / FILE).stat().st_mtime_ns
    except OSError:
        return None


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    parts = [line.split() for line in text.splitlines()]
    return [(int(part[0]), part[1]) for part in parts if len(part) == 2 and part[0].isdecimal() and part[1] in VERDICTS]
