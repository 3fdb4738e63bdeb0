"""The commands `edgemeter models list`, `show`, `sample` and `add`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from edgemeter.agent.base.cli.completion import completes
from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.console import BETWEEN_COLUMNS, Table
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.model_names import model_names
from edgemeter.agent.base.toml import toml_document
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import UNSURE_FAMILY, card_path
from edgemeter.models.catalogue.catalogue import all_entries, own_file
from edgemeter.models.catalogue.shipped_models import (
    find_model,
    shipped_language,
    shipped_models,
    write_sample,
)
from edgemeter.models.fetch.fetching import local_file
from edgemeter.models.fetch.local_files import named_model


@click.command("list")
@format_option(
    '{"models": [shipped models], "language_models": [...], "catalogue": [entries]}; CSV holds '
    "the catalogue"
)
def list_models(*, form: Format) -> None:
    """List the shipped models, and those that you can fetch or make.

    Example: edgemeter models list --format json
    """
    models, language, entries = shipped_models(), shipped_language(), all_entries().values()
    document = {
        "models": [
            {"file": model.path.name, **msgspec.to_builtins(model.about)} for model in models
        ],
        "language_models": language,
        "catalogue": [
            {
                **msgspec.to_builtins(entry),
                "status": "verified" if entry.is_verified else "unverified",
            }
            for entry in entries
        ],
    }
    if print_data(form, document, rows="catalogue"):
        return
    console = console_for(form)
    table = Table("name", "licence", "sha256", "accuracy", "get by")
    # The names leave little room on 80 columns.
    table.gap = 1 if console.is_terminal else BETWEEN_COLUMNS
    for model in models:
        table.add_row(
            model.path.name,
            model.about.licence or "",
            (model.about.sha256 or "")[:8],
            _score(model.about.accuracy),
            "ships",
        )
    for file in language:
        table.add_row(file["file"], file["licence"], file["sha256"][:8], "", "ships")
    for entry in entries:
        get_by = "(here)" if local_file(entry).is_file() else "fetch" if entry.address else "export"
        score = _score(msgspec.to_builtins(entry.accuracy) or {})
        checked = entry.sha256[:8] if entry.sha256 and entry.is_verified else "unverified"
        table.add_row(entry.name, entry.licence[:10], checked, score, get_by)
    console.print(table)
    click.echo("unverified: no sha256 is known but that of the file that was fetched first")
    click.echo("(N): scored by us over N images; ~: published for the original weights")


def _score(accuracy: Mapping[str, Any]) -> str:
    """Return an accuracy with the number of its images, and a tilde before a published one."""
    if not accuracy:
        return ""
    text = f"{accuracy['value']:.3f} {metric_name(accuracy['metric'])}"
    return f"{text} ({accuracy['images']})" if accuracy.get("images") else f"~{text}"


@click.command()
@click.argument("model", shell_complete=completes(model_names, files=True))
@format_option("", "table", "json")
def show(model: str, *, form: Format) -> None:
    """Show a model's card, or a catalogue entry.

    Example: edgemeter models show edgemeter-shapes_int8.tflite
    """
    path, entry = Path(model), all_entries().get(model)
    if entry is not None and not path.is_file():
        path = local_file(entry)
        if not print_data(form, {"entry": entry, "path": str(path) if path.is_file() else None}):
            click.echo(toml_document(msgspec.to_builtins(entry)), nl=False)
            click.echo(f"\n# file: {path if path.is_file() else 'not here'}")
        return
    path = path if path.is_file() else named_model(model)
    card = find_model(path).about
    actual = model_file.sha256(path)
    if card.sha256 not in (None, actual):
        raise ConfigError(
            f"{str(path)!r} has sha256 {actual}, but its card has {card.sha256}: the file was "
            "changed, fetch it again"
        )
    if not print_data(form, {"file": str(path), "size_bytes": path.stat().st_size, "card": card}):
        click.echo(card_path(path).read_text(encoding="utf-8"), nl=False)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def sample(folder: Path) -> None:
    """Write a folder with models, photographs and annotations to try.

    Example: edgemeter models sample trial
    """
    click.echo(f"{folder}: {', '.join(write_sample(folder))}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the entry. Default: the file's name.")
@click.option("--runtime", help="litert, onnx, pytorch, ... Default: chosen by the file's suffix.")
@click.option("--licence", help="Licence of the model. Default: the file's metadata.")
@click.option("--source", help="Where the model comes from.")
@click.option("--replace", is_flag=True, help="Replace an entry of the same name.")
@format_option(
    '{"entry": ..., "inputs": [...], "outputs": [...], "guesses": [...]}', "table", "json"
)
def add(file: Path, *, replace: bool, form: Format, **options: str | None) -> None:
    """Add a model file to your catalogue.

    Shapes, quantisation, labels and metadata are read from the file.

    Example: edgemeter models add model.tflite --licence Apache-2.0
    """
    # It imports runtimes and the recognition of models.
    from edgemeter.models.catalogue.add import add_model

    entry, loaded, guesses = add_model(file, **options, replace=replace)
    for guess in guesses:
        click.echo(f"edgemeter: {guess}", err=True)
    if print_data(
        form,
        {"entry": entry, "inputs": loaded.inputs, "outputs": loaded.outputs, "guesses": guesses},
    ):
        return
    for kind, tensors in (("input", loaded.inputs), ("output", loaded.outputs)):
        for tensor in tensors:
            scale = (
                ""
                if tensor.scale is None
                else f", real = {tensor.scale:.6g} x (q - {tensor.zero_point or 0})"
            )
            click.echo(
                f"{kind} {tensor.name}: {tensor.dtype} {list(tensor.shape)}{scale}".replace(
                    "None", "?"
                )
            )
    family = entry.family + "?" * any(guess.kind == UNSURE_FAMILY for guess in guesses)
    click.echo(
        f"{entry.name}: {entry.task}, {family}, {entry.precision}, {len(entry.output.labels)} "
        f"labels, sha256 {entry.sha256}"
    )
    click.echo(f"entry written to {own_file()}, card next to the file", err=True)
