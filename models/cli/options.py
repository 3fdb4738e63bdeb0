"""Options that several commands of `edgemeter models` share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from edgemeter.models.catalogue.catalogue import own_file
from edgemeter.models.fetch.cache import LIMIT_MB, ModelCache, cache_folder

Command = TypeVar("Command", bound=Callable[..., Any])


def catalogue(command: Command) -> Command:
    """Give the command `--catalogue`, as `catalogue_file`."""
    return click.option(
        "--catalogue",
        "catalogue_file",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="EDGEMETER_CATALOGUE",
        default=own_file,
        help="Your own catalogue, which takes precedence over the built-in one. Default: catalogue.toml in EDGEMETER_HOME.",
    )(command)


def cache(command: Command) -> Command:
    """Give the command `--cache`, as a ModelCache `cache`; without `--limit-mb` the command adds nothing to it."""

    @functools.wraps(command)
    def with_cache(*arguments: Any, cache: Path, limit_mb: int = LIMIT_MB, **options: Any) -> None:
        command(*arguments, cache=ModelCache(cache, limit_mb * 1_000_000), **options)

    return click.option(
        "--cache",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="EDGEMETER_MODELS",
        default=cache_folder,
        help="Folder of fetched models. Default: models in EDGEMETER_HOME.",
    )(cast("Command", with_cache))


def limited_cache(command: Command) -> Command:
    """Give the command `--cache` and `--limit-mb`, as one ModelCache `cache`."""
    limit = click.option(
        "--limit-mb",
        type=click.IntRange(1),
        envvar="EDGEMETER_MODELS_LIMIT_MB",
        default=LIMIT_MB,
        show_default=True,
        help="Size limit of the cache in MB; the least recently used models are removed first.",
    )
    return cache(limit(command))
