"""Facts about the size of the project: each room has a number of lines, and grows only where another shrinks.

Whoever makes a room larger lowers the number of another one, or writes the reason beside the number here. Whoever makes one smaller lowers
its number: `python -m tests.project.test_size` prints the lines as they are.
"""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "collector", "models", "provisioning")
# Lines of Python, blank ones and comments too.
LINES = {}
# A room may have so many lines fewer before its number is lowered.
SLACK = 40


def lines_by_room() -> dict[str, int]:
    """Return the lines of Python in each folder of a package, and in `tests`."""
    lines: Counter[str] = Counter()
    for package in (*PACKAGES, "tests"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).parts
            room = "tests" if package == "tests" else "/".join(parts[:2] if len(parts) > 2 else parts[:1])
            lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    return {room: count for room, count in sorted(lines.items()) if count}


def test_no_room_is_larger_than_its_number():
    """A new room needs a number too, taken from others."""
    assert {room: count for room, count in lines_by_room().items() if count > LINES.get(room, 0)} == {}


def test_a_room_that_shrank_lowers_its_number():
    """So that the next change cannot take the room again; one that is gone leaves the list."""
    lines = lines_by_room()
    assert {room: lines.get(room, 0) for room, number in LINES.items() if number > lines.get(room, 0) + SLACK} == {}


if __name__ == "__main__":
    for counted_room, count in lines_by_room().items():
        print(f'    "{counted_room}": {count},')
