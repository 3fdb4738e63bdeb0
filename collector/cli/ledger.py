"""The contents and maintenance of a ledger.

The commands are `edgemeter collector devices`, `changes`, `drain`, `status`, `backup` and others.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from edgemeter.agent.base import number_text
from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.cli.options import PATH, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data, print_table
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.terminal import TableColumn, fitted_table
from edgemeter.agent.contract.health_issues import needs_attention
from edgemeter.agent.ledger.presence import DevicePresence, SessionHeld
from edgemeter.collector.cli.stores import chosen_ledger, ledger_file, ledger_option, since_option
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.upkeep import copies
from edgemeter.collector.upkeep import request_again as asking

if TYPE_CHECKING:
    from edgemeter.collector.web.activity import DeviceActivity

REJECTED_SHOWN = 20


@click.command()
@ledger_option
@format_option()
def devices(ledger: LedgerPlace | None, *, form: Format) -> None:
    """List devices with presence and missing records.

    The ledger of another collector may have the missing records.

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
    documents = [
        _devices_document(name, reports.get(name), stored.get(name, []), activities.get(name))
        for name in sorted({*reports, *stored, *activities})
    ]
    if print_data(form, {"devices": documents}):
        return
    # On a narrow terminal, the identity of devices and what to look at stay.
    columns_by_rank = (
        ("fleet", "fleet", 1), ("device", "device", 0), ("state", "state", 0),
        ("since", "since", 4), ("board", "board", 3), ("agent", "agent", 3),
        ("records", "records", 2), ("missing", "missing", 0), ("last record", "last_record", 2),
        ("needs attention", "look_at", 0),
    )  # fmt: skip
    columns = [
        TableColumn(
            heading,
            [
                "" if row[name] is None else number_text.printable(str(row[name]))
                for row in documents
            ],
            "left", rank, always=True, narrowed="folds" if name == "look_at" else "",
        )
        for heading, name, rank in columns_by_rank
    ]  # fmt: skip
    console = console_for(form)
    console.print(fitted_table(columns, console.width))
    for device in now.devices:
        # A column for it would leave no room for the others.
        console.print(number_text.printable(f"{device.device} measures {device.text}"))


def _devices_document(
    name: tuple[str, str],
    reported: DevicePresence | None,
    stored: Sequence[SessionHeld],
    activity: "DeviceActivity | None",
) -> dict[str, object]:
    birth, health = (reported.birth, reported.health) if reported else (None, None)
    measuring = activity and {
        **msgspec.to_builtins(activity.measuring),
        "reported": number_text.iso_stamp(activity.received_ns),
        "is_stale": activity.is_stale,
    }
    return {
        "fleet": name[0],
        "device": name[1],
        "state": reported.state if reported else None,
        "since": number_text.iso_stamp(reported.changed_ns) if reported else None,
        "board": birth.board if birth else None,
        "agent": birth.agent if birth else None,
        "records": sum(session.records for session in stored),
        "missing": sum(session.missing for session in stored),
        "last_record": number_text.iso_stamp(max(session.last_received_ns for session in stored))
        if stored
        else None,
        "look_at": "; ".join(needs_attention(health, time.time_ns())) or None if health else None,
        "health": msgspec.to_builtins(health) if health else None,
        "sessions": [
            {"session": session.session, "records": session.records, "missing": session.missing}
            for session in stored
        ],
        "measuring": measuring,
    }


@click.command()
@ledger_option
@click.option(
    "--again",
    "starts_again",
    is_flag=True,
    help="Write records again, after a bucket was lost or restored.",
)
@since_option("received")
@format_option('{"sinks": [...]}', "table", "json")
def drain(
    ledger: LedgerPlace | None, *, starts_again: bool, since_ns: int | None, form: Format
) -> None:
    """Show how many records each InfluxDB lacks, or write records again.

    The running collector writes them again.

    Example: edgemeter collector drain --again --since 2026-11-01
    """
    if since_ns is not None and not starts_again:
        raise click.UsageError("--since says what is written again: add --again")
    with open_ledger(chosen_ledger(ledger), "write" if starts_again else "read") as opened:
        sinks = opened.positions()
        if not sinks:
            raise ConfigError(
                "the ledger was not drained to any InfluxDB yet: start `collector up --influx URL`"
            )
        unwritten = {
            name: opened.set_back(name, since_ns) if starts_again else opened.behind(name)
            for name in sinks
        }
    rows = [{"sink": name, "records_to_write": records} for name, records in unwritten.items()]
    print_table(form, "sinks", rows, {"sink": "InfluxDB", "records_to_write": "records to write"})
    if starts_again:
        click.echo("a collector that runs with it begins within seconds", err=True)


