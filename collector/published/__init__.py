"""Published figures: readers of what tools print and pages state, each row judged by physics, own runs and the other rows.

The protocol of a reader and the table of names; one file a format. Others register theirs through the entry point group
`edgemeter.published`. A reader recognises its format; `--reader` names one where it cannot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.collector.published.row import PublishedRow, fault

# Asked in this order; then those of other packages, in the order of their names.
READERS: Mapping[str, str] = {
    "aiperf": "edgemeter.collector.published.readers.aiperf:AiperfReader",
    "lm_eval": "edgemeter.collector.published.readers.lm_eval:LmEvalReader",
    "hf_evaluate": "edgemeter.collector.published.readers.hf_evaluate:HfEvaluateReader",
}
ENTRY_POINTS = "edgemeter.published"


@dataclass(frozen=True, slots=True)
class ReadTable:
    """The rows that a reader understood, and of the rest where it stands and why it is left out: nothing is guessed."""

    rows: tuple[PublishedRow, ...]
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class RowCollector:
    """Rows as a reader makes them: `defaults` are the user's facts of the whole file, which count where the file states none.

    A row that is not whole or cannot be a figure is left out and named.
    """

    defaults: Mapping[str, Any]
    rows: list[PublishedRow] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, where: str, **facts: Any) -> None:
        """Take a figure; `where` names its place in the file (`line 7`, `row 3, FPS`). A fact that is None is not stated."""
        row_facts = {name: value for name, value in facts.items() if value is not None}
        try:
            row = msgspec.convert({**self.defaults, **row_facts}, PublishedRow, strict=False)
        except msgspec.ValidationError as error:
            self.leave_out(where, str(error))
            return
        if why := fault(row):
            self.leave_out(where, why)
        else:
            self.rows.append(row)

    def leave_out(self, where: str, why: str) -> None:
        """Name a row that is not understood."""
        self.left_out.append(f"{where}: {why}")

    def table(self) -> ReadTable:
        """Return what was read."""
        return ReadTable(tuple(self.rows), tuple(self.left_out))


class PublishedReader(Protocol):
    """Reads one format. Created once, without arguments; opens nothing: it gets the text of the file."""

    def recognises(self, name: str, text: str) -> bool:
        """Return whether a file of that name with this text is of the format; raises nothing."""

    def read(self, text: str, defaults: Mapping[str, Any]) -> ReadTable:
        """Return the rows; `defaults` are fields of `PublishedRow` that hold for the whole file. Raises ConfigError for a damaged file."""


def reader_names() -> list[str]:
    """Return the names of all readers, in the order in which they are asked."""
    return plugin_names(READERS, ENTRY_POINTS)


def create(name: str) -> PublishedReader:
    """Return a reader; raises ConfigError for an unknown name, UnavailableError for a package's that cannot be imported."""
    reader: PublishedReader = find_plugin("reader of published figures", READERS, name, ENTRY_POINTS)()
    return reader
