"""The commands `edgemeter models ...`."""

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from edgemeter.agent.errors import ConfigError
from edgemeter.models import options
from edgemeter.models.cache import Cache
from edgemeter.models.catalogue_entry import Entry

# Commands of other modules, by name: imported when they are called.
ELSEWHERE = {
    "add": "edgemeter.models.add_cli:add",
    "cache": "edgemeter.models.cache_cli:cache",
    "convert": "edgemeter.models.convert_cli:convert",
    "export-bundle": "edgemeter.models.bundle_cli:export_bundle",
    "fetch": "edgemeter.models.fetch_cli:fetch",
    "import-bundle": "edgemeter.models.bundle_cli:import_bundle",
}


class _Group(click.Group):
    """A group whose larger commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *filter(self._is_there, ELSEWHERE)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE or not self._is_there(cmd_name):
            return super().get_command(ctx, cmd_name)
        module, _, attribute = ELSEWHERE[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    @staticmethod
    def _is_there(name: str) -> bool:
        return find_spec(ELSEWHERE[name].partition(":")[0]) is not None


@click.group(cls=_Group)
def models() -> None:
    """List models that are known, fetch them, add your own, convert and check them.

    Example: edgemeter models list
    """


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help='Print {"models": [those that ship], "catalogue": [entries]}.')
@options.catalogue
@options.cache
def list_models(catalogue_file: Path, cache: Path, limit_mb: int, *, as_json: bool) -> None:
    """List the models that ship, with what each file scores on the shipped scenes, and those that can be fetched or made.

    Example: edgemeter models list --json
    """
    import msgspec

    from edgemeter.models import catalogue, entries, table

    found, known = catalogue.models(), entries.entries(catalogue_file)
    if as_json:
        document = {"models": [table.shipped_row(model) for model in found], "catalogue": msgspec.to_builtins(list(known.values()))}
        click.echo(json.dumps(document, indent=2))
        return
    table.print_shipped(found)
    click.echo()
    table.print_catalogue(known.values(), Cache(cache, limit_mb * 1_000_000))


@models.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print the card or entry as JSON.")
@options.catalogue
@options.cache
def show(model: str, catalogue_file: Path, cache: Path, limit_mb: int, *, as_json: bool) -> None:
    """Show the card of a model file (a path, or the name of one that ships), or a catalogue's entry by its name.

    Example: edgemeter models show edgemeter-shapes_int8.tflite
    """
    from edgemeter.models import catalogue, entries

    known = entries.entries(catalogue_file)
    if model in known and not Path(model).is_file():
        _show_entry(known[model], Cache(cache, limit_mb * 1_000_000), as_json=as_json)
    elif Path(model).is_file() or (catalogue.FOLDER / model).is_file():
        _show_card(model, as_json=as_json)
    else:
        names = ", ".join(path.path.name for path in catalogue.models())
        message = f"there is no file {model!r}, none of that name ships ({names}), and the catalogue has none: `edgemeter models list`"
        raise ConfigError(message)


@models.command()
@click.argument("name", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help='Print {"files": [...]}.')
@options.catalogue
@options.cache
def verify(name: tuple[str, ...], catalogue_file: Path, cache: Path, limit_mb: int, *, as_json: bool) -> None:
    """Compare the hashes of model files (all that ship, were fetched or added; or those named) with the catalogue.

    Example: edgemeter models verify
    """
    from edgemeter.models import table
    from edgemeter.models import verify as verification

    found = verification.verify(name, Cache(cache, limit_mb * 1_000_000), catalogue_file)
    if as_json:
        keys = ("name", "state", "expected", "actual", "by")
        click.echo(json.dumps({"files": [{**{key: getattr(one, key) for key in keys}, "path": str(one.path)} for one in found]}, indent=2))
    else:
        table.print_checked(found)
    wrong = [one for one in found if one.state != "ok"]
    for one in wrong:
        what = "is not here" if one.state == "absent" else f"has sha256 {one.actual}, not {one.expected} ({one.by})"
        click.echo(f"edgemeter: {one.name}: {str(one.path)!r} {what}: fetch or add it again", err=True)
    if wrong:
        sys.exit(1)


@models.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("edgemeter-models"), show_default=True, help="Where to write.")
@click.option("--steps", type=click.IntRange(1), help="Training steps. Default: as many as the shipped models had.")
@click.option("--seed", type=click.IntRange(0), help="Draws other scenes and another first network. Default: the shipped one.")
@click.option("--threads", type=click.IntRange(1), help="Threads of the training; part of what decides its outcome. Default: 1.")
def build(out: Path, **changes: int | None) -> None:
    """Make the scenes and all model files again from nothing: draw, train, export, quantise, score.

    Example: edgemeter models build --out /tmp/models
    """
    from edgemeter.models import build as builder
    from edgemeter.models import table
    from edgemeter.models.progress_bar import shown
    from edgemeter.models.recipe import Recipe

    recipe = Recipe(**{name: value for name, value in changes.items() if value is not None})
    with shown() as tell:
        made = builder.build(out, recipe, tell)
    table.print_shipped(made)


def _show_card(model: str, *, as_json: bool) -> None:
    """Print the card of a file that is the one which the card describes."""
    import msgspec

    from edgemeter.agent.recognition import card
    from edgemeter.agent.runtimes import model_file
    from edgemeter.models import catalogue, table

    found = catalogue.find(model)
    actual = model_file.sha256(found.path)
    if found.about.sha256 not in (None, actual):
        message = f"{str(found.path)!r} has sha256 {actual}, its card says {found.about.sha256}: the file was changed, fetch it again"
        raise ConfigError(message)
    if as_json:
        click.echo(json.dumps({**table.shipped_row(found), "card": msgspec.to_builtins(found.about)}, indent=2))
    else:
        click.echo(card.beside(found.path).read_text(encoding="utf-8"), nl=False)


def _show_entry(entry: Entry, cache: Cache, *, as_json: bool) -> None:
    """Print an entry, and where its file is if it is here."""
    import msgspec

    from edgemeter.models import toml_text

    there = cache.find(entry.name)
    path = str(there[0]) if there else entry.path
    if as_json:
        click.echo(json.dumps({"entry": msgspec.to_builtins(entry), "path": path}, indent=2))
        return
    click.echo(toml_text.document(msgspec.to_builtins(entry)), nl=False)
    click.echo(f"\n# its file: {path or 'not here yet'}")
