"""The commands that show devices: `edgemeter fleet list`, `show`."""

import time
from collections import Counter

import click
from msgspec import to_builtins

from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.terminal import print_lines, print_text
from edgemeter.provisioning.cli.options import in_folder, print_notes, selection_option
from edgemeter.provisioning.health import overview
from edgemeter.provisioning.health.device_view import device_sheet, fleet_table, overview_document
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory import selection as selecting
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.devices import find_presence

# Rows that fit on a terminal; a pipe gets all.
MOST_ROWS = 300


@click.command(name="list")
@selection_option("list", otherwise="all")
@format_option()
@in_folder
def list_devices(folder: FleetFolder, *, selection: str, form: Format) -> None:
    """List the devices, those that need attention first.

    Example: edgemeter fleet list --on 'board=pi5'
    """
    fits = selecting.parse(selection)
    now_ns = time.time_ns()
    with open_registry(folder, read_only=True) as registry:
        lines = [line for line in overview.read(folder, registry, now_ns) if fits(line.device)]
    problems = server_issues(folder, now_ns)
    if print_data(
        form, {"devices": [overview_document(line) for line in lines], "server": problems}
    ):
        return
    console = console_for(form)
    visible = lines[:MOST_ROWS] if console.is_terminal else lines
    if visible:
        console.print(fleet_table(visible, now_ns, console.width))
    if len(visible) < len(lines):
        print_text(
            console,
            f"... and {len(lines) - len(visible)} less urgent ones: narrow the list "
            "with --on, or pipe it",
        )
    counts = Counter(line.state for line in lines).most_common()
    print_text(
        console,
        f"{count(len(lines), 'device')}: "
        f"{', '.join(f'{number} {state}' for state, number in counts) or 'none'}",
    )
    print_notes(problems)


@click.command()
@click.argument("device")
@format_option()
@in_folder
def show(device: str, folder: FleetFolder, *, form: Format) -> None:
    """Show a device with its issues and reports.

    Example: edgemeter fleet show pi5-01
    """
    now_ns = time.time_ns()
    with open_registry(folder, read_only=True) as registry:
        line = next(
            (
                line
                for line in overview.read(folder, registry, now_ns)
                if line.device.device == device
            ),
            None,
        )
        reported = find_presence(registry, device)
    if line is None:
        raise ConfigError(f"no device is named {device!r}: `edgemeter fleet list` lists them")
    # With its health as reported, plausible or not.
    if not print_data(
        form,
        {**overview_document(line), "said": to_builtins(reported and reported.health)},
        rows="",
    ):
        print_lines(console_for(form), device_sheet(line, now_ns))
