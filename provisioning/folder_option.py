"""The option `--folder` of every fleet command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from edgemeter.provisioning import fleet_folder
from edgemeter.provisioning.fleet_folder import FleetFolder

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _folder(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> FleetFolder:
    return fleet_folder.at(value) if value else fleet_folder.default()


def folder_option(command: _Command) -> _Command:
    """Add `--folder`; the command gets a `FleetFolder` as its argument `folder`."""
    return click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        callback=_folder,
        help="The fleet's folder. Default: $EDGEMETER_FLEET_FOLDER, else `fleet` among edgemeter's data.",
    )(command)
