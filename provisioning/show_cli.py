"""The commands `edgemeter fleet show` and `edgemeter fleet clear`."""

import json
import time

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

PLAIN_WIDTH = 160


@click.command()
@click.argument("device")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def show(device: str, folder: FleetFolder, *, as_json: bool) -> None:
    """Show all that is known of a device: what it says of itself, its golden runs, what was done to its power.

    Example: edgemeter fleet show pi5-01
    """
    from contextlib import closing

    from rich.console import Console

    from edgemeter.agent.errors import ConfigError
    from edgemeter.provisioning.health import golden
    from edgemeter.provisioning.inventory import device_sheet, overview
    from edgemeter.provisioning.jobs import executions
    from edgemeter.provisioning.registry.registry import Registry
    from edgemeter.provisioning.rescue import attempts

    now_ns = time.time_ns()
    with closing(Registry(folder.registry, "read")) as registry:
        line = next((one for one in overview.read(folder, registry, now_ns) if one.device.device == device), None)
        if line is None:
            message = f"no device is called {device!r}: `edgemeter fleet list` names them"
            raise ConfigError(message)
        runs, actions = golden.runs(registry, device), attempts.of_device(registry, device)
        ended = [one for one in executions.of_device(registry, device) if one.is_final and one.job.startswith("golden-")]
    if as_json:
        click.echo(json.dumps(device_sheet.document(line, runs, actions), indent=2))
        return
    console = Console()
    console = console if console.is_terminal else Console(width=PLAIN_WIDTH)
    console.print(device_sheet.sheet(line, runs, actions, ended[0] if ended else None, now_ns))


@click.command()
@click.argument("devices", nargs=-1, required=True)
@click.option(
    "--new-band", is_flag=True, help="What it shows now is right: begin its band anew. Without: it was repaired, its old band holds."
)
@click.option("--dry-run", is_flag=True, help="Say what would be cleared, and clear nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def clear(devices: tuple[str, ...], folder: FleetFolder, *, new_band: bool, dry_run: bool, as_json: bool) -> None:
    """Say that devices (names or selections) are good again, or need no hand any more; each has its golden job next.

    Example: edgemeter fleet clear pi5-01
    """
    from contextlib import closing

    from edgemeter.agent.errors import ConfigError
    from edgemeter.provisioning.health import clearing
    from edgemeter.provisioning.inventory import overview, selection
    from edgemeter.provisioning.registry.registry import Registry

    wanted = selection.parse(" | ".join(f"({one})" for one in devices))
    now_ns = time.time_ns()
    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        found = [line.device for line in overview.read(folder, registry, now_ns) if wanted.fits(line.device)]
        if not found:
            message = f"no device fits {' '.join(devices)!r}: `edgemeter fleet list` names them"
            raise ConfigError(message)
        done = {
            one.device: clearing.clear(registry, one.device, one.fleet, now_ns, new_band=new_band, is_rehearsal=dry_run) for one in found
        }
    if as_json:
        told = [{"device": device, "done": text, "dry_run": dry_run} for device, text in done.items()]
        click.echo(json.dumps({"devices": told}, indent=2))
        return
    for device, text in done.items():
        would = "would be " if dry_run and text else ""
        click.echo(f"{device}: {would}{text or 'nothing to clear: it is not suspect, and needs no hand'}")
