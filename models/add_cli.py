"""The command `edgemeter models add`."""

import json
import re
from pathlib import Path

import click
import msgspec

from edgemeter.models import options
from edgemeter.models.add import Wanted
from edgemeter.models.add import add as add_file
from edgemeter.models.catalogue_entry import NAME_PATTERN


def _name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.match(NAME_PATTERN, value):
        message = f"{value!r} may hold letters, digits, dots, dashes and underscores, and begins with a letter or digit"
        raise click.BadParameter(message)
    return value


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", callback=_name, help="What the entry is called. Default: the file's name.")
@click.option("--runtime", help="litert, onnx, pytorch, ... Default: by the file's suffix.")
@click.option("--licence", help="Its licence. Default: what the file says.")
@click.option("--source", help="Where it comes from.")
@click.option("--replace", is_flag=True, help="Put it in place of another entry of this name.")
@click.option("--json", "as_json", is_flag=True, help='Print {"entry": ..., "guesses": [...]}.')
@options.catalogue
def add(file: Path, catalogue_file: Path, *, as_json: bool, **said: str | bool | None) -> None:
    """Add a model file of your own to your catalogue: shapes, quantisation, labels and metadata are read from it.

    Example: edgemeter models add model.tflite --licence Apache-2.0
    """
    entry, guesses = add_file(file, msgspec.convert(said, Wanted), catalogue_file)
    for guess in guesses:
        click.echo(f"edgemeter: {guess}", err=True)
    if as_json:
        click.echo(json.dumps({"entry": msgspec.to_builtins(entry), "guesses": guesses}, indent=2))
        return
    for way, tensors in (("takes", entry.inputs), ("gives", entry.outputs)):
        for one in tensors:
            scale = "" if one.scale is None else f", real = {one.scale:.6g} x (q - {one.zero_point or 0})"
            click.echo(f"{way} {one.name}: {one.dtype} {list(one.shape)}{scale}".replace("'?'", "?"))
    click.echo(f"{entry.name}: {entry.task}, {entry.family}, {entry.precision}, {len(entry.output.labels)} labels, sha256 {entry.sha256}")
    click.echo(f"entry in {catalogue_file}, card beside the file", err=True)
