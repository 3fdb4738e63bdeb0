"""The options for the settings of a session: sensors, delivery, and boards that measure instead."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from edgemeter.agent.base.cli.completion import completes
from edgemeter.agent.base.cli.options import PATH, FiniteRange, added
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.measuring.settings import DELIVERY_TIMEOUT_S, SessionSettings

_Command = TypeVar("_Command", bound=Callable[..., Any])
# These options have no effect on a measurement on another board.
_HERE = ("broker", "if_no_broker", "device", "fleet", "bundle", "predictions")


on_options = added(
    click.option(
        "--on",
        multiple=True,
        metavar="ssh://USER@HOST",
        help="Measure on this board over SSH. Repeatable.",
    ),
    click.option(
        "--release", type=PATH, help="--on: release to install there. Default: built for the board."
    ),
)


def session_settings(options: Mapping[str, Any]) -> SessionSettings:
    """Return the settings of a session that the options of a command give.

    Raises:
        ConfigError: an option has no effect on other boards, which `--on` names.
        UsageError: an option of `--on` is given without it.
    """
    if options.get("release") and not options["on"]:
        raise click.UsageError("--release needs --on: it is for measurements elsewhere")
    context = click.get_current_context()
    for param in context.command.params if options.get("on") else ():
        if (
            param.name in _HERE
            and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
        ):
            raise ConfigError(
                f"{max(param.opts, key=len)} is for measurements on this machine: leave "
                "it out with --on"
            )
    named = SessionSettings.__struct_fields__
    return SessionSettings(**{name: options[name] for name in named if name in options})


def delivery_timeout_option(command: _Command) -> _Command:
    text = "Seconds to wait for receipts."
    return click.option(
        "--delivery-timeout",
        "delivery_timeout_s",
        type=FiniteRange(0),
        default=DELIVERY_TIMEOUT_S,
        show_default=True,
        help=text,
    )(command)


def power_option(command: _Command) -> _Command:

    def sensor_names() -> list[str]:
        # Imported only when a shell asks.
        from edgemeter.agent import power

        return power.names()

    text = "Power sensors, or none. Default: the widest scope."
    return click.option(
        "--power",
        metavar="NAME[,NAME]",
        envvar="EDGEMETER_POWER",
        shell_complete=completes(sensor_names, several=True),
        help=text,
    )(command)
