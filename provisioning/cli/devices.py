"""The commands that show and reset devices and switch their power: `edgemeter fleet list`, `show`, `clear`, `power`."""

import sys
import time

import click

from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import DONE, ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import print_text
from edgemeter.provisioning.cli.options import change_options, devices_argument, folder_option, format_option, print_notes, selection_option
from edgemeter.provisioning.health import overview
from edgemeter.provisioning.health.device_view import device_document, device_sheet, fleet_summary, fleet_table, overview_document
from edgemeter.provisioning.health.health_handler import clear_device
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory import selection as selecting
from edgemeter.provisioning.inventory.fleet_file import FleetFile, open_registry, read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.canary_runs import read_canary_runs
from edgemeter.provisioning.registry.devices import find_presence
from edgemeter.provisioning.registry.jobs import executions_of_device, find_in_flight
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.registry.rescues import begin_power_action, end_power_action, read_measuring, read_power_actions
from edgemeter.provisioning.rescue import PowerSwitch, wiring
from edgemeter.provisioning.rescue.rescue_handler import why_not_cut
from edgemeter.provisioning.rescue.wiring import Neighbours, Wiring

# Rows that fit a reader's patience on a terminal; a pipe gets all of them.
MOST_ROWS = 300
# A measuring device reports its progress every few seconds, except during the timed part of a run.
STILL_MEASURING_S = 900.0


@click.command(name="list")
@selection_option("list", otherwise="all")
@format_option
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
    written = read_if_present(folder)
    entries = written.device if written else {}
    reached = {name: {"host": entry.host, "user": entry.user, "port": entry.port} for name, entry in entries.items()}
    documents = [overview_document(line) | reached.get(line.device.device, {}) for line in lines]
    if print_data(form, {"devices": documents, "server": problems}):
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
@format_option
@folder_option
def show(device: str, folder: FleetFolder, *, form: Format | None) -> None:
    """Show everything about a device: its issues, reports, canary runs and power actions.

    Example: edgemeter fleet show pi5-01
    """
    now_ns = time.time_ns()
    with open_registry(folder, read_only=True) as registry:
        line = next((entry for entry in overview.read(folder, registry, now_ns) if entry.device.device == device), None)
        if line is None:
            raise ConfigError(f"no device is named {device!r}: `edgemeter fleet list` lists them")
        heard = find_presence(registry, device)
        runs, actions = read_canary_runs(registry, device), read_power_actions(registry, device)
        ended = [
            execution for execution in executions_of_device(registry, device) if execution.is_final and execution.job.startswith("golden-")
        ]
    if not print_data(form, device_document(line, heard.health if heard else None, runs, actions), rows=""):
        console_for(form).print(device_sheet(line, runs, actions, ended[0] if ended else None, now_ns))


@click.command()
@devices_argument
@click.option("--new-band", is_flag=True, help="Restart the baseline, because the present figures are right. Default: keep it.")
@change_options
def clear(devices: tuple[str, ...], folder: FleetFolder, *, new_band: bool, dry_run: bool, as_json: bool) -> None:
    """Trust devices (names or selections) again that are suspect, banned or need attention; each runs its canary next.

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
        click.echo(f"{device}: {would}{text or 'nothing to clear: it is neither suspect nor banned nor in need of attention'}")


@click.command()
@click.argument("device")
@click.argument("action", type=click.Choice(["on", "off", "cycle", "status"]))
@click.option("--force", is_flag=True, help="Cut the power even if a run may be in progress: that run is lost.")
@change_options
def power(device: str, action: str, folder: FleetFolder, *, force: bool, dry_run: bool, as_json: bool) -> None:
    """Switch the power of a device on or off, cycle it, or show its state.

    Example: edgemeter fleet power pi5-01 cycle
    """
    written = fleet_file.read(folder.fleet_file)
    wired = wiring.wiring_of(device, written, folder)
    if wired is None:
        raise ConfigError(
            f"device {device!r} has no switch: set switch in [device.{device}] of {str(folder.fleet_file)!r} to {wiring.WRITTEN}"
        )
    switch = wiring.open_switch(wired)
    with open_registry(folder) as registry:
        if action in {"off", "cycle"} and not force:
            _check_power(wired, written, registry)
        if dry_run:
            click.echo(f"{device}: would {action} {wired.text}")
            return
        outcome = "" if action == "status" else _switch_power(registry, wired, switch, action, written.rescue.off_s)
    state = switch.state()
    if as_json:
        print_json({"device": device, "switch": wired.text, "is_on": state.is_on, "warnings": list(state.warnings)})
    else:
        click.echo(f"{device}: {outcome}{ {True: 'on', False: 'off', None: 'unknown'}[state.is_on] }")
        for warning in state.warnings:
            click.echo(f"edgemeter: {wired.text}: {warning}", err=True)
    sys.exit(DONE)


def _check_power(wired: Wiring, written: FleetFile, registry: Registry) -> None:
    neighbours = Neighbours(written, wired.folder).of(wired, registry)
    in_flight = {name: execution.job for name in (wired.device, *neighbours) if (execution := find_in_flight(registry, name)) is not None}
    # A person is watching: a device that still measured would have reported since.
    why = why_not_cut(wired.device, neighbours, in_flight, read_measuring(registry), STILL_MEASURING_S, time.time_ns())
    if why is not None:
        raise UnavailableError(f"the power of {wired.device!r} is not cut: {why}; wait, or give --force and lose the run")


def _switch_power(registry: Registry, wired: Wiring, switch: PowerSwitch, action: str, off_s: float) -> str:
    with registry.transaction() as connection:
        number = begin_power_action(connection, wired.device, wired.text, action, "hand", time.time_ns())
    outcome = "interrupted"
    try:
        if action == "cycle":
            click.echo(f"{wired.device}: power off for {off_s:g} s ...", err=True)
            switch.cycle(off_s)
        else:
            switch.turn("on" if action == "on" else "off")
        outcome = "done"
    except EdgemeterError as error:
        outcome = str(error)
        raise
    finally:
        with registry.transaction() as connection:
            end_power_action(connection, number, outcome, time.time_ns())
    return f"{action} done, power is "
