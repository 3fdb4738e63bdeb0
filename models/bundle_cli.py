"""The commands `edgemeter models export-bundle` and `import-bundle`."""

from pathlib import Path

import click

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import model_file
from edgemeter.models import entries, offline_bundle, options
from edgemeter.models.cache import Cache
from edgemeter.models.catalogue_entry import Entry
from edgemeter.models.fetch_cli import report
from edgemeter.models.progress_bar import shown
from edgemeter.models.remember import remember


@click.command("export-bundle")
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("name", nargs=-1, required=True)
@options.catalogue
@options.cache
def export_bundle(out: Path, name: tuple[str, ...], catalogue_file: Path, cache: Path, limit_mb: int) -> None:
    """Write fetched models and your own to one zip, for machines without a network.

    Example: edgemeter models export-bundle models.zip yolox-nano
    """
    held = Cache(cache, limit_mb * 1_000_000)
    chosen = [_chosen(entries.find(one, catalogue_file), held) for one in dict.fromkeys(name)]
    with shown() as tell:
        made = offline_bundle.export(out, chosen, tell)
    click.echo(f"{out}: {len(made.models)} models, {out.stat().st_size} bytes", err=True)


@click.command("import-bundle")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("name", nargs=-1)
@click.option("--accept-unverified", is_flag=True, help="Also take what our catalogue does not know or has no sha256 of; its hash is kept.")
@click.option("--json", "as_json", is_flag=True, help='Print {"fetched": [...]}.')
@options.catalogue
@options.cache
def import_bundle(
    bundle: Path, name: tuple[str, ...], catalogue_file: Path, cache: Path, limit_mb: int, *, accept_unverified: bool, as_json: bool
) -> None:
    """Put the models of a bundle (a zip, or the folder it was unpacked to) into the cache, and print where they are.

    Example: edgemeter models import-bundle models.zip
    """
    held, known = Cache(cache, limit_mb * 1_000_000), entries.entries(catalogue_file)
    with shown("bytes") as tell:
        taken = offline_bundle.take(offline_bundle.Taken(bundle, name, accept_unverified), known, held, tell)
    remember(taken, known, catalogue_file)
    report(taken, held, as_json=as_json)


def _chosen(entry: Entry, cache: Cache) -> tuple[Entry, Path, str]:
    """Return an entry with its file and hash.

    Raises:
        UnavailableError: the file is not here.
        ConfigError: it is not the one that was fetched or added, or is not a single file.
    """
    there = cache.find(entry.name)
    path = there[0] if there else Path(entry.path) if entry.path else None
    if path is None or not path.is_file():
        message = f"{entry.name} is not here: `edgemeter models fetch {entry.name}` first"
        raise UnavailableError(message)
    if len(model_file.parts(path)) > 1:
        message = (
            f"{entry.name} has its weights in a second file, and a bundle carries one for each model: copy both by hand, and add it there"
        )
        raise ConfigError(message)
    digest = model_file.sha256(path)
    expected = entry.sha256 or (there[1].sha256 if there else None)
    if digest != expected:
        message = f"{str(path)!r} has sha256 {digest}, not {expected}: it was changed, fetch or add it again"
        raise ConfigError(message)
    return entry, path, digest
