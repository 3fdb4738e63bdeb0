"""Messages that the collector rejected: `edgemeter collector quarantine list`, `show` and `retry`."""

from collections.abc import Sequence

import click
from rich.text import Text

from edgemeter.agent.base import figures
from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.options import rows_json_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table
from edgemeter.agent.ledger.quarantine import QuarantinedMessage
from edgemeter.collector.cli.stores import chosen_ledger, ledger_option, stamp
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger

SHOWN_BYTES = 4096


@click.group(cls=DefaultGroup, invoke_without_command=True)
@ledger_option
@rows_json_option("Print JSON, including the payloads.")
@click.pass_context
def quarantine(context: click.Context, /, ledger: LedgerPlace | None, *, form: Format | None) -> None:
    """List rejected messages with the reason; `show` one, or `retry` some.

    Example: edgemeter collector quarantine --json
    """
    if context.invoked_subcommand is None:
        context.invoke(list_, ledger=ledger, form=form)


@quarantine.command("list", short_help="List rejected messages with the reason.")
@ledger_option
@rows_json_option("Print JSON, including the payloads.")
def list_(ledger: LedgerPlace | None, *, form: Format | None) -> None:
    """List rejected messages with the reason.

    Example: edgemeter collector quarantine list
    """
    entries = _entries(ledger)
    if print_data(form, {"quarantined": [_quarantine_document(entry) for entry in entries]}):
        return
    table = plain_table("row", "last", "topic", "bytes", "times", "reason", right=("row", "bytes", "times"))
    for entry in entries:
        cells = (str(entry.row), figures.stamp(entry.last_ns), entry.topic, str(entry.size_bytes), str(entry.times), entry.reason)
        # A line an entry, in which topic and reason are cut: `show` has all of it.
        table.add_row(*(Text(figures.printable(cell), no_wrap=True, overflow="ellipsis") for cell in cells))
    for column in table.columns:
        column.no_wrap = column.header not in {"topic", "reason"}
    if entries:
        console_for(form).print(table)
    click.echo(f"{len(entries)} in quarantine", err=True)


@quarantine.command(short_help="Show one entry with its payload.")
@click.argument("row", type=click.IntRange(1))
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(row: int, ledger: LedgerPlace | None, *, as_json: bool) -> None:
    """Show the entry ROW: when and how often it arrived, why it was rejected, and its payload.

    Example: edgemeter collector quarantine show 12
    """
    (entry,) = _chosen(_entries(ledger), [row])
    if as_json:
        print_json(_quarantine_document(entry))
        return
    for name, value in _quarantine_document(entry).items():
        if name != "payload":
            click.echo(f"{name:11} {figures.printable(str(value))}")
    text = entry.payload[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    click.echo(f"{'payload':11} {figures.printable(text)}{' ...' if entry.size_bytes > SHOWN_BYTES else ''}")


@quarantine.command(short_help="Retry rejected messages.")
@click.argument("rows", type=click.IntRange(1), nargs=-1)
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def retry(rows: tuple[int, ...], ledger: LedgerPlace | None, *, as_json: bool) -> None:
    """Retry the entries ROWS, by default all, after an update or a fix of InfluxDB; a collector may be running.

    Example: edgemeter collector quarantine retry 12 13
    """
    from edgemeter.collector.receive.admission import retry_rejected

    entries = _entries(ledger)
    chosen_entries = _chosen(entries, rows) if rows else entries
    with open_ledger(chosen_ledger(ledger)) as opened:
        retried = [retry_rejected(opened, entry) for entry in chosen_entries]
    if as_json:
        print_json({"retried": retried})
    else:
        for result in retried:
            outcome = f"stays: {figures.printable(result.reason)}" if result.reason else f"{count(result.taken, 'record')} accepted"
            click.echo(f"{result.row}  {outcome}")
    remaining = sum(result.reason is not None for result in retried)
    click.echo(f"{len(retried) - remaining} left the quarantine, {remaining} remain", err=True)


def _entries(ledger: LedgerPlace | None) -> list[QuarantinedMessage]:
    with open_ledger(chosen_ledger(ledger), "read") as opened:
        return opened.quarantined()


def _chosen(entries: Sequence[QuarantinedMessage], rows: Sequence[int]) -> list[QuarantinedMessage]:
    by_row = {entry.row: entry for entry in entries}
    for row in rows:
        if row not in by_row:
            raise ConfigError(f"no entry {row} in the quarantine: list the entries with `edgemeter collector quarantine list`")
    return [by_row[row] for row in rows]


def _quarantine_document(entry: QuarantinedMessage) -> dict[str, object]:
    return {
        "row": entry.row,
        "topic": entry.topic,
        "reason": entry.reason,
        "times": entry.times,
        "first": stamp(entry.received_ns),
        "last": stamp(entry.last_ns),
        "size_bytes": entry.size_bytes,
        "payload": entry.payload.decode("utf-8", "backslashreplace"),
    }
