"""The command `edgemeter fleet token`."""

from pathlib import Path

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option


@click.command()
@click.argument("devices", nargs=-1, required=True, metavar="DEVICE...")
@folder_option
@click.option("--hours", default=24.0, show_default=True, type=click.FloatRange(0.01, 24 * 365), help="How long, by the server's clock.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=".", help="Folder for the join files. Default: this one.")
@click.option("--dry-run", is_flag=True, help="Say which devices would get a token, and make none.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def token(devices: tuple[str, ...], folder: FleetFolder, hours: float, out: Path, *, dry_run: bool, as_json: bool) -> None:
    """Make a token for each device to join with, once, and write its join file; a token that it had before ends.

    Example: edgemeter fleet token pi5-01 pi5-02 --hours 48 --out cards
    """
    import json
    import time
    from datetime import datetime, timezone
    from functools import partial

    from edgemeter.provisioning.identity import broker_files, tokens
    from edgemeter.provisioning.identity.enforcement import Enforcement
    from edgemeter.provisioning.inventory import fleet_file
    from edgemeter.provisioning.registry.registry import Registry

    inventory = fleet_file.read(folder.fleet_file)
    registry = Registry(folder.registry)
    made = []
    try:
        names = list(dict.fromkeys(devices))
        for device in names:
            tokens.check_name(device, registry)
        if dry_run:
            click.echo(f"would make a token for {', '.join(names)}, good for {hours:g} h")
            return
        signing = broker_files.authority(folder)
        for device in names:
            keep = partial(tokens.write, folder=out)
            invitation = tokens.invite(folder, registry, inventory, device, hours, time.time_ns(), keep)
            made.append((invitation, tokens.place(device, out)))
        Enforcement(folder, registry, signing).settle(datetime.now(timezone.utc))
    finally:
        registry.close()
    if as_json:
        click.echo(json.dumps([{"device": one.device, "join_file": str(path), "expires_ns": one.expires_ns} for one, path in made]))
        return
    widest = max(len("device"), *(len(one.device) for one, _ in made))
    # No table of rich's: it cuts paths off, which people copy.
    click.echo(f"{'device':{widest}}  {'good until':20}  join file")
    for one, path in made:
        until = datetime.fromtimestamp(one.expires_ns / 1e9).astimezone()
        click.echo(f"{one.device:{widest}}  {f'{until:%Y-%m-%d %H:%M %Z}':20}  {path}")
