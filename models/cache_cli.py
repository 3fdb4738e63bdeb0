"""The commands `edgemeter models cache ...`."""

import json
from pathlib import Path

import click

from edgemeter.agent.errors import ConfigError
from edgemeter.models import options, table
from edgemeter.models.cache import Cache


@click.group()
def cache() -> None:
    """See and clear the folder of fetched models.

    Example: edgemeter models cache list
    """


@cache.command("list")
@click.option("--json", "as_json", is_flag=True, help='Print {"folder": ..., "limit_bytes": ..., "held": [...]}.')
@options.cache
def list_cache(cache: Path, limit_mb: int, *, as_json: bool) -> None:
    """List what is in the cache, what was used last first.

    Example: edgemeter models cache list
    """
    there = Cache(cache, limit_mb * 1_000_000)
    if not as_json:
        table.print_held(there)
        return
    held = [
        {"name": one.name, "path": str(one.path) if one.path else None, "size_bytes": one.size_bytes, "used_ns": one.used_ns}
        for one in there.held()
    ]
    click.echo(json.dumps({"folder": str(there.folder), "limit_bytes": there.limit_bytes, "held": held}, indent=2))


@cache.command()
@click.argument("name", nargs=-1)
@options.cache
def clear(name: tuple[str, ...], cache: Path, limit_mb: int) -> None:
    """Remove fetched models (all, or those named) and what downloads left unfinished; one that is in use stays.

    Example: edgemeter models cache clear yolox-nano
    """
    there = Cache(cache, limit_mb * 1_000_000)
    held = there.held()
    if absent := sorted(set(name) - {one.name for one in held}):
        message = f"the cache {str(cache)!r} has no {', '.join(absent)}: `edgemeter models cache list` shows what it has"
        raise ConfigError(message)
    for one in held:
        if not name or one.name in name:
            click.echo(f"{'removed' if there.remove(one) else 'in use, kept'}: {one.name}")
