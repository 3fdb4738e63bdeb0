"""The values that tags have had: each tag has a limit of them, because every new value makes series that InfluxDB keeps for good.

Devices and fleets are not limited: they are known to the broker. What is beyond the limit, or too long, is tagged `other`; the exact text
is a field of the point and in the ledger.
"""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.ledgers.place import LedgerPlace, beside

MOST_VALUES = 1000
LONGEST_VALUE = 200
OTHER = "other"
UNLIMITED = frozenset({"device", "fleet", "role"})


def tag_values_path(ledger: LedgerPlace) -> Path:
    """Return the file of the tag values of a ledger."""
    return beside(ledger, ".influx-tags")


@dataclass(slots=True, eq=False)
class TagValues:
    """The values of each tag so far. None is ever removed, and one that was not admitted never will be.

    With a `path` they are read from that file and saved there, so that a restart changes no tag.
    """

    path: Path | None = None
    most: int = MOST_VALUES
    _known: dict[str, dict[str, None]] = field(default_factory=dict)
    _is_saved: bool = True

    def __post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            values = msgspec.json.decode(self.path.read_bytes(), type=dict[str, list[str]])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the tag values {str(self.path)!r} ({error}): delete the file, it is written again") from error
        self._known = {name: dict.fromkeys(found) for name, found in values.items()}

    def admitted(self, name: str, value: str) -> str:
        """Return `value`, or `other` if the tag `name` has as many values as it may have, or the value is too long."""
        if name in UNLIMITED:
            return value
        known = self._known.setdefault(name, {})
        if value in known:
            return value
        if len(known) >= self.most or len(value) > LONGEST_VALUE:
            return OTHER
        known[value] = None
        self._is_saved = False
        return value

    def save(self) -> None:
        """Write the file if a value is new since the last time; call it before the points are written."""
        if self.path is not None and not self._is_saved:
            durable_file.write(self.path, msgspec.json.encode({name: list(found) for name, found in self._known.items()}))
            self._is_saved = True
