"""The commands that show and reset devices: `edgemeter fleet list`, `show`, `clear`."""

import time

import click

from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import print_text
from edgemeter.provisioning.cli.options import (
    change_options,
    devices_argument,
    folder_option,
    print_notes,
    rows_json_option,
    selection_option,
)
from edgemeter.provisioning.health import overview
from edgemeter.provisioning.health.device_view import device_document, device_sheet, fleet_summary, fleet_table, overview_document
from edgemeter.provisioning.health.health_handler import clear_device
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory import selection as selecting
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.canary_runs import read_canary_runs
from edgemeter.provisioning.registry.devices import find_presence
from edgemeter.provisioning.registry.jobs import executions_of_device

# Rows that fit a reader's patience on a terminal; a pipe gets all of them.
MOST_ROWS = 300


@click.command(name="list")
@selection_option("list", otherwise="all")
@rows_json_option
@folder_option
def list_devices(folder: FleetFolder, *, selection: str, form: Format | None) -> None:
    """List the devices with their state, the most urgent first.

    Example: edgemeter fleet list --on 'board=pi5'
    """
    parsed = selecting.parse(selection)
    now_ns = time.time_ns()
    with open_registry(folder, read_only=True) as registry:
        lines = [line for line in overview.read(folder, registry, now_ns) if parsed.fits(line.device)]
    problems = server_issues(folder, now_ns)
    if print_data(form, {"devices": [overview_document(line) for line in lines], "server": problems}):
        return
    console = console_for(form)
    visible = lines[:MOST_ROWS] if console.is_terminal else lines
    if visible:
        table, below = fleet_table(visible, now_ns, console.width)
        console.print(table)
        for note in below:
            print_text(console, note)
    if len(visible) < len(lines):
        print_text(console, f"... and {len(lines) - len(visible)} less urgent ones: narrow the list with --on, or pipe it")
    print_text(console, fleet_summary(lines))
    print_notes(problems)


@click.command()
@click.argument("device")
@rows_json_option
@folder_option
def show(device: str, folder: FleetFolder, *, form: Format | None) -> None:
    """Show everything about a device: its issues, reports and canary runs.

    Example: edgemeter fleet show pi5-01
    """
    now_ns = time.time_ns()
    with open_registry(folder, read_only=True) as registry:
        line = next((entry for entry in overview.read(folder, registry, now_ns) if entry.device.device == device), None)
        if line is None:
            raise ConfigError(f"no device is named {device!r}: `edgemeter fleet list` lists them")
        heard = find_presence(registry, device)
        runs = read_canary_runs(registry, device)
        ended = [
            execution for execution in executions_of_device(registry, device) if execution.is_final and execution.job.startswith("golden-")
        ]
    if not print_data(form, device_document(line, heard.health if heard else None, runs), rows=""):
        console_for(form).print(device_sheet(line, runs, ended[0] if ended else None, now_ns))


@click.command()
@devices_argument
@click.option("--new-band", is_flag=True, help="Restart the baseline, because the present figures are right. Default: keep it.")
@change_options
def clear(devices: tuple[str, ...], folder: FleetFolder, *, new_band: bool, dry_run: bool, as_json: bool) -> None:
    """Trust devices (names or selections) again that are suspect or banned; each runs its canary next.

    Example: edgemeter fleet clear pi5-01
    """
    parsed = selecting.parse(" | ".join(f"({name})" for name in devices))
    now_ns = time.time_ns()
    with open_registry(folder, read_only=dry_run) as registry:
        matching = [line.device for line in overview.read(folder, registry, now_ns) if parsed.fits(line.device)]
        if not matching:
            raise ConfigError(f"no device matches {' '.join(devices)!r}: `edgemeter fleet list` lists them")
        outcomes = {
            device.device: clear_device(registry, device.device, device.fleet, now_ns, new_band=new_band, is_dry_run=dry_run)
            for device in matching
        }
    if as_json:
        documents = [{"device": device, "done": text, "dry_run": dry_run} for device, text in outcomes.items()]
        print_json({"devices": documents})
        return
    for device, text in outcomes.items():
        would = "would be " if dry_run and text else ""
        click.echo(f"{device}: {would}{text or 'nothing to clear: it is neither suspect nor banned'}")
