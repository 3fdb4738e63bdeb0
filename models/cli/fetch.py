"""The commands `edgemeter models fetch`, `verify` and `cache ...`."""

import fcntl
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.cli.command_group import DefaultGroup
from edgemeter.agent.base.cli.completion import completes
from edgemeter.agent.base.cli.notes import note, progress_bar
from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, print_data, print_table
from edgemeter.agent.base.errors import FAILED, ConfigError, EdgemeterError, os_error_as
from edgemeter.agent.base.model_names import model_names
from edgemeter.models.catalogue.catalogue import find_entry
from edgemeter.models.catalogue.shipped_models import shipped_files
from edgemeter.models.fetch import fetching
from edgemeter.models.fetch.fetching import LOCK, cache_folder
from edgemeter.models.fetch.local_files import verify_models


@click.command()
@click.argument("name", nargs=-1, required=True, shell_complete=completes(model_names))
@click.option(
    "--accept-unverified",
    is_flag=True,
    help="Also fetch models without a sha256 in the catalogue; their hash is recorded.",
)
@format_option('{"fetched": [...]}', "table", "json")
def fetch(name: tuple[str, ...], *, accept_unverified: bool, form: Format) -> None:
    """Fetch and verify models of the catalogue. Each gets a card, and its path is printed.

    Example: edgemeter models fetch yolox-nano
    """
    rows: list[dict[str, Any]] = []
    errors: list[EdgemeterError] = []
    for model_name in dict.fromkeys(name):
        if model_name in shipped_files():
            note(f"{model_name} ships with Edgemeter: {shipped_files()[model_name]}")
            continue
        try:
            entry = find_entry(model_name)
            with progress_bar("bytes") as report:
                path, digest, is_new = fetching.fetch(
                    entry, report, accepts_unverified=accept_unverified
                )
        except EdgemeterError as error:
            # The others can still be fetched.
            errors.append(type(error)(f"cannot fetch {model_name}: {error}"))
            continue
        if entry.sha256 is None:
            click.echo(
                f"edgemeter: {entry.name} could not be checked; recorded sha256 {digest}: later "
                "downloads must match it",
                err=True,
            )
        row = {"name": entry.name, "path": str(path), "sha256": digest, "address": entry.address}
        rows.append(row | {"is_new": is_new, "was_verified": entry.sha256 is not None})
    if not print_data(form, {"fetched": rows}):
        click.echo("".join(f"{row['path']}\n" for row in rows), nl=False)
    if errors:
        raise type(errors[0])("; ".join(map(str, errors)))


@click.command()
@click.argument("name", nargs=-1)
@format_option('{"files": [...]}')
def verify(name: tuple[str, ...], *, form: Format) -> None:
    """Compare the hashes of model files with the catalogue.

    Default: all shipped, fetched and added files.

    Example: edgemeter models verify
    """
    rows = verify_models(name)
    print_table(form, "files", rows, {"name": "name", "state": "state"})
    wrong = [row for row in rows if row["state"] != "ok"]
    for row in wrong:
        problem = (
            f"has sha256 {row['actual']}, expected {row['expected']}"
            if row["actual"]
            else "is missing"
        )
        click.echo(
            f"edgemeter: {row['name']}: {row['path']!r} {problem}: fetch or add it again", err=True
        )
    if wrong:
        sys.exit(FAILED)


@click.group(cls=DefaultGroup)
def cache() -> None:
    """List and clear the cache of fetched models.

    Example: edgemeter models cache list
    """


@cache.command("list")
@format_option('{"models": [...]}')
def list_cache(*, form: Format) -> None:
    """List the cached models and unfinished downloads.

    Example: edgemeter models cache list
    """
    rows = []
    for name, folder in _cached().items():
        files = [file for file in folder.iterdir() if file.is_file()]
        is_whole = any(not file.name.startswith(".") and file.suffix != ".toml" for file in files)
        size_mb = round(sum(file.stat().st_size for file in files) / 1e6, 1)
        rows.append(
            {
                "name": name,
                "state": "fetched" if is_whole else "unfinished",
                "size_mb": size_mb,
                "folder": str(folder),
            }
        )
    print_table(
        form,
        "models",
        rows,
        {"name": "name", "state": "state", "size_mb": "MB", "folder": "folder"},
    )
    if not rows:
        note(f"the cache {str(cache_folder())!r} is empty")


@cache.command(short_help="Remove fetched models and unfinished downloads.")
@click.argument("name", nargs=-1)
def clear(name: tuple[str, ...]) -> None:
    """Remove fetched models and unfinished downloads. Default: all.

    A model that is being fetched stays.

    Example: edgemeter models cache clear yolox-nano
    """
    cached = _cached()
    if absent := sorted(set(name) - cached.keys()):
        raise ConfigError(
            f"the cache {str(cache_folder())!r} has no {', '.join(absent)}: `edgemeter models "
            "cache list` shows its models"
        )
    for model_name in name or cached:
        with (
            os_error_as(ConfigError, f"cannot remove {model_name}"),
            (cached[model_name] / LOCK).open("a") as lock,
        ):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                click.echo(f"being fetched, kept: {model_name}")
                continue
            shutil.rmtree(cached[model_name])
            click.echo(f"removed: {model_name}")


def _cached() -> dict[str, Path]:
    """Return the folders of the cache by name: those with its lock, and no others."""
    return {lock.parent.name: lock.parent for lock in sorted(cache_folder().glob(f"*/{LOCK}"))}
