"""`edgemeter collector load`: simulated devices over a real broker."""

import json
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.agent.broker_options import broker_files
from edgemeter.agent.delivery import broker_address
from edgemeter.agent.delivery.credentials import TlsFiles
from edgemeter.agent.errors import TransientError
from edgemeter.agent.finite_range import FiniteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgemeter.collector.load.load import Watch
    from edgemeter.collector.load.tally import Plan, Result, Tally

SECONDS = 10.0


@click.command(short_help="Size a server: simulated devices over a real broker.")
@click.option("--broker", required=True, envvar="EDGEMETER_BROKER", help="HOST[:PORT], mqtt://..., mqtts://...; a collector listens there.")
@broker_files
@click.option("--devices", type=click.IntRange(1, 100_000), default=10, show_default=True, help="How many to simulate.")
@click.option(
    "--rate", "rate_per_s", type=FiniteRange(0, min_open=True), default=100.0, show_default=True, help="Records a second, of all."
)
@click.option("--seconds", type=FiniteRange(0, min_open=True), help=f"How long. Default: {SECONDS:.0f}.")
@click.option("--records", type=click.IntRange(1), help="How many in all, instead of how long.")
@click.option(
    "--mode",
    type=click.Choice(["agents", "crowd"]),
    help="agents: an outbox, a connection and a Will each. crowd: many devices over 8 connections, no outboxes. "
    "Default: agents up to 100 devices, which is the most in one process.",
)
@click.option("--patience", type=FiniteRange(0), default=30.0, show_default=True, help="Seconds to wait for the last receipts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def load(
    *,
    broker: str,
    broker_user_file: Path | None,
    broker_password_file: Path | None,
    broker_ca_file: Path | None,
    broker_certificate_file: Path | None,
    broker_key_file: Path | None,
    devices: int,
    rate_per_s: float,
    seconds: float | None,
    records: int | None,
    mode: str | None,
    patience: float,
    as_json: bool,
) -> None:
    """Send real records from simulated devices over a real broker to a collector, and time their receipts; exit 1 when some are missing.

    Example: edgemeter collector load --broker broker.example --devices 1000 --rate 500 --seconds 60
    """
    from edgemeter.collector.load import load as loading
    from edgemeter.collector.load import template
    from edgemeter.collector.load.tally import Plan

    if seconds is not None and records is not None:
        message = "give either --seconds or --records"
        raise click.UsageError(message)
    if mode == "agents" and devices > loading.MOST_AGENTS:
        message = f"at most {loading.MOST_AGENTS} agents in one process: start several, or use --mode crowd"
        raise click.UsageError(message)
    plan = Plan(devices, rate_per_s, records or max(1, round(rate_per_s * (seconds or SECONDS))), patience)
    tls = TlsFiles(broker_ca_file, broker_certificate_file, broker_key_file)
    address = broker_address.parse(broker, user_file=broker_user_file, password_file=broker_password_file, tls=tls)
    click.echo("measuring the record that is sent, with the replay runtime ...", err=True)
    copied = template.measure()
    chosen: loading.Mode = "agents" if (mode or loading.mode_for(devices)) == "agents" else "crowd"
    with _progress(plan) as watch:
        result = loading.run(address, plan, chosen, copied, watch)
    if as_json:
        click.echo(json.dumps(asdict(result)))
    else:
        _show(result)
    if result.missing:
        late = f"{result.missing} of {result.sent} records have no receipt after {patience:g} s"
        message = f"{late}: is a collector running there, and does it keep up?"
        raise TransientError(message)


@contextmanager
def _progress(plan: "Plan") -> "Iterator[Watch]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("receipts", total=plan.records)

        def watch(tally: "Tally") -> None:
            bar.update(task, completed=tally.receipted)

        yield watch


def _show(result: "Result") -> None:
    from rich.console import Console
    from rich.table import Table

    how = (
        f"{result.devices} agents, each with outbox, connection and Will"
        if result.mode == "agents"
        else f"{result.devices} devices over {result.connections} connections, without outboxes and Wills"
    )
    table = Table(
        title=f"{how}", title_justify="left", caption=f"asked for: {result.rate_per_s:g} records/s of {result.record_bytes} bytes"
    )
    for name in ("sent", "receipted", "missing", "resent", "seconds", "records/s", "p50 ms", "p90 ms", "p99 ms", "max ms"):
        table.add_column(name, justify="right")
    latencies = (result.latency_p50_ms, result.latency_p90_ms, result.latency_p99_ms, result.latency_max_ms)
    counts = (result.sent, result.receipted, result.missing, result.resent)
    table.add_row(
        *(str(count) for count in counts),
        f"{result.seconds:.1f}",
        f"{result.records_per_s:.0f}",
        *("-" if one is None else f"{one:.1f}" for one in latencies),
    )
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)
    click.echo("ms: from the moment a record was due to its receipt, which a collector sends when it is committed", err=True)
