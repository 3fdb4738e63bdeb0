"""The commands `edgemeter agent`.

They join a fleet, run the agent daemon, and show what this device was ordered.
"""

import logging
import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.agent.base.cli.command_group import DefaultGroup
from edgemeter.agent.base.cli.options import (
    FiniteRange,
    format_option,
    names_and_config,
)
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.console import Table
from edgemeter.agent.base.number_text import on_one_line
from edgemeter.agent.base.terminal import print_text
from edgemeter.agent.cli.session_options import delivery_timeout_option, session_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgemeter.agent.base.console import Console
    from edgemeter.agent.jobs.journal import JournalEntry


# The fields of an order in the journal that JSON shows unchanged.
SHOWN_FIELDS = (
    "repeats",
    "next_ns",
    "state",
    "reason",
    "runs",
    "arrived_ns",
    "started_ns",
    "ended_ns",
)


@click.command(short_help="Show the orders received, with their results.")
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1, 2000),
    default=20,
    show_default=True,
    help="Number of orders, the latest first.",
)
@format_option('{"jobs": [...]}')
def jobs(last: int, *, form: Format) -> None:
    """Show the orders that this device received, and their results.

    Example: edgemeter agent jobs --last 5
    """
    from edgemeter.agent.base import config as configuration
    from edgemeter.agent.jobs import journal

    path = configuration.home() / journal.JOURNAL_FILE
    entries: list[JournalEntry] = []
    if path.exists():
        with closing(journal.Journal(path, "read")) as book:
            entries = book.latest(last)
            entries += [entry for entry in book.repeating() if entry not in entries]
    rows = [
        {"job": entry.order.job, "attempt": entry.order.attempt, "kind": kind(entry)}
        | {key: getattr(entry, key) for key in SHOWN_FIELDS}
        for entry in entries
    ]
    if not print_data(form, {"jobs": rows}, rows="jobs"):
        _show(entries, console_for(form))


def kind(entry: "JournalEntry") -> str:
    """Return the kind of work, by its name in the order."""
    return str(entry.order.work.__struct_config__.tag)


def _name(entry: "JournalEntry") -> str:
    """Return the job's name, with details that are not part of it."""
    remarks = [] if entry.order.job.startswith(kind(entry)) else [kind(entry)]
    remarks += [f"attempt {entry.order.attempt}"] if entry.order.attempt > 1 else []
    return f"{entry.order.job} ({', '.join(remarks)})" if remarks else entry.order.job


def _show(entries: "Sequence[JournalEntry]", console: "Console") -> None:
    from edgemeter.agent.base.console import Text
    from edgemeter.agent.jobs.repeating import local

    if not entries:
        console.print("no orders yet")
        return
    table = Table("job", "state", "arrived", "took s", "runs", right=("took s", "runs"))
    for entry in entries:
        took = (
            ""
            if entry.started_ns is None or entry.ended_ns is None
            else f"{(entry.ended_ns - entry.started_ns) / 1e9:.0f}"
        )
        table.add_row(
            *map(
                Text,
                (
                    _name(entry),
                    entry.state.replace("_", " "),
                    local(entry.arrived_ns)[:16],
                    took,
                    str(len(entry.runs)),
                ),
            )
        )
    console.print(table)
    # A reason is a sentence: in a column it would be cut to pieces on a terminal of 80 columns.
    for entry in entries:
        if entry.reason:
            next_text = (
                ""
                if entry.state != "repeating" or entry.next_ns is None
                else f", next {local(entry.next_ns)}"
            )
            print_text(console, f"{_name(entry)}: {on_one_line(entry.reason)}{next_text}")


@click.group(cls=DefaultGroup)
def agent() -> None:
    """Join a fleet, run the agent daemon, deliver results.

    Example: edgemeter agent up --broker broker.example
    """


agent.add_command(jobs)


@agent.command(short_help="Show whether the agent runs, and what waits in its outbox.")
@format_option('{"agent": ..., "outbox": ..., "text": ..., "remedy": ...}', "table", "json")
def status(*, form: Format) -> None:
    """Show whether the agent runs and which records wait.

    Example: edgemeter agent status
    """
    from edgemeter.agent.base import config as configuration
    from edgemeter.agent.base.file_lock import AGENT_LOCK, FileLock, is_locked
    from edgemeter.agent.delivery.outbox_file import OUTBOX
    from edgemeter.agent.doctor.check_delivery import outbox_finding

    home = configuration.home()
    lock = FileLock(home / AGENT_LOCK)
    holder = lock.holder() if is_locked(lock.path) else None
    outbox = outbox_finding(home / OUTBOX)
    if print_data(
        form,
        {"agent": holder, "outbox": outbox.state, "text": outbox.what, "remedy": outbox.remedy},
    ):
        return
    click.echo(f"agent: {holder or 'none runs here: `edgemeter agent up`'}")
    click.echo(f"outbox: {outbox.what}{f': {outbox.remedy}' if outbox.remedy else ''}")


