"""The commands `edgemeter models list`, `show`, `sample`, `verify` and `add`."""

import re
import sys
from pathlib import Path

import click

from edgemeter.agent.base.completion import completes
from edgemeter.agent.base.errors import FAILED, ConfigError
from edgemeter.agent.base.model_names import model_names
from edgemeter.agent.base.options import format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.models.catalogue.catalogue import NAME_PATTERN, CatalogueEntry, own_file
from edgemeter.models.fetch.cache import ModelCache, cache_folder


@click.command("list")
@format_option('{"models": [shipped models], "catalogue": [entries]}; CSV holds the catalogue')
def list_models(*, form: Format) -> None:
    """List the shipped models with their accuracy on the shipped scenes, and the models that you can fetch or make.

    Example: edgemeter models list --format json
    """
    from edgemeter.models.catalogue.catalogue import all_entries
    from edgemeter.models.catalogue.shipped_models import shipped_language, shipped_models
    from edgemeter.models.cli.tables import print_catalogue, print_language, print_shipped, shipped_row

    shipped, language, entries = shipped_models(), shipped_language(), all_entries(own_file())
    document = {"models": [shipped_row(model) for model in shipped], "language_models": language, "catalogue": list(entries.values())}
    if print_data(form, document, rows="catalogue"):
        return
    console = console_for(form)
    print_shipped(shipped, console)
    print_language(language, console)
    console.print()
    print_catalogue(entries.values(), ModelCache(cache_folder()), console)


@click.command()
@click.argument("model", shell_complete=completes(model_names, files=True))
@format_option("", "table", "json")
def show(model: str, *, form: Format) -> None:
    """Show the card of a model file or shipped file, or a catalogue entry by its name.

    Example: edgemeter models show edgemeter-shapes_int8.tflite
    """
    from edgemeter.models.catalogue.catalogue import all_entries
    from edgemeter.models.fetch.local_files import named_model

    entries, path = all_entries(own_file()), Path(model)
    if not path.is_file() and model in entries:
        _show_entry(entries[model], ModelCache(cache_folder()), form=form)
        return
    path = path if path.is_file() else named_model(model, own_file())
    if not path.is_file():
        raise ConfigError(f"there is no file {model!r}: correct the path, or see `edgemeter models list`")
    _show_card(path, form=form)


@click.command()
@click.argument("name", nargs=-1)
@format_option('{"files": [...]}')
def verify(name: tuple[str, ...], *, form: Format) -> None:
    """Compare the hashes of model files with the catalogue: the files of NAME, or all shipped, fetched and added files.

    Example: edgemeter models verify
    """
    from edgemeter.models.cli.tables import print_checked
    from edgemeter.models.fetch.local_files import verify_models

    files = verify_models(name, ModelCache(cache_folder()), own_file())
    keys = ("name", "state", "expected", "actual", "by")
    if not print_data(form, {"files": [{**{key: getattr(file, key) for key in keys}, "path": str(file.path)} for file in files]}):
        print_checked(files, console_for(form))
    wrong = [file for file in files if file.state != "ok"]
    for file in wrong:
        problem = "is missing" if file.state == "absent" else f"has sha256 {file.actual}, expected {file.expected} ({file.by})"
        click.echo(f"edgemeter: {file.name}: {str(file.path)!r} {problem}: fetch or add it again", err=True)
    if wrong:
        sys.exit(FAILED)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def sample(folder: Path) -> None:
    """Write FOLDER with shipped models, photographs and annotations, as the pages of the documentation name them.

    Example: edgemeter models sample trial
    """
    from edgemeter.models.catalogue.shipped_models import write_sample

    click.echo(f"{folder}: {', '.join(write_sample(folder))}")


def _checked_name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.match(NAME_PATTERN, value):
        raise click.BadParameter(f"{value!r}: use letters, digits, dots, dashes and underscores, and begin with a letter or digit")
    return value


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", callback=_checked_name, help="Name of the entry. Default: the file's name.")
@click.option("--runtime", help="litert, onnx, pytorch, ... Default: chosen by the file's suffix.")
@click.option("--licence", help="Licence of the model. Default: the file's metadata.")
@click.option("--source", help="Where the model comes from.")
@click.option("--replace", is_flag=True, help="Replace an entry of the same name.")
@format_option('{"entry": ..., "guesses": [...]}', "table", "json")
def add(file: Path, *, form: Format, **options: str | bool | None) -> None:
    """Add your own model file to your catalogue; shapes, quantisation, labels and metadata are read from the file.

    Example: edgemeter models add model.tflite --licence Apache-2.0
    """
    import msgspec

    from edgemeter.agent.contract.model_card import UNSURE_FAMILY
    from edgemeter.models.catalogue.add import NewEntry, add_model

    entry, guesses = add_model(file, msgspec.convert(options, NewEntry), own_file())
    for guess in guesses:
        click.echo(f"edgemeter: {guess}", err=True)
    if print_data(form, {"entry": entry, "guesses": guesses}):
        return
    for kind, tensors in (("input", entry.inputs), ("output", entry.outputs)):
        for tensor in tensors:
            scale = "" if tensor.scale is None else f", real = {tensor.scale:.6g} x (q - {tensor.zero_point or 0})"
            click.echo(f"{kind} {tensor.name}: {tensor.dtype} {list(tensor.shape)}{scale}".replace("'?'", "?"))
    family = entry.family + "?" * any(UNSURE_FAMILY in guess for guess in guesses)
    click.echo(f"{entry.name}: {entry.task}, {family}, {entry.precision}, {len(entry.output.labels)} labels, sha256 {entry.sha256}")
    click.echo(f"entry written to {own_file()}, card beside the file", err=True)


def _show_card(path: Path, *, form: Format) -> None:
    """Print the card of a file, if the file has the hash in its card."""
    from edgemeter.agent.contract import model_file
    from edgemeter.agent.contract.model_card import card_path
    from edgemeter.models.catalogue.shipped_models import find_model
    from edgemeter.models.cli.tables import shipped_row

    model = find_model(path)
    actual = model_file.sha256(path)
    if model.about.sha256 not in (None, actual):
        raise ConfigError(f"{str(path)!r} has sha256 {actual}, but its card has {model.about.sha256}: the file was changed, fetch it again")
    if not print_data(form, {**shipped_row(model), "card": model.about}):
        click.echo(card_path(path).read_text(encoding="utf-8"), nl=False)


def _show_entry(entry: CatalogueEntry, cache: ModelCache, *, form: Format) -> None:
    """Print an entry and the path of its file."""
    import msgspec

    from edgemeter.agent.base.toml import toml_document

    path, _ = cache.local_file(entry)
    if print_data(form, {"entry": entry, "path": None if path is None else str(path)}):
        return
    click.echo(toml_document(msgspec.to_builtins(entry)), nl=False)
    click.echo(f"\n# file: {path or 'not fetched'}")
