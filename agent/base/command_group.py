"""Groups whose commands are imported when they are called, so that `--help` imports neither numpy nor a runtime."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

# By section of the help and by name: where the command is (module:attribute), and its line in the help.
Sections = Mapping[str, Mapping[str, tuple[str, str]]]


class CommandGroup(click.Group):
    """A group of the commands in `sections`; its help lists them by section, in that order."""

    def __init__(self, *args: Any, sections: Sections, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sections = sections
        self._places = {name: place for section in sections.values() for name, (place, _) in section.items()}

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(self._places)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now; None without one of that name."""
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section without importing its commands."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])
