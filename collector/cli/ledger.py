"""The contents and the upkeep of a ledger: `edgemeter collector devices`, `retire`, `changes`, `stats`, `backup` and others."""

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.markup import escape

from edgemeter.agent.base import figures
from edgemeter.agent.base.broker_address import address_with_files
from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.options import PATH, broker_files, format_option
from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import TableColumn, fitted_table, plain_table
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.presence import DevicePresence, PresenceChange, SessionHeld, needs_attention
from edgemeter.collector.cli.stores import LedgerParam, chosen_ledger, ledger_file, ledger_option, since_option, stamp
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.upkeep import copies
from edgemeter.collector.upkeep import request_again as asking
from edgemeter.collector.upkeep.ledger_import import import_ledger

if TYPE_CHECKING:
    from edgemeter.collector.web.activity import DeviceActivity


@click.command()
@ledger_option
@format_option("Print JSON, including every session.")
def devices(ledger: LedgerPlace | None, *, form: Format | None) -> None:
    """List the devices of the ledger, with presence and missing records; collectors with ledgers of their own may hold those.

    Example: edgemeter collector devices
    """
    from edgemeter.collector.web.activity import activities_of

    with open_ledger(chosen_ledger(ledger), "read") as opened:
        present, sessions, retained = opened.devices(), opened.sessions(), opened.retained()
    now = activities_of(retained, present, time.time_ns())
    activities = {(activity.fleet, activity.device): activity for activity in now.devices}
    reports = {(device.fleet, device.device): device for device in present}
    stored: dict[tuple[str, str], list[SessionHeld]] = defaultdict(list)
    for session in sessions:
        stored[session.fleet, session.device].append(session)
    names = sorted({*reports, *stored, *activities})
    documents = [_devices_document(name, reports.get(name), stored.get(name, []), activities.get(name)) for name in names]
    if print_data(form, {"devices": documents}):
        return
    # On a narrow terminal what tells devices apart stays, and what to look at.
    ranks = {"fleet": 1, "since": 4, "board": 3, "agent": 3, "records": 2, "last_record": 2}
    titles = {"last_record": "last record", "look_at": "needs attention"}
    columns = []
    for name in ("fleet", "device", "state", "since", "board", "agent", "records", "missing", "last_record", "look_at"):
        cells = ["" if document[name] is None else figures.printable(str(document[name])) for document in documents]
        columns.append(TableColumn(titles.get(name, name), cells, "left", ranks.get(name, 0), always=True, folds=name == "look_at"))
    console = console_for(form)
    console.print(fitted_table(columns, console.width))
    for device in now.devices:
        # A column for it would leave the others no room.
        console.print(figures.printable(f"{device.device} measures {device.text}"), markup=False, highlight=False, soft_wrap=True)


@click.command()
@click.argument("device")
@ledger_option
@click.option("--fleet", help="Fleet of the device. Default: the only one that has it.")
def retire(device: str, ledger: LedgerPlace | None, fleet: str | None) -> None:
    """Retire a DEVICE that does not come back: no alert expects it, its records stay. Online again, it is back.

    A device with a certificate is put out by `edgemeter fleet revoke`.

    Example: edgemeter collector retire pi-7
    """
    path = chosen_ledger(ledger)
    with open_ledger(path, "read") as opened:
        names = _names(opened.devices(), opened.sessions())
    fleets = [fleet_name for fleet_name, name in names if name == device and fleet in (None, fleet_name)]
    if len(fleets) != 1:
        reason = f"fleets {', '.join(fleets)} have one: choose with --fleet" if fleets else "see `edgemeter collector devices`"
        raise ConfigError(f"no single device {device!r} in the ledger: {reason}")
    # No session has the number 0, so what the broker still holds of the last one does not bring the device back.
    state = DeviceState(state="revoked", session=0)
    with open_ledger(path) as opened:
        opened.commit((), changes=[PresenceChange(fleets[0], device, state, time.time_ns())])
    click.echo(f"retired {device!r} of fleet {fleets[0]!r}; its records stay", err=True)


def _names(present: Sequence[DevicePresence], sessions: Sequence[SessionHeld]) -> list[tuple[str, str]]:
    return sorted({*((device.fleet, device.device) for device in present), *((session.fleet, session.device) for session in sessions)})