@agent.command(short_help="Run the daemon until it is stopped.")
@click.option(
    "--broker",
    envvar="EDGEMETER_BROKER",
    help="HOST[:PORT], mqtt://... or mqtts://... Default: the configuration's.",
)
@names_and_config
def up(broker: str | None, device: str | None, fleet: str | None, **options: Any) -> None:
    """Run the daemon until Ctrl-C or SIGTERM. It reports this device and delivers the outbox.

    Example: edgemeter agent up --broker mqtts://broker.example
    """
    import os

    import msgspec

    from edgemeter.agent.base import broker_address
    from edgemeter.agent.base import config as configuration
    from edgemeter.agent.base.errors import ConfigError
    from edgemeter.agent.base.file_lock import agent_lock
    from edgemeter.agent.base.service_manager import notify_service_manager
    from edgemeter.agent.daemon.daemon import DaemonOptions
    from edgemeter.agent.identity.renewal import settle_moved_card

    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    with agent_lock(configuration.home()) as lock:
        # Check that this is the device's board before anything is published in its name.
        settle_moved_card(
            configuration.home(), alive=lambda: notify_service_manager("READY=1\nWATCHDOG=1")
        )
        settings = configuration.read(options["config"])
        if (where := broker or settings.broker) is None:
            raise ConfigError(
                "no broker is named: give --broker HOST, or set `broker` in the configuration"
            )
        # A wrong address is reported before the daemon starts.
        broker_address.parse_address(where)
        device, fleet = configuration.names(device, fleet, settings)
        daemon = DaemonOptions(
            device=device,
            fleet=fleet,
            broker=where,
            config=str(options["config"]) if options["config"] else None,
        )
        # The daemon is a new program in this process, which keeps the lock: it runs for months
        # without the memory of the command line, and its few threads share one arena (glibc).
        os.set_inheritable(lock.descriptor(), True)
        command = [
            sys.executable,
            "-m",
            "edgemeter.agent.daemon",
            msgspec.json.encode(daemon).decode(),
        ]
        # The command is a module of ours.
        os.execve(sys.executable, command, {"MALLOC_ARENA_MAX": "1", **os.environ})  # noqa: S606


@agent.command()
@click.argument("join_file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data folder of the agent. Default: $EDGEMETER_HOME.",
)
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False),
    default="/etc/edgemeter/config.toml", show_default=True,
    help="Configuration file to write.",
)  # fmt: skip
@click.option(
    "--timeout", "patience_s", default=600.0, show_default=True, type=FiniteRange(1.0),
    help="Seconds to wait for approval.",
)  # fmt: skip
def join(join_file: Path, home: Path | None, config: Path, patience_s: float) -> None:
    """Join a fleet with the token in JOIN_FILE.

    This creates a key, requests a certificate, writes the configuration, and wipes the token.

    Example: edgemeter agent join /boot/firmware/edgemeter/join.toml
    """
    from edgemeter.agent.base import config as configuration
    from edgemeter.agent.identity.joining import join_fleet

    logging.basicConfig(level=logging.INFO, format="edgemeter: %(message)s", stream=sys.stderr)
    identity = join_fleet(join_file, home or configuration.home(), config, timeout_s=patience_s)
    click.echo(f"{identity.device} joined the fleet {identity.fleet!r} at {identity.broker}")
    in_home = f"EDGEMETER_HOME={shlex.quote(str(home))} " if home else ""
    by_config = "" if config == configuration.EVERYONE else f" --config {shlex.quote(str(config))}"
    click.echo(
        f"start its agent, if no service does: {in_home}edgemeter agent up{by_config}", err=True
    )


@agent.command(short_help="Send the records that wait in the outbox.")
@click.option(
    "--broker",
    envvar="EDGEMETER_BROKER",
    help="HOST[:PORT], mqtt://... or mqtts://... Default: the configuration's.",
)
@names_and_config
@delivery_timeout_option
def publish(**options: Any) -> None:
    """Send the records in the outbox and wait for receipts.

    Example: edgemeter agent publish --broker broker.example
    """
    from edgemeter.agent.measuring.measure_suite import publish_outbox

    click.echo(publish_outbox(session_settings(options)), err=True)
