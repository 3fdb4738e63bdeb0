"""The published figures at hand: those that ship, and those that a user keeps in a folder apart from the ledger."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.collector.published.readers import read_editions
from edgemeter.collector.published.row import PublishedRow

SHIPPED = Path(__file__).with_name("shipped")
LEGEND = (
    "The MLPerf\N{TRADE MARK SIGN} name and logo are trademarks of MLCommons Association in the United States and other countries. "
    "All rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org for more information."
)
APART = (
    "MLPerf\N{TRADE MARK SIGN} results may only be compared with compatible MLPerf\N{TRADE MARK SIGN} results: they are listed "
    "separately from what Edgemeter measures, and are not ranked."
)


def footnote(row: PublishedRow) -> str:
    """Return what MLCommons requires beside a result of MLPerf, but for the `LEGEND`."""
    name = row.source.replace("MLPerf", "MLPerf\N{TRADE MARK SIGN}")
    retrieved = "Copied second-hand of" if row.stated_by == "second-hand" else "Retrieved from"
    return f"{name}, {row.model}, {row.conditions}. {retrieved} {row.address} {row.date}, {row.version}."


@cache
def shipped_rows() -> tuple[PublishedRow, ...]:
    """Return the figures that ship, source by source in the order of the files' names."""
    return tuple(row for path in sorted(SHIPPED.glob("*.toml")) for row in read_editions(path.read_bytes(), {}).rows)


@dataclass(frozen=True, slots=True)
class PublishedFolder:
    """The folder `path`; absent, it holds the rows that ship."""

    path: Path

    @property
    def _file(self) -> Path:
        return self.path / "published.json"

    def version(self) -> str:
        """Return a text that changes with the file; raises ConfigError if it cannot be read."""
        with os_error_as(ConfigError, f"cannot read {str(self._file)!r}"):
            return f"{(state := self._file.stat()).st_mtime_ns} {state.st_size}" if self._file.exists() else ""

    def rows(self) -> list[PublishedRow]:
        """Return the rows, those that ship first; raises ConfigError if the file cannot be read."""
        return list({row.key: row for row in (*shipped_rows(), *self._kept())}.values())

    def _kept(self) -> list[PublishedRow]:
        if not self._file.exists():
            return []
        try:
            with os_error_as(ConfigError, f"cannot read {str(self._file)!r}"):
                return decode_json(self._file.read_bytes(), list[PublishedRow])
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{str(self._file)!r} is damaged ({error}): remove it, and add the files again") from error

    def add(self, rows: Sequence[PublishedRow]) -> list[PublishedRow]:
        """Keep rows, and return those that were not there.

        Raises:
            ConfigError: one is there with another value (a changed page is another version or date), or cannot be looked up.
            UnavailableError: the folder cannot be written.
        """
        present = {row.key: row for row in self.rows()}
        for row in rows:
            if not row.address.startswith(("https://", "http://")):
                raise ConfigError(f"address {row.address!r} of {row.model} cannot be looked up: give --fact address=https://...")
            if (before := present.get(row.key)) and before.canonical != row.canonical:
                raise ConfigError(
                    f"{row.source} {row.version} has {before.value:g} {before.unit} for {row.model} on {row.device}, not {row.value:g} "
                    f"{row.unit}: give a changed page another version, --fact version=..."
                )
        new = [row for row in rows if row.key not in present]
        if new:
            durable_file.write(self._file, msgspec.json.encode([*self._kept(), *new]), 0o644)
        return new


def default_folder() -> PublishedFolder:
    """Return the folder of published figures of this machine: $EDGEMETER_REFERENCES, else `references` in $EDGEMETER_HOME."""
    return PublishedFolder(Path(os.environ.get("EDGEMETER_REFERENCES") or home() / "references"))