def _devices_document(
    name: tuple[str, str], reported: DevicePresence | None, stored: Sequence[SessionHeld], activity: "DeviceActivity | None"
) -> dict[str, object]:
    birth, health = (reported.birth, reported.health) if reported else (None, None)
    measuring = activity and {
        **msgspec.to_builtins(activity.measuring), "reported": stamp(activity.received_ns), "is_stale": activity.is_stale,
    }  # fmt: skip
    return {
        "fleet": name[0],
        "device": name[1],
        "state": reported.state if reported else None,
        "since": stamp(reported.changed_ns) if reported else None,
        "board": birth.board if birth else None,
        "agent": birth.agent if birth else None,
        "records": sum(session.records for session in stored),
        "missing": sum(session.missing for session in stored),
        "last_record": stamp(max(session.last_received_ns for session in stored)) if stored else None,
        "look_at": "; ".join(needs_attention(health, time.time_ns())) or None if health else None,
        "health": msgspec.to_builtins(health) if health else None,
        "sessions": [{"session": session.session, "records": session.records, "missing": session.missing} for session in stored],
        "measuring": measuring,
    }


@click.command()
@ledger_option
@click.option(
    "--again", "starts_again", is_flag=True, help="Write records again, after a bucket was lost, restored or is to have more fields."
)
@since_option("received")
@click.option(
    "--influx",
    "store",
    metavar="URL",
    help="Only the InfluxDB at this URL. Default: wherever the ledger was drained to.",
)
@click.option("--json", "as_json", is_flag=True, help='Print {"sinks": [...]}.')
def drain(ledger: LedgerPlace | None, *, starts_again: bool, since_ns: int | None, store: str | None, as_json: bool) -> None:
    """Show how far each InfluxDB has the records of the ledger, or with --again set it back.

    The running collector writes them again.

    Example: edgemeter collector drain --again --since 2026-11-01
    """
    if since_ns is not None and not starts_again:
        raise click.UsageError("--since says what is written again: add --again")
    with open_ledger(chosen_ledger(ledger), "write" if starts_again else "read") as opened:
        prefix = f"influx {store.partition('?')[0].rstrip('/')} " if store is not None else ""
        sinks = [name for name in opened.positions() if name.startswith(prefix)]
        if not sinks:
            raise ConfigError(
                f"the ledger was not drained to {store or 'any sink'} (known: {', '.join(opened.positions()) or 'none yet'}): "
                "start `collector up --influx URL`"
            )
        unwritten = {name: opened.set_back(name, since_ns) if starts_again else opened.behind(name) for name in sinks}
    if as_json:
        print_json({"sinks": [{"sink": name, "records_to_write": records} for name, records in unwritten.items()]})
        return
    for name, records in unwritten.items():
        click.echo(f"{figures.printable(name)}: {count(records, 'record')} to write")
    if starts_again:
        click.echo("a collector that runs with it begins within seconds", err=True)


@click.command()
@ledger_option
@click.option("--influx", envvar="EDGEMETER_INFLUX", help="Also write the changes to this InfluxDB, for the dashboards.")
@click.option("--influx-token-file", type=PATH, help="File with the token. Default: $EDGEMETER_INFLUX_TOKEN.")
@format_option('Print {"changes": [...]}.')
def changes(ledger: LedgerPlace | None, influx: str | None, influx_token_file: Path | None, *, form: Format | None) -> None:
    """List changes of the devices (firmware, kernel, agent, runtime, ...), confirmed steps, and annotations.

    Example: edgemeter collector changes --influx http://influx.example:8086
    """
    from edgemeter.collector.index.history import LedgerHistory
    from edgemeter.collector.influx import influx_config
    from edgemeter.collector.influx.sink import open_sink
    from edgemeter.collector.trend import changes as changing

    path = chosen_ledger(ledger)
    with open_ledger(path, "read") as opened:
        changes = changing.changes_of(record.record for record in opened.records())
    with progress_bar() as progress, closing(LedgerHistory(path, progress=progress)) as history:
        changes = sorted([*changes, *changing.noted_changes(path, history)], key=lambda change: change.started_at_ns)
    if influx:
        with closing(open_sink(influx_config.parse_influx(influx, token_file=influx_token_file))) as sink:
            rejected = sink.write([changing.change_point_line(change) for change in changes])
        if rejected:
            raise ConfigError(f"InfluxDB rejects {len(rejected)} of {len(changes)} changes: {rejected[0].reason}")
    if print_data(form, {"changes": [asdict(change) for change in changes]}):
        return
    table = plain_table("time", "device", "change")
    for change in changes:
        table.add_row(figures.stamp(change.started_at_ns), escape(figures.printable(change.device)), escape(figures.printable(change.text)))
    if changes:
        console_for(form).print(table)
    click.echo(f"{figures.count(len(changes), 'change')}" + (", written to InfluxDB" if influx else ""), err=True)


