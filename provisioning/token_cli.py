"""The command `edgemeter fleet token`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.agent.finite_range import FiniteRange
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from edgemeter.agent.errors import EdgemeterError
    from edgemeter.provisioning.identity.tokens import Invitation
    from edgemeter.provisioning.inventory.fleet_file import FleetFile
    from edgemeter.provisioning.registry.registry import Registry


@click.command()
@click.argument("devices", nargs=-1, required=True, metavar="DEVICE...")
@folder_option
@click.option("--hours", default=24.0, show_default=True, type=FiniteRange(0.01, 24 * 365), help="How long, by the server's clock.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=".", help="Folder for the join files. Default: this one.")
@click.option("--dry-run", is_flag=True, help="Say which devices would get a token, and make none.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def token(devices: tuple[str, ...], folder: FleetFolder, hours: float, out: Path, *, dry_run: bool, as_json: bool) -> None:
    """Make a token for each device to join with, once, and write its join file; a token that it had before ends.

    Example: edgemeter fleet token pi5-01 pi5-02 --hours 48 --out cards
    """
    import shlex
    from datetime import datetime, timezone

    from edgemeter.agent.errors import UnavailableError
    from edgemeter.provisioning.identity import broker_files, tokens
    from edgemeter.provisioning.identity.enforcement import Enforcement
    from edgemeter.provisioning.inventory import fleet_file
    from edgemeter.provisioning.registry.registry import Registry

    inventory = fleet_file.read(folder.fleet_file)
    registry = Registry(folder.registry)
    try:
        names = list(dict.fromkeys(devices))
        for device in names:
            tokens.check_name(device, registry)
        if dry_run:
            click.echo(f"would make a token for {', '.join(names)}, good for {hours:g} h")
            return
        signing = broker_files.authority(folder)
        made = list(_made(names, folder, registry, inventory, hours, out))
        failed = {device: result for device, result in made if isinstance(result, Exception)}
        if len(failed) == len(names):
            raise failed[names[0]]
        _tell(made, out, as_json=as_json)
        Enforcement(folder, registry, signing).settle(datetime.now(timezone.utc))
    finally:
        registry.close()
    if failed:
        message = f"no token for {len(failed)} of {len(names)} devices, the others have theirs: repeat it for {shlex.join(failed)}"
        raise UnavailableError(message)


def _made(
    names: Sequence[str], folder: FleetFolder, registry: "Registry", inventory: "FleetFile", hours: float, out: Path
) -> "Iterator[tuple[str, Invitation | EdgemeterError]]":
    """Make a token and a join file for each device; one that cannot have them keeps what it had, and stops no other."""
    import time
    from functools import partial

    from edgemeter.agent.errors import EdgemeterError
    from edgemeter.provisioning.identity import tokens

    for device in names:
        try:
            yield device, tokens.invite(folder, registry, inventory, device, hours, time.time_ns(), partial(tokens.write, folder=out))
        except EdgemeterError as error:
            yield device, error


def _tell(made: "Sequence[tuple[str, Invitation | EdgemeterError]]", out: Path, *, as_json: bool) -> None:
    """Say per device where its join file is, or why it has none."""
    import json
    from datetime import datetime

    from edgemeter.provisioning.identity import tokens
    from edgemeter.provisioning.identity.tokens import Invitation

    if as_json:
        documents = [
            {"device": device, "join_file": str(tokens.place(device, out)), "expires_ns": result.expires_ns}
            if isinstance(result, Invitation)
            else {"device": device, "error": str(result)}
            for device, result in made
        ]
        click.echo(json.dumps(documents))
        return
    widest = max(len("device"), *(len(device) for device, _ in made))
    # No table of rich's: it cuts paths off, which people copy.
    click.echo(f"{'device':{widest}}  {'good until':20}  join file")
    for device, result in made:
        if isinstance(result, Invitation):
            until = datetime.fromtimestamp(result.expires_ns / 1e9).astimezone()
            click.echo(f"{device:{widest}}  {f'{until:%Y-%m-%d %H:%M %Z}':20}  {tokens.place(device, out)}")
        else:
            click.echo(f"{device:{widest}}  {'no token':20}  {result}")
