"""The commands `edgemeter models fetch`, `cache ...`, `export-archive` and `import-archive`."""

import sys
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.completion import completes
from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.errors import FAILED, ConfigError, EdgemeterError
from edgemeter.agent.base.model_names import model_names
from edgemeter.agent.base.options import json_option, rows_json_option
from edgemeter.agent.base.progress import note, progress_bar
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.models.catalogue.catalogue import all_entries, find_entry, is_address
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER, shipped_models
from edgemeter.models.cli import options
from edgemeter.models.cli.tables import print_cached
from edgemeter.models.fetch import fetching, model_archive
from edgemeter.models.fetch.cache import ModelCache
from edgemeter.models.fetch.download import TIMEOUT_S, Transport
from edgemeter.models.fetch.fetching import FetchedModel, FetchOptions


def _mirrors(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for address in value:
        if not is_address(address):
            raise click.BadParameter(f"{address!r} is not an http or https address (without user and password)")
    return value


@click.command()
@click.argument("name", nargs=-1, required=True, shell_complete=completes(model_names))
@click.option(
    "--mirror", multiple=True, callback=_mirrors, envvar="EDGEMETER_MODEL_MIRRORS", help="Address of a folder to try first; repeatable."
)
@click.option("--proxy", envvar="EDGEMETER_PROXY", help="http://HOST:PORT. Default: http_proxy and https_proxy of the environment.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1),
    default=TIMEOUT_S,
    show_default=True,
    help="Time limit for a response in seconds.",
)
@click.option("--accept-unverified", is_flag=True, help="Also fetch models without a sha256 in the catalogue; their hash is recorded.")
@click.option("--archive", type=click.Path(path_type=Path), help="Read from this model archive (zip or folder) instead of the network.")
@json_option('Print {"fetched": [...]}.')
@options.catalogue
@options.limited_cache
def fetch(name: tuple[str, ...], catalogue_file: Path, cache: ModelCache, *, as_json: bool, **settings: Any) -> None:
    """Fetch models of the catalogue, verify them, write a card beside each, and print their paths.

    Example: edgemeter models fetch yolox-nano
    """
    how = FetchOptions(Transport(settings["proxy"], settings["timeout_s"]), tuple(settings["mirror"]), settings["accept_unverified"])
    entries, archive = all_entries(catalogue_file), settings["archive"]
    fetched: list[FetchedModel] = []
    failed = False
    for model_name in dict.fromkeys(name):
        if model_name not in entries and SHIPPED_FOLDER / model_name in [model.path for model in shipped_models()]:
            note(f"{model_name} ships with Edgemeter: {SHIPPED_FOLDER / model_name}")
            continue
        try:
            with progress_bar("bytes") as report:
                if archive is None:
                    earlier = [model.entry.name for model in fetched]
                    batch = [fetching.fetch(find_entry(model_name, catalogue_file), cache, how, report, earlier)]
                else:
                    batch = model_archive.import_models(
                        archive, [model_name], entries, cache, report, accepts_unverified=how.accept_unverified
                    )
            fetching.record_accepted(batch, entries, catalogue_file)
            fetched += batch
        except EdgemeterError as error:
            # The others can still be fetched; a single one fails as every command does.
            if len(set(name)) == 1:
                raise
            click.echo(f"edgemeter: {' '.join(str(error).split())}", err=True)
            failed = True
    _print_fetched(fetched, cache, as_json=as_json)
    if failed:
        sys.exit(FAILED)


def _print_fetched(fetched: list[FetchedModel], cache: ModelCache, *, as_json: bool) -> None:
    """Print the paths of the files, and notes on standard error."""
    for model in fetched:
        if not model.was_verified:
            unchecked = f"{model.entry.name} could not be checked; recorded sha256 {model.sha256}: later downloads must match it"
            click.echo(f"edgemeter: {unchecked}", err=True)
        for name in model.removed:
            note(f"edgemeter: removed {name} from the cache to keep below its limit")
    if excess := cache.excess_bytes():
        click.echo(f"edgemeter: the cache is {excess} bytes above its limit, because its models are in use or were just fetched", err=True)
    if as_json:
        keys = ("sha256", "address", "is_new", "was_verified", "removed")
        rows = [{"name": model.entry.name, "path": str(model.path), **{key: getattr(model, key) for key in keys}} for model in fetched]
        click.echo(json_document({"fetched": rows}))
    else:
        for model in fetched:
            click.echo(model.path)


@click.command("export-archive")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("name", nargs=-1, required=True)
@options.catalogue
@options.cache
def export_archive(out: Path, name: tuple[str, ...], catalogue_file: Path, cache: ModelCache) -> None:
    """Write fetched models and your own to one zip, for machines without a network.

    Example: edgemeter models export-archive models.zip yolox-nano
    """
    entries = [find_entry(model_name, catalogue_file) for model_name in dict.fromkeys(name)]
    with progress_bar() as report:
        manifest = model_archive.export_models(out, entries, cache, report)
    click.echo(f"{out}: {len(manifest.models)} models, {out.stat().st_size} bytes", err=True)


@click.command("import-archive")
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("name", nargs=-1)
@click.option("--accept-unverified", is_flag=True, help="Also import models without a sha256 in your catalogue; their hash is recorded.")
@json_option('Print {"fetched": [...]}.')
@options.catalogue
@options.limited_cache
def import_archive(
    archive: Path, name: tuple[str, ...], catalogue_file: Path, cache: ModelCache, *, accept_unverified: bool, as_json: bool
) -> None:
    """Import the models of an archive (a zip or the folder it was unpacked to) into the cache, and print their paths.

    Example: edgemeter models import-archive models.zip
    """
    entries = all_entries(catalogue_file)
    with progress_bar("bytes") as report:
        imported = model_archive.import_models(archive, name, entries, cache, report, accepts_unverified=accept_unverified)
    fetching.record_accepted(imported, entries, catalogue_file)
    _print_fetched(imported, cache, as_json=as_json)


@click.group(cls=DefaultGroup)
def cache() -> None:
    """List and clear the cache of fetched models.

    Example: edgemeter models cache list
    """


@cache.command("list")
@rows_json_option('Print {"folder": ..., "limit_bytes": ..., "held": [...]}.')
@options.limited_cache
def list_cache(cache: ModelCache, *, form: Format | None) -> None:
    """List the cached models, the most recently used first.

    Example: edgemeter models cache list
    """
    rows = [
        {"name": model.name, "path": str(model.path) if model.path else None, "size_bytes": model.size_bytes, "used_ns": model.used_ns}
        for model in cache.models()
    ]
    if not print_data(form, {"folder": str(cache.folder), "limit_bytes": cache.limit_bytes, "held": rows}, rows="held"):
        print_cached(cache, console_for(form))


@cache.command(short_help="Remove fetched models and unfinished downloads.")
@click.argument("name", nargs=-1)
@options.cache
def clear(name: tuple[str, ...], cache: ModelCache) -> None:
    """Remove fetched models (NAME, or all) and unfinished downloads; models in use are kept.

    Example: edgemeter models cache clear yolox-nano
    """
    cached = cache.models()
    if absent := sorted(set(name) - {model.name for model in cached}):
        raise ConfigError(f"the cache {str(cache.folder)!r} has no {', '.join(absent)}: `edgemeter models cache list` shows its models")
    for model in cached:
        if not name or model.name in name:
            click.echo(f"{'removed' if cache.remove(model) else 'in use, kept'}: {model.name}")
