"""Getting records back that a ledger lost: `edgemeter collector restore` and `request-again`."""

from datetime import datetime, timezone
from pathlib import Path

import click

from edgemeter.agent.base import broker_address, figures
from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.options import broker_files
from edgemeter.collector.cli.stores import LedgerParam, chosen_ledger, ledger_file, ledger_option, stamp
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@ledger_option
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="LEDGER",
    type=LedgerParam(),
    help="Also copy the records that this ledger has, of another collector or a device.",
)
def restore(file: Path, ledger: LedgerPlace | None, sources: tuple[LedgerPlace, ...]) -> None:
    """Restore the backup FILE as the ledger; nothing is overwritten. What was received after it comes from other ledgers and the devices.

    Other ledgers are imported as by `collector import`. InfluxDB holds the figures of records and not their raw samples, so that no record
    is made from it; `compare --store URL` reads it.

    Example: edgemeter collector restore /backups/ledger-2026-11-20.sqlite --from /mnt/other-collector/ledger.sqlite
    """
    from edgemeter.collector.upkeep.copies import restore as bring_back
    from edgemeter.collector.upkeep.ledger_import import import_ledger

    for source in sources:
        open_ledger(source, "read").close()
    path = ledger_file(ledger, "restore it with pg_restore or pgbackrest")
    done = bring_back(file, path)
    for one in done.files:
        click.echo(one)
    newest = f", the newest of {stamp(done.last_received_ns)}" if done.last_received_ns else ""
    click.echo(f"{count(done.runs, 'run')} restored{newest}", err=True)
    for source in sources:
        with open_ledger(source, "read") as other, open_ledger(path) as target:
            fetched = import_ledger(other, target)
        rest = {"whose number another record has: now in quarantine": fetched.collisions, "not found as they are": len(fetched.differing)}
        words = "".join(f", {number:,} {what}" for what, number in rest.items() if number)
        click.echo(f"{source}: {fetched.inserted:,} new of {count(fetched.records, 'record')}{words}", err=True)
    with open_ledger(path, "read") as opened:
        runs, missing = opened.count(), sum(one.missing for one in opened.sessions())
    remedy = "start the collector, then ask the devices for what they still have: edgemeter collector request-again"
    click.echo(f"{count(runs, 'run')} now, {count(missing, 'number')} missing; {remedy}", err=True)


@click.command("request-again")
@click.argument("devices", nargs=-1)
@click.option("--since", metavar="DAY", type=click.DateTime(["%Y-%m-%d"]), help="Only records measured since this day, UTC. Default: all.")
@click.option("--broker", envvar="EDGEMETER_BROKER", default="127.0.0.1", help="Broker of the devices. Default: the one on this machine.")
@broker_files
@ledger_option
@click.option("--json", "as_json", is_flag=True, help='Print {"asked": [...]}.')
def request_again(
    devices: tuple[str, ...], since: datetime | None, broker: str, ledger: LedgerPlace | None, *, as_json: bool, **files: Path | None
) -> None:
    """Ask DEVICES, by default all, to send the records again that they still have, after a ledger was lost or restored from a backup.

    Devices keep receipted records for 14 days, fewer if they lack room; one that is away answers when it connects. The running collector
    stores what it does not have.

    Example: edgemeter collector request-again --since 2026-11-01 --broker broker.example
    """
    from edgemeter.collector.upkeep.request_again import request_again as ask

    since_ns = 0 if since is None else int(since.replace(tzinfo=timezone.utc).timestamp()) * 1_000_000_000
    asked = ask(broker_address.address_with_files(broker, files), chosen_ledger(ledger), devices, since_ns)
    if as_json:
        print_json({"asked": [{"fleet": one.fleet, "device": one.device, "state": one.state} for one in asked]})
        return
    for one in asked:
        when = "sends now" if one.state == "online" else f"sends when it connects ({one.state or 'state unknown'})"
        click.echo(f"{figures.printable(one.fleet)} {figures.printable(one.device)}: {when}")
    online = sum(one.state == "online" for one in asked)
    click.echo(f"asked {count(len(asked), 'device')}, {online} online; `edgemeter collector devices` shows what arrives", err=True)
