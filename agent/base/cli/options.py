"""Options and parameter types shared by the commands of every package.

An option is a key of the configuration with dashes.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from edgemeter.agent.base.cli.notes import QUIET
from edgemeter.agent.base.cli.tables import Format

_Command = TypeVar("_Command", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


class FiniteRange(click.FloatRange):
    """A range of numbers without `nan` and `inf`, which click's ranges accept."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def names_and_config(command: _Command) -> _Command:
    """Add `--device`, `--fleet` and `--config`."""
    return added(
        click.option(
            "--device",
            envvar="EDGEMETER_DEVICE",
            help="Name of this device. Default: the host name.",
        ),
        click.option(
            "--fleet", envvar="EDGEMETER_FLEET", help="Fleet of this device. Default: default."
        ),
        config_option,
    )(command)


# Click calls it with these arguments.
def _keep_quiet(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001
    ctx.meta[QUIET] = value


config_option = click.option(
    "--config",
    type=PATH,
    envvar="EDGEMETER_CONFIG",
    help="Configuration file of the agent (TOML).",
)
# For `progress.is_quiet`.
quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_keep_quiet,
    help="Print only the result, warnings and errors.",
)
save_option = click.option(
    "--no-save",
    "save",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not store the runs in the ledger of this device.",
)
trusted_option = click.option(
    "--trusted",
    "is_trusted",
    is_flag=True,
    help="Convert without a sandbox: only for models that you trust.",
)


def format_option(document: str = "", *formats: Format) -> Callable[[_Command], _Command]:
    """Return a decorator that adds `--format`, as `form`.

    It takes the formats that the command prints (default: all), and its JSON document.
    """
    *first, last = formats or get_args(Format)
    return click.option(
        "--format",
        "form",
        type=click.Choice([*first, last]),
        metavar="FORMAT",
        default="table",
        help=(
            f"Print {', '.join(first)} or {last}.{f' JSON: {document}.' if document else ''} "
            "Default: table."
        ),
    )


def ratio_of(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Return `3%`, `3` or `0.03` as 0.03; an option's callback."""
    try:
        number = float(value.removesuffix("%"))
    except ValueError:
        number = -1.0
    ratio = number / 100 if value.endswith("%") or number >= 1 else number
    if not 0 < ratio < 1:
        raise click.BadParameter(
            f"{value!r} does not lie between 0 and 100%: give a percentage (3%) or a ratio (0.03)"
        )
    return ratio


matters_option = click.option(
    "--matters",
    "matters_ratio",
    metavar="PERCENT",
    default="3%",
    callback=ratio_of,
    help="Smallest difference that matters. Default: 3%.",
)


def added(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds these options, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
