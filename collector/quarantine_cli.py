"""`edgemeter collector quarantine`: what came in and was not taken."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.keep.quarantine import Quarantined
from edgemeter.collector.ledger_option import ledger_option, ledger_path, printable, stamp

SHOWN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Outer:
    """What was said before the word `list`, `show` or `retry`."""

    ledger: Path | None
    as_json: bool


@click.group(invoke_without_command=True, short_help="List, show or retry what came in and was not taken.")
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the payloads.")
@click.pass_context
def quarantine(context: click.Context, ledger: Path | None, *, as_json: bool) -> None:
    """List what came in and was not taken, with the reason; `show` one, `retry` some.

    Example: edgemeter collector quarantine --json
    """
    context.obj = _Outer(ledger, as_json)
    if context.invoked_subcommand is None:
        _print_list(ledger, as_json=as_json)


@quarantine.command("list", short_help="List what was not taken, with the reason.")
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the payloads.")
@click.pass_obj
def list_(outer: _Outer, ledger: Path | None, *, as_json: bool) -> None:
    """List what came in and was not taken, with the reason.

    Example: edgemeter collector quarantine list
    """
    _print_list(ledger or outer.ledger, as_json=as_json or outer.as_json)


@quarantine.command(short_help="Show one entry with its payload.")
@click.argument("row", type=click.IntRange(1))
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(outer: _Outer, row: int, ledger: Path | None, *, as_json: bool) -> None:
    """Show the entry ROW: when it came, how often, why it was not taken, and what it is.

    Example: edgemeter collector quarantine show 12
    """
    (entry,) = _chosen(_entries(ledger or outer.ledger), [row])
    if as_json or outer.as_json:
        click.echo(json.dumps(_document(entry), indent=2))
        return
    for name, value in _document(entry).items():
        if name != "payload":
            click.echo(f"{name:11} {printable(str(value))}")
    text = entry.payload[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    click.echo(f"{'payload':11} {printable(text)}{' ...' if entry.size_bytes > SHOWN_BYTES else ''}")


@quarantine.command(short_help="Try again to take what is there.")
@click.argument("rows", type=click.IntRange(1), nargs=-1)
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def retry(outer: _Outer, rows: tuple[int, ...], ledger: Path | None, *, as_json: bool) -> None:
    """Look again at the entries ROWS, or at all: after an update, or when InfluxDB was corrected; a collector may be running.

    Example: edgemeter collector quarantine retry 12 13
    """
    from edgemeter.collector.keep.ledger import Ledger
    from edgemeter.collector.receive.retrial import retry as retry_one

    entries = _entries(ledger or outer.ledger)
    chosen = _chosen(entries, rows) if rows else entries
    with Ledger(ledger_path(ledger or outer.ledger)) as opened:
        done = [retry_one(opened, entry) for entry in chosen]
    if as_json or outer.as_json:
        click.echo(json.dumps({"retried": [{"row": one.row, "taken": one.taken, "reason": one.reason} for one in done]}, indent=2))
    else:
        for one in done:
            taken = f"{one.taken} record{'' if one.taken == 1 else 's'} taken"
            click.echo(f"{one.row}  {f'stays: {printable(one.reason)}' if one.reason else taken}")
    left = sum(one.reason is not None for one in done)
    click.echo(f"{len(done) - left} left the quarantine, {left} stay", err=True)


def _entries(ledger: Path | None) -> list[Quarantined]:
    from edgemeter.collector.keep.ledger import Ledger

    with Ledger(ledger_path(ledger), "read") as opened:
        return opened.quarantined()


def _chosen(entries: Sequence[Quarantined], rows: Sequence[int]) -> list[Quarantined]:
    by_row = {entry.row: entry for entry in entries}
    for row in rows:
        if row not in by_row:
            message = f"there is no entry {row} in the quarantine: `edgemeter collector quarantine list` shows what is there"
            raise ConfigError(message)
    return [by_row[row] for row in rows]


def _print_list(ledger: Path | None, *, as_json: bool) -> None:
    entries = _entries(ledger)
    if as_json:
        click.echo(json.dumps({"quarantined": [_document(entry) for entry in entries]}, indent=2))
        return
    for entry in entries:
        times = f", {entry.times} times" if entry.times > 1 else ""
        click.echo(f"{entry.row}  {stamp(entry.last_ns)}  {printable(entry.topic)}  {entry.size_bytes} bytes{times}")
        click.echo(f"    {printable(entry.reason)}")
    click.echo(f"{len(entries)} in quarantine", err=True)


def _document(entry: Quarantined) -> dict[str, object]:
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
