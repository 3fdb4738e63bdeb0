"""The values that tags have in InfluxDB: of each tag a limited number, held in the ledger, so that every collector of it writes the same.

Each new value makes series that InfluxDB keeps for good. A device may bring as many values as are still free for all others; then the
tag is closed for it: values up to that moment it may use, later ones are tagged `other`. What was decided once is never decided otherwise,
in whatever order records are drained again, until somebody clears the device. Devices and fleets are known to the broker: they are not
limited.
"""

import logging
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

# Of each tag; one device alone gets half of them.
MOST_VALUES = 2000
# Each file, data set and version of a runtime makes a case, on however many devices. InfluxDB 1 refuses more than 100,000 values of a tag.
MORE_CASES = 10
LONGEST_VALUE = 200
OTHER = "other"
UNLIMITED = frozenset({"device", "fleet", "role"})
# Stands in the table where a tag was closed for a device; no tag has an empty value.
_CLOSED = ""


def limit_of(tag: str, limit: int = MOST_VALUES) -> int:
    """Return how many values `tag` may have where most tags may have `limit`."""
    return limit * MORE_CASES if tag == "case_hash" else limit


class TagValues:
    """The values that are admitted, of a ledger that `refresh` reads; `save` before the points are written. For one thread."""

    def __init__(self, limit: int = MOST_VALUES) -> None:
        self._limit = limit
        self._begin_anew()

    def refresh(self, ledger: Ledger) -> bool:
        """Read what is admitted, unless nothing has changed; return whether something has that was decided before."""
        count, last = ledger.query("SELECT count(*), coalesce(max(number), 0) FROM tag_values")[0]
        if (count, last) == (len(self._numbers) + len(self._closed), self._last) and not self._unsaved:
            return False
        self._begin_anew()
        for number, tag, value, device in ledger.query("SELECT number, tag, value, device FROM tag_values ORDER BY number"):
            self._add(number, tag, value, device)
        return True

    def admitted(self, device: str, tag: str, value: str) -> str:
        """Return `value`, or `other` if it is too long, or the tag is closed for the device and the value new."""
        if tag in UNLIMITED:
            return value
        if len(value) > LONGEST_VALUE:
            return OTHER
        # PostgreSQL stores no NUL, and a tag has a space for it.
        value = value.replace("\0", " ")
        number, closed = self._numbers.get((tag, value)), self._closed.get((tag, device))
        if number is not None and (closed is None or number < closed):
            return value
        if closed is not None:
            return OTHER
        is_closed = self._brought[tag, device] >= limit_of(tag, self._limit) - self._totals[tag]
        if is_closed:
            logger.warning(
                "%s has brought too many values of the tag %s: new ones are tagged %r (edgemeter collector tags)", device, tag, OTHER
            )
        row = (self._last + 1, tag, _CLOSED if is_closed else value, device)
        self._add(*row)
        self._unsaved.append(row)
        return OTHER if is_closed else value

    def save(self, ledger: Ledger) -> None:
        """Store what is new in the ledger; raises EdgemeterError if it is not stored, also where another collector stored something."""
        if self._unsaved:
            with ledger.writing() as statements:
                statements.executemany("INSERT INTO tag_values (number, tag, value, device) VALUES (?, ?, ?, ?)", self._unsaved)
            self._unsaved.clear()

    def _begin_anew(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._closed: dict[tuple[str, str], int] = {}
        self._totals: Counter[str] = Counter()
        self._brought: Counter[tuple[str, str]] = Counter()
        self._last = 0
        self._unsaved: list[tuple[int, str, str, str]] = []

    def _add(self, number: int, tag: str, value: str, device: str) -> None:
        self._last = number
        if value == _CLOSED:
            self._closed[tag, device] = number
        else:
            self._numbers[tag, value] = number
            self._totals[tag] += 1
            self._brought[tag, device] += 1


class TagUse(msgspec.Struct, frozen=True):
    """How many values a tag has, and the devices that it is closed for."""

    tag: str
    values: int
    limit: int
    closed_for: tuple[str, ...]


def tag_uses(ledger: Ledger) -> list[TagUse]:
    """Return the use of every tag that has values."""
    if not ledger.has_table("tag_values"):
        return []
    closed = defaultdict(list)
    for tag, device in ledger.query("SELECT tag, device FROM tag_values WHERE value = ? ORDER BY device", _CLOSED):
        closed[tag].append(device)
    counts = ledger.query("SELECT tag, sum(CASE WHEN value = ? THEN 0 ELSE 1 END) FROM tag_values GROUP BY tag ORDER BY tag", _CLOSED)
    return [TagUse(tag, int(count), limit_of(tag), tuple(closed[tag])) for tag, count in counts]


def clear(ledger: Ledger, device: str) -> int:
    """Forget the values that this device brought first, and let it bring new ones; return how many entries that were."""
    with ledger.writing() as statements:
        return int(statements.execute("DELETE FROM tag_values WHERE device = ?", (device,)).rowcount)


def take_over(ledger: Ledger, path: Path) -> None:
    """Bring the values that versions before kept in the file at `path` into the ledger, and delete the file.

    Raises:
        ConfigError: the file cannot be read.
    """
    if not path.exists():
        return
    try:
        values = decode_json(path.read_bytes(), dict[str, list[str]])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"cannot read the tag values {str(path)!r} ({error}): delete the file; new values are limited anew") from error
    with ledger.writing() as statements:
        last = statements.execute("SELECT coalesce(max(number), 0) FROM tag_values").fetchone()[0]
        pairs = [(tag, value) for tag, of_tag in values.items() for value in of_tag if value]
        statement = "INSERT INTO tag_values (number, tag, value, device) VALUES (?, ?, ?, '') ON CONFLICT DO NOTHING"
        statements.executemany(statement, [(last + 1 + index, *pair) for index, pair in enumerate(pairs)])
    path.unlink()
