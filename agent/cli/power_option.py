"""The option `--power`, and the names of sensors that a shell completes."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from edgemeter.agent.base.completion import completes

_Command = TypeVar("_Command", bound=Callable[..., Any])


def sensor_names() -> list[str]:
    """Return the names of all sensors; their table is imported only when a shell asks."""
    from edgemeter.agent import power

    return power.names()


def power_option(command: _Command) -> _Command:
    """Add `--power`."""
    text = "Power sensors NAME[,NAME], or none. Default: the one with the widest scope."
    return click.option("--power", envvar="EDGEMETER_POWER", shell_complete=completes(sensor_names, several=True), help=text)(command)
