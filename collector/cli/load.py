"""`edgemeter collector load`: simulated devices over a real broker."""

from pathlib import Path

import click

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.errors import TransientError
from edgemeter.agent.base.options import FiniteRange, broker_files, format_option
from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table
from edgemeter.collector.load import load as loading
from edgemeter.collector.load.load import LoadMode
from edgemeter.collector.load.tally import LoadPlan, LoadResult, LoadTally, recorded_template

SECONDS = 10.0


@click.command()
@click.option("--broker", required=True, envvar="EDGEMETER_BROKER", help="Broker of the collector: HOST[:PORT], mqtt://... or mqtts://...")
@broker_files
@click.option("--devices", type=click.IntRange(1, 100_000), default=10, show_default=True, help="Number of simulated devices.")
@click.option(
    "--rate", "rate_per_s", type=FiniteRange(0, min_open=True), default=100.0, show_default=True, help="Records a second, in total."
)
@click.option("--seconds", type=FiniteRange(0, min_open=True), help=f"Duration. Default: {SECONDS:.0f}.")
@click.option("--records", type=click.IntRange(1), help="Number of records in total, instead of --seconds.")
@click.option(
    "--simulate",
    "mode",
    type=click.Choice(["agents", "crowd"]),
    help="agents: an outbox, a connection and a Will each. crowd: many devices over 8 connections, no outboxes. "
    "Default: agents for up to 100 devices, the most in one process.",
)
@click.option(
    "--delivery-timeout",
    "patience",
    type=FiniteRange(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the last receipts.",
)
@format_option("Print one JSON document.")
def load(
    *,
    broker: str,
    devices: int,
    rate_per_s: float,
    seconds: float | None,
    records: int | None,
    mode: LoadMode | None,
    patience: float,
    form: Format | None,
    **files: Path | None,
) -> None:
    """Send records from simulated devices over a broker to a collector, and time their receipts; exit 1 if any is missing.

    Example: edgemeter collector load --broker broker.example --devices 1000 --rate 500 --seconds 60
    """
    if seconds is not None and records is not None:
        raise click.UsageError("give either --seconds or --records")
    if mode == "agents" and devices > loading.MOST_AGENTS:
        raise click.UsageError(f"at most {loading.MOST_AGENTS} agents in one process: start several, or use --simulate crowd")
    plan = LoadPlan(devices, rate_per_s, records or max(1, round(rate_per_s * (seconds or SECONDS))), patience)
    address = broker_address.address_with_files(broker, files)
    default_mode: LoadMode = "agents" if devices <= loading.MOST_AGENTS else "crowd"
    with progress_bar() as progress:

        def watch(tally: LoadTally) -> None:
            progress("receipts", tally.receipted, plan.records)

        result = loading.run_load(address, plan, mode or default_mode, recorded_template(), watch)
    if not print_data(form, result):
        _show(result, form)
    if result.missing:
        late = f"{result.missing} of {result.sent} records have no receipt after {patience:g} s"
        raise TransientError(f"{late}: check that a collector is running and keeps up")


def _show(result: LoadResult, form: Format | None) -> None:
    how = (
        f"{result.devices} agents, each with outbox, connection and Will"
        if result.mode == "agents"
        else f"{result.devices} devices over {result.connections} connections, without outboxes and Wills"
    )
    caption = f"requested: {result.rate_per_s:g} records/s of {result.record_bytes} bytes"
    names = ("sent", "receipted", "missing", "resent", "seconds", "records/s", "p50 ms", "p90 ms", "p99 ms", "max ms")
    table = plain_table(*names, right=names)
    table.title, table.title_justify, table.caption = how, "left", caption
    latencies = (result.latency_p50_ms, result.latency_p90_ms, result.latency_p99_ms, result.latency_max_ms)
    counts = (result.sent, result.receipted, result.missing, result.resent)
    table.add_row(
        *(str(count) for count in counts),
        f"{result.seconds:.1f}",
        f"{result.records_per_s:.0f}",
        *("-" if latency_ms is None else f"{latency_ms:.1f}" for latency_ms in latencies),
    )
    console_for(form).print(table)
    click.echo("ms: from the time a record was due to its receipt, sent after the commit", err=True)