@click.command()
@ledger_option
@click.option(
    "--influx",
    envvar="EDGEMETER_INFLUX",
    help="Also write the changes to this InfluxDB, for the dashboards.",
)
@format_option('{"changes": [...]}')
def changes(ledger: LedgerPlace | None, influx: str | None, *, form: Format) -> None:
    """List changes of devices, confirmed steps and annotations.

    Changes concern firmware, kernel, agent, runtime and so on.

    Example: edgemeter collector changes --influx http://influx.example:8086
    """
    from edgemeter.collector.influx.bucket import Bucket
    from edgemeter.collector.influx.influx_config import parse_influx
    from edgemeter.collector.runs.store import LedgerStore
    from edgemeter.collector.trend import changes as changing
    from edgemeter.collector.trend.history import History

    path = chosen_ledger(ledger)
    with open_ledger(path, "read") as opened:
        changes = changing.changes_of(record.record for record in opened.records())
    changes = sorted(
        [*changes, *changing.noted_changes(path, History(LedgerStore(path)))],
        key=lambda change: change.started_at_ns,
    )
    if influx:
        with closing(Bucket(parse_influx(influx))) as bucket:
            rejected = bucket.write([changing.change_point_line(change) for change in changes])
        if rejected:
            raise ConfigError(
                f"InfluxDB rejects {len(rejected)} of {len(changes)} changes: "
                f"{next(iter(rejected.values()))}"
            )
    rows = [asdict(change) | {"at": number_text.stamp(change.started_at_ns)} for change in changes]
    print_table(form, "changes", rows, {"at": "time (UTC)", "device": "device", "text": "change"})
    click.echo(
        f"{number_text.count(len(changes), 'change')}"
        + (", written to InfluxDB" if influx else ""),
        err=True,
    )


@click.command()
@ledger_option
@format_option("", "table", "json")
def status(ledger: LedgerPlace | None, *, form: Format) -> None:
    """Show the ledger's contents, size and growth, and rejected records.

    Example: edgemeter collector status
    """
    with open_ledger(chosen_ledger(ledger), "read") as opened:
        stats, rejected = opened.stats(), opened.quarantined()[::-1]
    documents = [
        {
            "topic": message.topic,
            "reason": message.reason,
            "times": message.times,
            "first": number_text.iso_stamp(message.received_ns),
            "last": number_text.iso_stamp(message.last_ns),
            "size_bytes": message.size_bytes,
            "payload": message.payload.decode("utf-8", "backslashreplace"),
        }
        for message in rejected
    ]
    if print_data(form, asdict(stats) | {"size_bytes": stats.size_bytes, "rejected": documents}):
        return
    click.echo(
        f"{stats.path}: {count(stats.runs, 'run')} of {count(stats.devices, 'device')}, "
        f"{count(stats.cases, 'case')}"
    )
    click.echo(
        "  verdicts of single runs: "
        + (", ".join(f"{number:,} {state}" for state, number in stats.verdicts.items()) or "none")
    )
    if stats.first_received_ns is not None and stats.last_received_ns is not None:
        click.echo(
            f"  received: {number_text.iso_stamp(stats.first_received_ns)} to "
            f"{number_text.iso_stamp(stats.last_received_ns)}"
        )
    click.echo(f"  a record is acknowledged {stats.safety}")
    click.echo(
        f"  {stats.size_bytes / 1e6:,.1f} MB"
        + (f", {stats.size_bytes / stats.runs:,.0f} bytes a run" if stats.runs else "")
    )
    for part in stats.parts:
        click.echo(f"  {part.size_bytes / 1e6:>12,.1f} MB  {part.name}")
    if stats.growth_bytes_per_day is not None:
        click.echo(
            f"  grows by {stats.growth_bytes_per_day / 1e6:,.2f} MB a day; `collector up "
            "--keep-samples-days` deletes raw samples"
        )
    for sink, position in stats.sinks.items():
        click.echo(f"  {sink}: {count(stats.last_row - position, 'row')} behind")
    if rejected:
        click.echo(f"  {count(len(rejected), 'rejected message')}, newest first:")
    for message in rejected[:REJECTED_SHOWN]:
        times = f", {message.times} times" if message.times > 1 else ""
        click.echo(
            number_text.printable(
                f"    {number_text.iso_stamp(message.last_ns)} {message.topic}{times}: "
                f"{message.reason}"
            )
        )
    if len(rejected) > REJECTED_SHOWN:
        click.echo(
            f"    and {len(rejected) - REJECTED_SHOWN:,} more: --format json lists all, with "
            "their payloads"
        )


