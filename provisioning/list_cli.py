"""The command `edgemeter fleet list`."""

import json
import time

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

PLAIN_WIDTH = 220
# What somebody can look at on a terminal; a pipe gets them all.
MOST_ROWS = 300


@click.command(name="list")
@click.option("--on", "selection", default="all", help="Which devices: 'board=pi5 & coral', 'device=pi5-*'. Default: all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def list_devices(folder: FleetFolder, *, selection: str, as_json: bool) -> None:
    """List the devices and how they stand, the most urgent first.

    Example: edgemeter fleet list --on 'board=pi5'
    """
    from contextlib import closing

    from rich.console import Console

    from edgemeter.provisioning.inventory import list_table, overview
    from edgemeter.provisioning.inventory import selection as selecting
    from edgemeter.provisioning.registry.registry import Registry

    wanted = selecting.parse(selection)
    now_ns = time.time_ns()
    with closing(Registry(folder.registry, "read")) as registry:
        lines = [line for line in overview.read(folder, registry, now_ns) if wanted.fits(line.device)]
    if as_json:
        click.echo(json.dumps({"devices": [list_table.document(line) for line in lines]}, indent=2))
        return
    console = Console()
    console = console if console.is_terminal else Console(width=PLAIN_WIDTH)
    shown = lines[:MOST_ROWS] if console.is_terminal else lines
    if shown:
        table, below = list_table.shown(shown, now_ns, console.width)
        console.print(table)
        for note in below:
            console.print(note, markup=False, highlight=False, soft_wrap=True)
    if len(shown) < len(lines):
        console.print(f"... and {len(lines) - len(shown)} less urgent ones: narrow the list with --on, or pipe it", highlight=False)
    console.print(list_table.summary(lines), markup=False, highlight=False)
