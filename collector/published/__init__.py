"""Published figures: readers of what tools print and pages state, each row judged by physics, own runs and the other rows.

The protocol of a reader and the table of names; one file a format. Others register theirs through the entry point group
`edgemeter.published`. A reader recognises its format; `--reader` names one where it cannot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from edgemeter.agent.base.figures import printable
from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.collector.published.row import LONGEST_TEXT, PublishedRow, fault, plain_blanks

# Asked in this order; then those of other packages, in the order of their names.
_READERS = "edgemeter.collector.published.readers"
READERS: Mapping[str, str] = {
    "mlperf_inference": f"{_READERS}.mlperf_inference:MlperfInference",
    "hailo_zoo": f"{_READERS}.hailo_zoo:HailoZoo",
    "rknn_zoo": f"{_READERS}.rknn_zoo:RknnZoo",
    "rknn_llm": f"{_READERS}.rknn_llm:RknnLlm",
    "ultralytics": f"{_READERS}.ultralytics:UltralyticsGuide",
    "aiperf": f"{_READERS}.aiperf:AiperfReader",
    "hf_evaluate": f"{_READERS}.hf_evaluate:HfEvaluateReader",
    "benchncnn": f"{_READERS}.benchncnn:Benchncnn",
    "litert_benchmark": f"{_READERS}.litert_benchmark:LitertBenchmark",
    "llama_bench": f"{_READERS}.llama_bench:LlamaBench",
    "trtexec": f"{_READERS}.trtexec:Trtexec",
    "table": f"{_READERS}.mapped_table:MappedTable",
}
ENTRY_POINTS = "edgemeter.published"
_LONGEST_WORDS = 1000


@dataclass(frozen=True, slots=True)
class ReadTable:
    """The rows that a reader understood, and of the rest where it stands and why it is left out: nothing is guessed."""

    rows: tuple[PublishedRow, ...]
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class RowCollector:
    """Rows as a reader makes them: `defaults` are the user's facts of the whole file, which count where the file states none.

    The user's `conditions` are not lost: they stand before the file's, and what is beyond the length of a text is cut. A row that is not
    whole, cannot be a figure, or has the case and figure of an earlier one is left out and named.
    """

    defaults: Mapping[str, Any]
    rows: list[PublishedRow] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)

    def add(self, where: str, **facts: Any) -> None:
        """Take a figure; `where` names its place in the file (`line 7`, `row 3, FPS`). A fact that is None is not stated."""
        row_facts = {**self.defaults, **{name: value for name, value in facts.items() if value is not None}}
        if conditions := list(filter(None, (self.defaults.get("conditions"), facts.get("conditions")))):
            text = "; ".join(conditions)
            row_facts["conditions"] = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 4]} ..."
        try:
            row = msgspec.convert(plain_blanks(row_facts), PublishedRow, strict=False)
        except (ValueError, OverflowError) as error:
            self.leave_out(where, str(error))
            return
        why = fault(row) or (f"{row.figure} of {row.model} under these conditions appears before" if row.id in self._ids else None)
        if why:
            self.leave_out(where, why)
        else:
            self.rows.append(row)
            self._ids.add(row.id)

    def leave_out(self, where: str, why: str) -> None:
        """Name a row that is not understood, in words that a terminal can show."""
        words = printable(f"{where}: {why}")
        self.left_out.append(words if len(words) <= _LONGEST_WORDS else f"{words[:_LONGEST_WORDS]} ...")

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
