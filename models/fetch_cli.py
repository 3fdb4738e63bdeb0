"""The command `edgemeter models fetch`."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.errors import EdgemeterError
from edgemeter.models import catalogue, entries, offline_bundle, options
from edgemeter.models.cache import Cache
from edgemeter.models.catalogue_entry import Entry, is_address
from edgemeter.models.fetch import into_cache
from edgemeter.models.fetch.into_cache import Fetched, Ways
from edgemeter.models.fetch.transport import TIMEOUT_S, Transport
from edgemeter.models.progress_bar import shown
from edgemeter.models.remember import remember


def _mirrors(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for address in value:
        if not is_address(address):
            message = f"{address!r} is no http or https address (without user and password)"
            raise click.BadParameter(message)
    return value


@click.command()
@click.argument("name", nargs=-1, required=True)
@click.option(
    "--mirror", multiple=True, callback=_mirrors, envvar="EDGEMETER_MODEL_MIRRORS", help="Folder on a server to ask first; again for more."
)
@click.option("--proxy", envvar="EDGEMETER_PROXY", help="http://HOST:PORT. Default: http_proxy and https_proxy of the environment.")
@click.option("--timeout-s", type=click.FloatRange(0.1), default=TIMEOUT_S, show_default=True, help="How long a server may be silent.")
@click.option("--accept-unverified", is_flag=True, help="Also take what has no sha256 in the catalogue; its hash is printed and kept.")
@click.option("--offline-bundle", type=click.Path(path_type=Path), help="Take it from this bundle (zip or folder), not from the network.")
@click.option("--json", "as_json", is_flag=True, help='Print {"fetched": [...]}.')
@options.catalogue
@options.cache
def fetch(name: tuple[str, ...], catalogue_file: Path, cache: Path, limit_mb: int, *, as_json: bool, **how: Any) -> None:
    """Fetch models of the catalogue, check them, put a card beside each, and print where they are.

    Example: edgemeter models fetch yolox-nano
    """
    held, known = Cache(cache, limit_mb * 1_000_000), entries.entries(catalogue_file)
    ways = Ways(Transport(how["proxy"], how["timeout_s"]), tuple(how["mirror"]), how["accept_unverified"])
    fetched: list[Fetched] = []
    failed = 0
    for one in dict.fromkeys(name):
        try:
            fetched += _one(one, known, held, ways, how["offline_bundle"], catalogue_file, [done.entry.name for done in fetched])
        except EdgemeterError as error:
            # The others can still be had; a single one fails as every command does.
            if len(set(name)) == 1:
                raise
            click.echo(f"edgemeter: {' '.join(str(error).split())}", err=True)
            failed = max(failed, error.exit_status)
    report(fetched, held, as_json=as_json)
    if failed:
        sys.exit(1)


def _one(
    name: str, known: Mapping[str, Entry], cache: Cache, ways: Ways, bundle: Path | None, own: Path, keep: Sequence[str]
) -> list[Fetched]:
    """Return the file of one entry; one that ships is where it is."""
    shipped = catalogue.FOLDER / name
    if name not in known and shipped in [model.path for model in catalogue.models()]:
        click.echo(f"{name} ships with Edgemeter: {shipped}", err=True)
        return []
    with shown("bytes") as tell:
        if bundle is None:
            done = [into_cache.fetch(entries.find(name, own), cache, ways, tell, keep)]
        else:
            done = offline_bundle.take(offline_bundle.Taken(bundle, (name,), ways.accept_unverified), known, cache, tell)
    remember(done, known, own)
    return done


def report(fetched: Sequence[Fetched], cache: Cache, *, as_json: bool) -> None:
    """Print where the files are; on standard error what else there is to know."""
    for one in fetched:
        if not one.was_verified:
            click.echo(
                f"edgemeter: {one.entry.name} could not be checked; it has sha256 {one.sha256}, to which later files are held", err=True
            )
        for name in one.removed:
            click.echo(f"edgemeter: removed {name} from the cache to keep below its limit", err=True)
    if excess := cache.excess_bytes():
        click.echo(f"edgemeter: the cache is {excess} bytes above its limit: what it holds is in use or was just fetched", err=True)
    if as_json:
        rows = [
            {
                "name": one.entry.name,
                "path": str(one.path),
                "sha256": one.sha256,
                "address": one.address,
                "is_new": one.is_new,
                "was_verified": one.was_verified,
                "removed": list(one.removed),
            }
            for one in fetched
        ]
        click.echo(json.dumps({"fetched": rows}, indent=2))
    else:
        for one in fetched:
            click.echo(one.path)
