"""Options that the commands of `edgemeter fleet` share."""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from edgemeter.agent.base.cli import options
from edgemeter.provisioning.inventory import fleet_folder, selection
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILE = click.Path(path_type=Path, dir_okay=False)
devices_argument = click.argument("devices", nargs=-1, required=True, metavar="DEVICE...")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be done, and change nothing."
)


def in_folder(command: _Command) -> _Command:
    """Pass the fleet's folder, from `edgemeter fleet --folder`, to the command as `folder`."""

    @functools.wraps(command)
    def with_folder(*arguments: Any, **options: Any) -> Any:
        folder = click.get_current_context().find_object(FleetFolder) or fleet_folder.default()
        return command(*arguments, folder=folder, **options)

    return cast("_Command", with_folder)


# The options of every command that changes something, and of those that act on many boards.
change_options = options.added(options.format_option("", "table", "json"), in_folder)
rehearsed_options = options.added(dry_run_option, change_options)


def selection_option(purpose: str, otherwise: str | None = None) -> Callable[[_Command], _Command]:
    """Return a decorator that adds `--on` for the devices.

    It is required unless there is a default.
    """
    text = (
        f"Devices to {purpose}: a name or tag, all, or KEY=PATTERN (keys: "
        f"{', '.join(selection.KEYS)}), combined by & | !: "
        "'board=pi5 & coral'."
    )
    if otherwise is None:
        # A default of None would be a value, and the option no longer required (click 8.3).
        return click.option("--on", "selection", metavar="SELECTION", required=True, help=text)
    return click.option(
        "--on",
        "selection",
        metavar="SELECTION",
        default=otherwise,
        help=f"{text} Default: {otherwise}.",
    )


def print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(f"edgemeter: {note}", err=True)