@click.command()
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print every number as JSON.")
def stats(ledger: LedgerPlace | None, *, as_json: bool) -> None:
    """Show what the ledger holds, what takes the space, and how fast it grows.

    Example: edgemeter collector stats
    """
    stats = copies.ledger_stats(chosen_ledger(ledger))
    if as_json:
        print_json(asdict(stats) | {"size_bytes": stats.size_bytes})
        return
    click.echo(f"{stats.path}: {count(stats.runs, 'run')} of {count(stats.devices, 'device')}, {count(stats.cases, 'case')}")
    click.echo("  verdicts: " + (", ".join(f"{number:,} {state}" for state, number in stats.verdicts.items()) or "none"))
    if stats.first_received_ns is not None and stats.last_received_ns is not None:
        click.echo(f"  received: {stamp(stats.first_received_ns)} to {stamp(stats.last_received_ns)}")
    click.echo(f"  a receipt means: on {stats.safety}")
    click.echo(f"  {stats.size_bytes / 1e6:,.1f} MB" + (f", {stats.size_bytes / stats.runs:,.0f} bytes a run" if stats.runs else ""))
    for part in stats.parts:
        click.echo(f"  {part.size_bytes / 1e6:>12,.1f} MB  {part.name}")
    if stats.growth_bytes_per_day is not None:
        click.echo(f"  grows by {stats.growth_bytes_per_day / 1e6:,.2f} MB a day; `collector up --keep-samples-days` deletes raw samples")
    for sink, position in stats.sinks.items():
        click.echo(f"  {sink}: {count(stats.last_row - position, 'row')} behind")
    if stats.quarantined:
        click.echo(f"  {stats.quarantined} in quarantine: edgemeter collector quarantine list")


@click.command()
@ledger_option
@click.option("--clear", "device", metavar="DEVICE", help="Forget the values that DEVICE brought first, and let it bring new ones.")
@format_option("Print JSON.")
def tags(ledger: LedgerPlace | None, *, device: str | None, form: Format | None) -> None:
    """Show how many values each tag of InfluxDB has, and the devices that brought so many that their new ones are tagged `other`.

    Points written so far keep their tags: after `--clear`, drain again into an empty bucket if those are to have them too.

    Example: edgemeter collector tags --clear pi-7
    """
    from edgemeter.collector.influx import tag_values

    with open_ledger(chosen_ledger(ledger), "read" if device is None else "write") as opened:
        if device is not None:
            click.echo(f"{count(tag_values.clear(opened, device), 'value')} of {device} forgotten", err=True)
        uses = tag_values.tag_uses(opened)
    if print_data(form, {"tags": [msgspec.structs.asdict(use) for use in uses]}):
        return
    columns = [
        TableColumn("tag", [use.tag for use in uses]),
        TableColumn("values", [str(use.values) for use in uses], "right"),
        TableColumn("at most", [str(use.limit) for use in uses], "right"),
        TableColumn("closed for", [figures.printable(", ".join(use.closed_for)) for use in uses], folds=True),
    ]
    console = console_for(form)
    console.print(fitted_table(columns, console.width))


@click.command()
@ledger_option
def vacuum(ledger: LedgerPlace | None) -> None:
    """Return unused space in the ledger's file to the file system.

    Example: edgemeter collector vacuum
    """
    path = ledger_file(ledger, "its autovacuum uses free space again; VACUUM FULL returns it, while nobody writes")
    before_bytes, after_bytes = copies.vacuum(path)
    click.echo(f"{before_bytes / 1e6:,.1f} MB before, {after_bytes / 1e6:,.1f} MB now", err=True)


@click.command()
@click.argument("file", type=PATH)
@ledger_option
def backup(file: Path, ledger: LedgerPlace | None) -> None:
    """Copy the ledger to FILE and its annotations to FILE.watch: a checked, consistent snapshot; the collector may be running.

    Example: edgemeter collector backup /backups/ledger-2026-11-20.sqlite
    """
    copied = copies.backup(ledger_file(ledger, "back it up with pg_dump, or with pgbackrest to any moment"), file)
    click.echo("\n".join(map(str, copied.files)))
    click.echo(f"{count(copied.runs, 'run')} copied", err=True)


