"""The verdicts of the last runs, in a small text file next to the outbox.

The outbox itself deletes delivered records.
"""

import contextlib
import os
from collections import Counter
from pathlib import Path

from edgemeter.agent.contract.health import RecentRuns

VERDICTS_FILE = "verdicts"
VERDICTS_KEPT = 100

# A line has some 30 bytes; the file is rewritten at twice the number of lines that are kept.
REWRITE_BYTES = 2 * VERDICTS_KEPT * 30
VERDICTS = frozenset({"ok", "disturbed", "invalid"})


def note_verdict(home: Path, started_at_ns: int, verdict: str) -> None:
    """Append the verdict of one run; if the disk is full or missing, only this line is lost."""
    path = home / VERDICTS_FILE
    with contextlib.suppress(OSError):
        with path.open("a", encoding="ascii") as file:
            file.write(f"{started_at_ns} {verdict}\n")
        if path.stat().st_size > REWRITE_BYTES:
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_text(
                "".join(
                    f"{started_ns} {state}\n"
                    for started_ns, state in _verdict_lines(path)[-VERDICTS_KEPT:]
                ),
                encoding="ascii",
            )
            temporary.replace(path)


def recent_runs(home: Path) -> RecentRuns:
    """Return the last run, and the verdicts of the last `VERDICTS_KEPT`."""
    lines = _verdict_lines(home / VERDICTS_FILE)[-VERDICTS_KEPT:]
    if not lines:
        return RecentRuns()
    last_ns, last_verdict = lines[-1]
    return RecentRuns(
        last_ns=last_ns,
        last_verdict=last_verdict,
        verdicts=dict(Counter(verdict for _, verdict in lines)),
    )


def verdicts_changed_ns(home: Path) -> int | None:
    """Return when the file was last written; None if there is none."""
    try:
        return (home / VERDICTS_FILE).stat().st_mtime_ns
    except OSError:
        return None


def _verdict_lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    parts = [line.split() for line in text.splitlines()]
    return [
        (int(part[0]), part[1])
        for part in parts
        if len(part) == 2 and part[0].isdecimal() and part[1] in VERDICTS
    ]
