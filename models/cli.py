"""The commands `edgemeter models ...`."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.models import catalogue
from edgemeter.models.progress import Tell, silent


@click.group()
def models() -> None:
    """List, show and rebuild the models that ship.

    Example: edgemeter models list
    """


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help='Print {"models": [...]}.')
def list_models(*, as_json: bool) -> None:
    """List the models that ship, with what each file scores on the shipped scenes.

    Example: edgemeter models list --json
    """
    found = catalogue.models()
    if as_json:
        click.echo(json.dumps({"models": [_row(model) for model in found]}, indent=2))
    else:
        _print_table(found)


@models.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print the card as JSON.")
def show(file: str, *, as_json: bool) -> None:
    """Show the card of a model file: a path, or the name of one that ships.

    Example: edgemeter models show edgemeter-shapes_int8.tflite
    """
    found = catalogue.find(file)
    actual = catalogue.sha256(found.path)
    if found.about.sha256 not in (None, actual):
        message = f"{str(found.path)!r} has sha256 {actual}, its card says {found.about.sha256}: the file was changed, fetch it again"
        raise ConfigError(message)
    if as_json:
        import msgspec

        click.echo(json.dumps({**_row(found), "card": msgspec.to_builtins(found.about)}, indent=2))
    else:
        click.echo(card.beside(found.path).read_text(encoding="utf-8"), nl=False)


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
    from edgemeter.models.recipe import Recipe

    recipe = Recipe(**{name: value for name, value in changes.items() if value is not None})
    with _progress() as tell:
        made = builder.build(out, recipe, tell)
    _print_table(made)


def _row(model: catalogue.ModelFile) -> dict[str, Any]:
    """Return one model as a row of the table."""
    return {
        "name": model.about.name,
        "file": str(model.path),
        "format": model.format,
        "precision": model.about.precision,
        "size_bytes": model.size_bytes,
        "accuracy": model.about.accuracy,
        "sha256": model.about.sha256,
    }


def _print_table(found: list[catalogue.ModelFile]) -> None:
    """Print one table per model name; narrow enough for 80 columns."""
    from rich.console import Console
    from rich.table import Table

    for name in dict.fromkeys(model.about.name for model in found):
        table = Table("file", "format", "precision", title=name, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("kB", "AP"):
            table.add_column(heading, justify="right")
        table.add_column("sha256")
        for model in (model for model in found if model.about.name == name):
            ap = model.about.accuracy.get("value")
            figures = (f"{model.size_bytes / 1000:.0f}", "" if ap is None else f"{float(ap):.3f}", (model.about.sha256 or "")[:8])
            table.add_row(model.path.name, model.format, model.about.precision, *figures)
        Console().print(table)


@contextmanager
def _progress() -> Iterator[Tell]:
    """Yield what shows progress on a terminal; nothing is shown elsewhere."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)

        def tell(step: str, done: int, total: int) -> None:
            bars.update(bar, description=step, completed=done, total=total)

        yield tell