@click.command("import")
@click.argument("source", metavar="LEDGER", type=LedgerParam())
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def import_(source: LedgerPlace, ledger: LedgerPlace | None, *, as_json: bool) -> None:
    """Import every record of LEDGER, then read them back and compare; what is there already stays. Interrupted, run it again.

    LEDGER and the ledger into which it is imported are files, or addresses of PostgreSQL. Collectors may be running. Devices and
    quarantined messages come too; annotations and alerts do not.

    Example: edgemeter collector import old-ledger.sqlite
    """
    into = chosen_ledger(ledger)
    if source == into or (isinstance(source, Path) and isinstance(into, Path) and into.exists() and into.samefile(source)):
        raise ConfigError(f"{str(source)!r} is the ledger itself: name another one")
    with open_ledger(source, "read") as other, open_ledger(into) as target, progress_bar() as report:
        imported = import_ledger(other, target, report)
    if as_json:
        print_json(asdict(imported))
    else:
        inserted = f"{imported.inserted} imported, {imported.held} there before: all found by their hash"
        click.echo(f"{count(imported.records, 'record')} read, {inserted}")
        for number, words in (
            (imported.stripped, "there before, with or without raw samples"),
            (imported.removed, "not imported, because retention removed them from this ledger"),
            (imported.invalid, "invalid, or not to be stored here: now in quarantine"),
            (imported.collisions, "whose number another record has: now in quarantine"),
        ):
            if number:
                click.echo(f"{count(number, 'record')} {words}")
        click.echo(f"{count(imported.devices, 'device')} and {count(imported.quarantined, 'quarantined message')} imported", err=True)
    if imported.differing:
        raise ConfigError(
            f"{count(len(imported.differing), 'record')} of {str(source)!r} cannot be found as they are, such as {imported.differing[0]}: "
            "run the import again, and check the disks if that does not help"
        )


@click.command()
@click.argument("file", type=PATH)
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
    is made from it; `compare --ledger URL` reads it.

    Example: edgemeter collector restore /backups/ledger-2026-11-20.sqlite --from /mnt/other-collector/ledger.sqlite
    """
    for source in sources:
        open_ledger(source, "read").close()
    path = ledger_file(ledger, "restore it with pg_restore or pgbackrest")
    restored = copies.restore(file, path)
    click.echo("\n".join(map(str, restored.files)))
    newest = f", the newest of {stamp(restored.last_received_ns)}" if restored.last_received_ns else ""
    click.echo(f"{count(restored.runs, 'run')} restored{newest}", err=True)
    for source in sources:
        with open_ledger(source, "read") as other, open_ledger(path) as target:
            fetched = import_ledger(other, target)
        words = f", {fetched.collisions:,} whose number another record has: now in quarantine" if fetched.collisions else ""
        words += f", {len(fetched.differing):,} not found as they are" if fetched.differing else ""
        click.echo(f"{source}: {fetched.inserted:,} new of {count(fetched.records, 'record')}{words}", err=True)
    with open_ledger(path, "read") as opened:
        runs, missing = opened.count(), sum(session.missing for session in opened.sessions())
    remedy = "start the collector, then ask the devices for what they still have: edgemeter collector request-again"
    click.echo(f"{count(runs, 'run')} now, {count(missing, 'number')} missing; {remedy}", err=True)


@click.command("request-again")
@click.argument("devices", nargs=-1)
@since_option("measured")
@click.option("--broker", envvar="EDGEMETER_BROKER", default="127.0.0.1", help="Broker of the devices. Default: the one on this machine.")
@broker_files
@ledger_option
@click.option("--json", "as_json", is_flag=True, help='Print {"asked": [...]}.')
def request_again(
    devices: tuple[str, ...], since_ns: int | None, broker: str, ledger: LedgerPlace | None, *, as_json: bool, **files: Path | None
) -> None:
    """Ask DEVICES, by default all, to send the records again that they still have, after a ledger was lost or restored from a backup.

    Devices keep receipted records for 14 days, fewer if they lack room; one that is away answers when it connects. The running collector
    stores what it does not have.

    Example: edgemeter collector request-again --since 2026-11-01 --broker broker.example
    """
    asked_devices = asking.request_again(address_with_files(broker, files), chosen_ledger(ledger), devices, since_ns or 0)
    if as_json:
        print_json({"asked": asked_devices})
        return
    for device in asked_devices:
        when = "sends now" if device.state == "online" else f"sends when it connects ({device.state or 'state unknown'})"
        click.echo(f"{figures.printable(device.fleet)} {figures.printable(device.device)}: {when}")
    online = sum(device.state == "online" for device in asked_devices)
    click.echo(f"asked {count(len(asked_devices), 'device')}, {online} online; `edgemeter collector devices` shows what arrives", err=True)
