"""Facts about environment variables.

One table, of which the reference is made, holds every variable that the code reads, and no other.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from edgemeter.agent.base.variables import VARIABLES
from edgemeter.agent.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "agent" / "base" / "variables.py"
NAMES = {name for group in VARIABLES.values() for name in group}
SUFFIXES = {".py", ".sh", ".toml", ".service", ".yaml", ".yml", ".md", ".rules"}


def written() -> dict[str, set[str]]:
    """Return the variables that stand in the sources, outside the table, each with the files."""
    files_by_name: dict[str, set[str]] = {}
    for package in ("agent", "collector", "models", "provisioning"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix in SUFFIXES and path != TABLE:
                for name in re.findall(r"\bEDGEMETER_[A-Z0-9_]*", path.read_text()):
                    files_by_name.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return files_by_name


def options(command: click.Command, path: str = "edgemeter") -> Iterator[tuple[str, str]]:
    """Yield each variable of an option with the command that has it."""
    for param in command.params:
        for name in [param.envvar] if isinstance(param.envvar, str) else param.envvar or ():
            yield name, path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from options(command.get_command(context, name), f"{path} {name}")


def test_every_variable_in_the_sources_is_in_the_table():
    """Every variable in the sources is in the table.

    A name that only begins another one, as in a filter, is no variable.
    """
    unlisted = {
        name: files
        for name, files in written().items()
        if name not in NAMES and name != "EDGEMETER_"
    }
    assert unlisted == {}


def test_every_variable_in_the_table_is_in_the_sources():
    """Every variable in the table is in the sources, so that unused ones leave the table."""
    assert sorted(NAMES - set(written())) == []


def test_every_variable_of_an_option_is_in_the_table():
    """Every variable of an option is in the table, whatever way the option was made."""
    path_by_name = dict(options(cli))
    assert len(path_by_name) >= 10
    assert {name: path for name, path in path_by_name.items() if name not in NAMES} == {}
