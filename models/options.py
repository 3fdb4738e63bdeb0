"""Options that several commands of `edgemeter models` share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from edgemeter.models import cache as caches
from edgemeter.models import entries

Command = TypeVar("Command", bound=Callable[..., Any])


def catalogue(command: Command) -> Command:
    """Give the command `--catalogue`, as `catalogue_file`."""
    return click.option(
        "--catalogue",
        "catalogue_file",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="EDGEMETER_CATALOGUE",
        default=entries.own_file,
        help="Your own catalogue, above ours. Default: catalogue.toml in EDGEMETER_HOME.",
    )(command)


def cache(command: Command) -> Command:
    """Give the command `--cache` and `--limit-mb`, as `cache` and `limit_mb`."""
    limit = click.option(
        "--limit-mb",
        type=click.IntRange(1),
        envvar="EDGEMETER_MODELS_LIMIT_MB",
        default=caches.LIMIT_MB,
        show_default=True,
        help="How much the cache holds; what was not used for longest goes first.",
    )
    folder = click.option(
        "--cache",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="EDGEMETER_MODELS",
        default=caches.folder,
        help="Folder of fetched models. Default: models in EDGEMETER_HOME.",
    )
    return folder(limit(command))
