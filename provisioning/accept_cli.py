"""The commands `edgemeter fleet pending`, `accept`, `reject` and `revoke`: who belongs to the fleet."""

from typing import TYPE_CHECKING

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgemeter.provisioning.identity.admission import Deed
    from edgemeter.provisioning.registry.registry import Registry


@click.command()
@folder_option
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def pending(folder: FleetFolder, *, as_json: bool) -> None:
    """List the boards that ask for a certificate and need somebody's yes, with the reason.

    Example: edgemeter fleet pending
    """
    import json

    from rich.console import Console
    from rich.table import Table

    from edgemeter.provisioning.identity import admission, requests
    from edgemeter.provisioning.registry.registry import Registry

    registry = Registry(folder.registry, "read")
    try:
        waiting = requests.undecided(registry)
    finally:
        registry.close()
    if as_json:
        click.echo(json.dumps([admission.described(one) for one in waiting]))
        return
    if not waiting:
        click.echo("nobody waits", err=True)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("request", "device", "serial", "board", "why"):
        table.add_column(heading, overflow="fold")
    for one in waiting:
        table.add_row(one.request[:12], one.device, f"{one.serial} ({one.serial_source})", one.board or "-", one.why)
    Console().print(table)


@click.command()
@click.argument("devices", nargs=-1, required=True, metavar="DEVICE...")
@folder_option
@click.option("--as", "name", metavar="NAME", help="What the board is to be called. Needed for a copied card.")
@click.option("--dry-run", is_flag=True, help="Say what would be accepted.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def accept(devices: tuple[str, ...], folder: FleetFolder, name: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Say yes to boards that wait, by device or request; a device that was revoked may have a token again.

    Example: edgemeter fleet accept pi5-01
    """
    from edgemeter.provisioning.identity import admission

    if name is not None and len(devices) > 1:
        message = "--as names one board: accept one at a time"
        raise click.UsageError(message)
    _each(folder, devices, lambda registry, device: admission.accept(registry, device, name), dry_run=dry_run, as_json=as_json)


@click.command()
@click.argument("devices", nargs=-1, required=True, metavar="DEVICE...")
@folder_option
@click.option("--dry-run", is_flag=True, help="Say what would be rejected.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def reject(devices: tuple[str, ...], folder: FleetFolder, *, dry_run: bool, as_json: bool) -> None:
    """Say no to boards that wait, by device or request: their tokens end.

    Example: edgemeter fleet reject pi5-01
    """
    from edgemeter.provisioning.identity import admission

    _each(folder, devices, admission.reject, dry_run=dry_run, as_json=as_json)


@click.command()
@click.argument("devices", nargs=-1, required=True, metavar="DEVICE...")
@folder_option
@click.option("--reason", default="revoked by hand", show_default=True, help="Kept with its certificates.")
@click.option("--dry-run", is_flag=True, help="Say what would be revoked.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def revoke(devices: tuple[str, ...], folder: FleetFolder, reason: str, *, dry_run: bool, as_json: bool) -> None:
    """Put devices out of the fleet, and out of the running broker: their certificates and tokens end now.

    Example: edgemeter fleet revoke pi5-01 --reason stolen
    """
    from edgemeter.provisioning.identity import admission

    _each(folder, devices, lambda registry, device: admission.revoke(registry, device, reason), dry_run=dry_run, as_json=as_json)


def _each(folder: FleetFolder, names: tuple[str, ...], do: "Callable[[Registry, str], Deed]", *, dry_run: bool, as_json: bool) -> None:
    import json
    from datetime import datetime, timezone

    from edgemeter.provisioning.identity import broker_files
    from edgemeter.provisioning.identity.enforcement import Enforcement
    from edgemeter.provisioning.registry.registry import Registry

    signing = broker_files.authority(folder)
    registry = Registry(folder.registry)
    done = []
    try:
        for name in dict.fromkeys(names):
            deed = do(registry, name)
            if not dry_run:
                with registry.transaction() as connection:
                    deed.do(connection)
            done.append((name, deed.what))
            if not as_json:
                click.echo(f"{name}: {'would be ' if dry_run else ''}{deed.what}")
        if not dry_run and Enforcement(folder, registry, signing).settle(datetime.now(timezone.utc)):
            click.echo("the broker does not answer: `edgemeter fleet serve` throws them out when it does", err=True)
    finally:
        registry.close()
    if as_json:
        click.echo(json.dumps([{"device": name, "done": what, "dry_run": dry_run} for name, what in done]))
