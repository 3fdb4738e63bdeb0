"""The option `--ledger`, which most of the collector's commands have, and how times are shown."""

from datetime import datetime, timezone
from pathlib import Path

import click

from edgemeter.agent.config import home

ledger_option = click.option(
    "--ledger",
    envvar="EDGEMETER_LEDGER",
    type=click.Path(path_type=Path, dir_okay=True),
    help="The ledger's file. Default: ledger.sqlite in $EDGEMETER_HOME, else in $XDG_DATA_HOME/edgemeter.",
)


def ledger_path(given: Path | None) -> Path:
    """Return the ledger's path: the one given, or the default."""
    return given or home() / "ledger.sqlite"


def stamp(taken_ns: int) -> str:
    """Return a time as people and machines read it, to the second, UTC."""
    return datetime.fromtimestamp(taken_ns // 1_000_000_000, timezone.utc).isoformat()


def printable(text: str) -> str:
    """Return text from outside so that no terminal obeys it."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
