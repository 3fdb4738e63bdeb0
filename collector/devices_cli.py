"""`edgemeter collector devices`: who delivers, who is there, and whether a record is missing."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from edgemeter.collector.keep import device_health
from edgemeter.collector.keep.gaps import SessionHeld
from edgemeter.collector.keep.presence import Device
from edgemeter.collector.ledger_option import ledger_option, ledger_path, printable, stamp


@click.command(short_help="List the devices: presence, records, missing numbers.")
@ledger_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every session.")
def devices(ledger: Path | None, *, as_json: bool) -> None:
    """List who delivers to this collector, who is online, and how many numbered records are missing; in a group others may hold those.

    Example: edgemeter collector devices
    """
    from edgemeter.collector.keep.ledger import Ledger

    with Ledger(ledger_path(ledger), "read") as opened:
        present, sessions = opened.devices(), opened.sessions()
    documents = [_document(name, present, sessions) for name in _names(present, sessions)]
    if as_json:
        click.echo(json.dumps({"devices": documents}, indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("fleet", "device", "state", "since", "board", "agent", "records", "missing", "last record", "look at")
    for one in documents:
        shown = ("fleet", "device", "state", "since", "board", "agent", "records", "missing", "last_record", "look_at")
        table.add_row(*("" if one[name] is None else escape(printable(str(one[name]))) for name in shown))
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)


def _names(present: Sequence[Device], sessions: Sequence[SessionHeld]) -> list[tuple[str, str]]:
    return sorted({(one.fleet, one.device) for one in present} | {(one.fleet, one.device) for one in sessions})


def _document(name: tuple[str, str], present: Sequence[Device], sessions: Sequence[SessionHeld]) -> dict[str, object]:
    said = next((one for one in present if (one.fleet, one.device) == name), None)
    own = [one for one in sessions if (one.fleet, one.device) == name]
    birth = said.birth if said else None
    health = said.health if said else None
    return {
        "fleet": name[0],
        "device": name[1],
        "state": said.state if said else None,
        "since": stamp(said.changed_ns) if said else None,
        "board": birth.board if birth else None,
        "agent": birth.agent if birth else None,
        "records": sum(one.records for one in own),
        "missing": sum(one.missing for one in own),
        "last_record": stamp(max(one.last_received_ns for one in own)) if own else None,
        "look_at": "; ".join(device_health.look_at(health, time.time_ns())) or None if health else None,
        "health": msgspec.to_builtins(health) if health else None,
        "sessions": [{"session": one.session, "records": one.records, "missing": one.missing} for one in own],
    }
