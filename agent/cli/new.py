"""The command `edgemeter new`: write a package with a plug-in of one's own."""

from pathlib import Path

import click

from edgemeter.agent.base.options import PATH
from edgemeter.agent.scaffold.plugin_package import KINDS, write_package


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name")
@click.option("-o", "--output", "out", type=PATH, default=Path(), help="Folder to write it into. Default: the current one.")
def new(kind: str, name: str, out: Path) -> None:
    """Write a Python package with a runtime, sensor, task, decoder or data-set reader of your own.

    It has one module, a fixture, and a test that checks the contract of its kind. The test passes from the start: replace the example in
    the module step by step.

    Example: edgemeter new sensor my-meter
    """
    package = write_package(kind, name, out)
    click.echo(f"{package}: a {kind} called {name!r}. Install it and run its test:\n")
    click.echo(f"    pip install -e '{package}[test]'\n    pytest {package}")
