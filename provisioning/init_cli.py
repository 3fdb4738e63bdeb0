"""The command `edgemeter fleet init`."""

from datetime import datetime, timezone

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option


@click.command()
@folder_option
@click.option("--broker", help="The broker's host name or address, as devices are to reach it. Needed the first time.")
@click.option("--name", "names", multiple=True, metavar="NAME", help="A further name or address for the broker's certificate; repeatable.")
@click.option("--fleet", help="What the fleet is called. Default: default.")
@click.option("--port", type=click.IntRange(1, 65535), help="For clients with a certificate. Default: 8883.")
@click.option("--enrol-port", type=click.IntRange(1, 65535), help="For devices with a token. Default: 8884.")
@click.option("--dry-run", is_flag=True, help="Say what would be made, and make nothing.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def init(
    folder: FleetFolder,
    broker: str | None,
    names: tuple[str, ...],
    fleet: str | None,
    port: int | None,
    enrol_port: int | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make the fleet's authority, certificates, release key and broker configuration; what is there stays as it is.

    Example: edgemeter fleet init --broker broker.example --name 192.0.2.10
    """
    import json

    from edgemeter.provisioning.identity import foundation
    from edgemeter.provisioning.identity.foundation import Wanted

    made = []
    for step in foundation.steps(folder, Wanted(broker, names, fleet, port, enrol_port), datetime.now(timezone.utc)):
        if not dry_run:
            step.make()
        made.append(step)
        if not as_json:
            click.echo(f"{'would make' if dry_run else 'made'} {step.path}: {step.why}")
    if made and not dry_run:
        foundation.tell_broker(folder)
    if as_json:
        click.echo(
            json.dumps({"folder": str(folder.path), "dry_run": dry_run, "made": [{"path": str(s.path), "why": s.why} for s in made]})
        )
    elif not made:
        click.echo(f"nothing to make: the fleet in {str(folder.path)!r} is complete")
    elif not dry_run:
        click.echo(f"start the broker: mosquitto -c {folder.broker / 'mosquitto.conf'}; then the service: edgemeter fleet serve", err=True)
