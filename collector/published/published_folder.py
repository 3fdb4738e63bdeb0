"""The published figures at hand: those that ship, and those in a user's folder apart from the ledger."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.collector.published.readers import read, read_editions
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
    """The folder `path` of a user's TOML files; absent, it holds the rows that ship."""

    path: Path

    def version(self) -> str:
        """Return a text that changes with the files; raises ConfigError if one cannot be read."""
        with os_error_as(ConfigError, f"cannot read {str(self.path)!r}"):
            return " ".join(f"{path.name} {path.stat().st_mtime_ns}" for path in sorted(self.path.glob("*.toml")))

    def rows(self) -> list[PublishedRow]:
        """Return the rows, those that ship first; raises ConfigError if a file cannot be read, or a figure in it."""
        rows = [*shipped_rows()]
        for path in sorted(self.path.glob("*.toml")):
            content = read(path, {})
            if content.left_out:
                raise ConfigError(f"{str(path)!r}, {content.left_out[0]}: correct it")
            rows += content.rows
        return rows


def default_folder() -> PublishedFolder:
    """Return the folder of published figures of this machine."""
    return PublishedFolder(home() / "references")
