"""Which points of a batch a server does not take, found so that all others are stored."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgemeter.collector.keep.influx_answers import PointsRefusedError, short

LARGEST_WRITE = 5_000
# A message this long names so many that halving is as quick.
READ_CHARACTERS = 1 << 18
# So much of a refused point is said beside the reason.
SHOWN_CHARACTERS = 60
# What a server says that stored the rest. Of several causes it counts one only: the number may be too small, never too large.
_DROPPED = re.compile(r"\bdropped=(\d+)")


@dataclass(frozen=True, slots=True)
class Refused:
    """A point that the server does not take, by its place in what was written, and why."""

    index: int
    reason: str


def store(lines: Sequence[str], post: Callable[[Sequence[str]], None]) -> list[Refused]:
    """Write `lines` with `post`; return those that it refuses when each stands alone, by place, when all others are stored.

    What `post` raises beside PointsRefusedError goes to the caller; then some are stored, and all may be written again.
    """
    refused: list[Refused] = []
    waiting = [list(range(first, min(first + LARGEST_WRITE, len(lines)))) for first in range(0, len(lines), LARGEST_WRITE)][::-1]
    while waiting:
        places = waiting.pop()
        try:
            post([lines[place] for place in places])
        except PointsRefusedError as error:
            if len(places) == 1 or _is_every_one(error.said, len(places)):
                refused += [Refused(place, _reason(error.said, lines[place])) for place in places]
            else:
                waiting += _parts(lines, places, error.said)
    return sorted(refused, key=lambda one: one.index)


def _is_every_one(said: str, count: int) -> bool:
    # After an outage longer than the bucket keeps points, thousands are refused for one cause.
    dropped = _DROPPED.search(said)
    return dropped is not None and int(dropped[1]) == count


def _reason(said: str, line: str) -> str:
    # The reason stands behind the line, which may be a book.
    return short(said.replace(line, f"{line[:SHOWN_CHARACTERS]}..."))


def _parts(lines: Sequence[str], places: list[int], said: str) -> list[list[int]]:
    """Return `places` in parts: those whose line the message quotes each alone, or, when it quotes none, both halves."""
    quoted: set[int] = set()
    if "unable to parse" in said and len(said) <= READ_CHARACTERS:
        quoted = {place for place in places if f"'{lines[place]}'" in said}
    if not quoted:
        half = len(places) // 2
        return [places[half:], places[:half]]
    rest = [place for place in places if place not in quoted]
    return [*([rest] if rest else []), *([place] for place in sorted(quoted, reverse=True))]
