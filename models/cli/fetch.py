"""The commands `edgemeter models fetch` and `cache ...`."""

import sys

import click

from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.completion import completes
from edgemeter.agent.base.errors import FAILED, ConfigError, EdgemeterError
from edgemeter.agent.base.model_names import model_names
from edgemeter.agent.base.options import format_option
from edgemeter.agent.base.progress import note, progress_bar
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.models.catalogue.catalogue import all_entries, find_entry, own_file
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER, shipped_models
from edgemeter.models.cli.tables import print_cached
from edgemeter.models.fetch import fetching
from edgemeter.models.fetch.cache import LIMIT_MB, ModelCache, cache_folder
from edgemeter.models.fetch.fetching import FetchedModel

_limit_option = click.option(
    "--limit-mb",
    type=click.IntRange(1),
    envvar="EDGEMETER_MODELS_LIMIT_MB",
    default=LIMIT_MB,
    show_default=True,
    help="Size limit of the cache in MB; the least recently used models are removed first.",
)


@click.command()
@click.argument("name", nargs=-1, required=True, shell_complete=completes(model_names))
@click.option("--accept-unverified", is_flag=True, help="Also fetch models without a sha256 in the catalogue; their hash is recorded.")
@format_option('{"fetched": [...]}', "table", "json")
@_limit_option
def fetch(name: tuple[str, ...], limit_mb: int, *, accept_unverified: bool, form: Format) -> None:
    """Fetch models of the catalogue, verify them, write a card beside each, and print their paths.

    Example: edgemeter models fetch yolox-nano
    """
    catalogue_file, cache = own_file(), ModelCache(cache_folder(), limit_mb * 1_000_000)
    entries = all_entries(catalogue_file)
    fetched: list[FetchedModel] = []
    failed = False
    for model_name in dict.fromkeys(name):
        if model_name not in entries and SHIPPED_FOLDER / model_name in [model.path for model in shipped_models()]:
            note(f"{model_name} ships with Edgemeter: {SHIPPED_FOLDER / model_name}")
            continue
        try:
            entry, earlier = find_entry(model_name, catalogue_file), [model.entry.name for model in fetched]
            with progress_bar("bytes") as report:
                model = fetching.fetch(entry, cache, report, earlier, accepts_unverified=accept_unverified)
            fetching.record_accepted(model, catalogue_file)
            fetched.append(model)
        except EdgemeterError as error:
            # The others can still be fetched; a single one fails as every command does.
            if len(set(name)) == 1:
                raise
            click.echo(f"edgemeter: {' '.join(str(error).split())}", err=True)
            failed = True
    _print_fetched(fetched, cache, form=form)
    if failed:
        sys.exit(FAILED)


def _print_fetched(fetched: list[FetchedModel], cache: ModelCache, *, form: Format) -> None:
    """Print the paths of the files, and notes on standard error."""
    for model in fetched:
        if not model.was_verified:
            unchecked = f"{model.entry.name} could not be checked; recorded sha256 {model.sha256}: later downloads must match it"
            click.echo(f"edgemeter: {unchecked}", err=True)
        for name in model.removed:
            note(f"edgemeter: removed {name} from the cache to keep below its limit")
    if excess := cache.excess_bytes():
        click.echo(f"edgemeter: the cache is {excess} bytes above its limit, because its models are in use or were just fetched", err=True)
    keys = ("sha256", "address", "is_new", "was_verified", "removed")
    rows = [{"name": model.entry.name, "path": str(model.path), **{key: getattr(model, key) for key in keys}} for model in fetched]
    if not print_data(form, {"fetched": rows}):
        for model in fetched:
            click.echo(model.path)


@click.group(cls=DefaultGroup)
def cache() -> None:
    """List and clear the cache of fetched models.

    Example: edgemeter models cache list
    """


@cache.command("list")
@format_option('{"folder": ..., "limit_bytes": ..., "held": [...]}')
@_limit_option
def list_cache(limit_mb: int, *, form: Format) -> None:
    """List the cached models, the most recently used first.

    Example: edgemeter models cache list
    """
    cache = ModelCache(cache_folder(), limit_mb * 1_000_000)
    rows = [
        {"name": model.name, "path": str(model.path) if model.path else None, "size_bytes": model.size_bytes, "used_ns": model.used_ns}
        for model in cache.models()
    ]
    if not print_data(form, {"folder": str(cache.folder), "limit_bytes": cache.limit_bytes, "held": rows}, rows="held"):
        print_cached(cache, console_for(form))


@cache.command(short_help="Remove fetched models and unfinished downloads.")
@click.argument("name", nargs=-1)
def clear(name: tuple[str, ...]) -> None:
    """Remove fetched models (NAME, or all) and unfinished downloads; models in use are kept.

    Example: edgemeter models cache clear yolox-nano
    """
    cache = ModelCache(cache_folder())
    cached = cache.models()
    if absent := sorted(set(name) - {model.name for model in cached}):
        raise ConfigError(f"the cache {str(cache.folder)!r} has no {', '.join(absent)}: `edgemeter models cache list` shows its models")
    for model in cached:
        if not name or model.name in name:
            click.echo(f"{'removed' if cache.remove(model) else 'in use, kept'}: {model.name}")