@click.command()
@click.argument("file", type=PATH)
@ledger_option
def backup(file: Path, ledger: LedgerPlace | None) -> None:
    """Copy the ledger to FILE, and its annotations to FILE.watch.

    The copy is consistent and checked, and the collector may be running.

    Example: edgemeter collector backup /backups/ledger-2026-11-20.sqlite
    """
    copied = copies.backup(
        ledger_file(ledger, "back it up with pg_dump, or with pgbackrest to any moment"), file
    )
    click.echo("\n".join(map(str, copied.files)))
    click.echo(f"{count(copied.runs, 'run')} copied", err=True)


@click.command()
@click.argument("file", type=PATH)
@ledger_option
def restore(file: Path, ledger: LedgerPlace | None) -> None:
    """Restore the backup FILE as the ledger.

    Nothing is overwritten. Get later records from the devices with `edgemeter collector
    request-again`.

    Example: edgemeter collector restore /backups/ledger-2026-11-20.sqlite
    """
    path = ledger_file(ledger, "restore it with pg_restore or pgbackrest")
    restored = copies.restore(file, path)
    click.echo("\n".join(map(str, restored.files)))
    newest = (
        f", the newest of {number_text.iso_stamp(restored.last_received_ns)}"
        if restored.last_received_ns
        else ""
    )
    with open_ledger(path, "read") as opened:
        missing = sum(session.missing for session in opened.sessions())
    remedy = (
        "start the collector, then ask the devices for what they still have: edgemeter collector "
        "request-again"
    )
    click.echo(
        f"{count(restored.runs, 'run')} restored{newest}, "
        f"{count(missing, 'number')} missing; {remedy}",
        err=True,
    )


@click.command("request-again")
@click.argument("devices", nargs=-1)
@since_option("measured")
@click.option(
    "--broker",
    envvar="EDGEMETER_BROKER",
    default="127.0.0.1",
    help="Broker of the devices. Default: the one on this machine.",
)
@ledger_option
@format_option('{"asked": [...]}', "table", "json")
def request_again(
    devices: tuple[str, ...],
    since_ns: int | None,
    broker: str,
    ledger: LedgerPlace | None,
    *,
    form: Format,
) -> None:
    """Ask devices to send their records again.

    Use it after a ledger was lost or restored from a backup. Default: all devices.

    Devices keep acknowledged records for 14 days, or less if space is short. Offline devices answer
    when they connect. The running collector stores the records that it lacks.

    Example: edgemeter collector request-again --since 2026-11-01 --broker broker.example
    """
    asked_devices = asking.request_again(
        parse_address(broker), chosen_ledger(ledger), devices, since_ns or 0
    )
    print_table(
        form,
        "asked",
        [asdict(device) for device in asked_devices],
        {"fleet": "fleet", "device": "device", "state": "state"},
    )
    online = sum(device.state == "online" for device in asked_devices)
    click.echo(
        f"asked {count(len(asked_devices), 'device')}, {online} online; `edgemeter collector "
        "devices` shows what arrives",
        err=True,
    )
