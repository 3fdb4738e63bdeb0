"""Getting records back that a ledger lost: `edgemeter collector request-again`."""

import json
from datetime import datetime, timezone
from pathlib import Path

import click

from edgemeter.agent.base import broker_address, figures
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.options import broker_files
from edgemeter.collector.cli.stores import ledger_option, ledger_path


@click.command("request-again", short_help="Ask devices to send receipted records again.")
@click.argument("devices", nargs=-1)
@click.option("--since", metavar="DAY", type=click.DateTime(["%Y-%m-%d"]), help="Only records measured since this day, UTC. Default: all.")
@click.option("--broker", envvar="EDGEMETER_BROKER", default="127.0.0.1", help="Broker of the devices. Default: the one on this machine.")
@broker_files
@ledger_option
@click.option("--json", "as_json", is_flag=True, help='Print {"asked": [...]}.')
def request_again(
    devices: tuple[str, ...], since: datetime | None, broker: str, ledger: Path | None, *, as_json: bool, **files: Path | None
) -> None:
    """Ask DEVICES, by default all, to send the records again that they still have, after a ledger was lost or restored from a backup.

    Devices keep receipted records for 14 days, fewer if they lack room; one that is away answers when it connects. The running collector
    stores what it does not have.

    Example: edgemeter collector request-again --since 2026-11-01 --broker broker.example
    """
    from edgemeter.collector.upkeep.request_again import request_again as ask

    since_ns = 0 if since is None else int(since.replace(tzinfo=timezone.utc).timestamp()) * 1_000_000_000
    asked = ask(broker_address.address_with_files(broker, files), ledger_path(ledger), devices, since_ns)
    if as_json:
        click.echo(json.dumps({"asked": [{"fleet": one.fleet, "device": one.device, "state": one.state} for one in asked]}, indent=2))
        return
    for one in asked:
        when = "sends now" if one.state == "online" else f"sends when it connects ({one.state or 'state unknown'})"
        click.echo(f"{figures.printable(one.fleet)} {figures.printable(one.device)}: {when}")
    online = sum(one.state == "online" for one in asked)
    click.echo(f"asked {count(len(asked), 'device')}, {online} online; `edgemeter collector devices` shows what arrives", err=True)
