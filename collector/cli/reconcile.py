"""`edgemeter collector reconcile`: compare InfluxDB with the ledger, run by run, and repair it."""

import dataclasses
import sys
from contextlib import closing
from pathlib import Path

import click
import msgspec

from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, rows_json_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table
from edgemeter.collector.cli.stores import chosen_ledger, influx_read_option, influx_written_options, ledger_option
from edgemeter.collector.influx import influx_config
from edgemeter.collector.influx.reconciliation import KINDS, save
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger


@click.command()
@click.option("--influx", envvar="EDGEMETER_INFLUX", required=True, help="The InfluxDB, as `collector up` has it.")
@click.option("--influx-token-file", type=PATH, help="File with a token that may write. Default: $EDGEMETER_INFLUX_TOKEN.")
@influx_read_option
@influx_written_options
@ledger_option
@click.option("--check", "is_check", is_flag=True, help="Only compare; exit with status 1 if something differs.")
@click.option("--retag", is_flag=True, help="Also write points again that are from before the tag case_hash.")
@rows_json_option("Print JSON.")
def reconcile(
    *,
    influx: str,
    influx_token_file: Path | None,
    influx_read_token_file: Path | None,
    influx_fields: influx_config.Extent,
    influx_also: tuple[influx_config.Extra, ...],
    ledger: LedgerPlace | None,
    is_check: bool,
    retag: bool,
    form: Format | None,
) -> None:
    """Compare InfluxDB with the ledger, run by run: missing, doubled, misplaced and withdrawn points; repair it, and compare again.

    The collector may be running, and does this once a day itself. The exit status is 1 if a difference remains.

    Example: edgemeter collector reconcile --influx http://influx.example:8086 --check
    """
    from edgemeter.collector.influx.points import Points
    from edgemeter.collector.influx.reconcile import Reconciler
    from edgemeter.collector.influx.sink import open_sink
    from edgemeter.collector.influx.tag_values import TagValues

    if is_check and retag:
        raise click.UsageError("--check changes nothing, and --retag writes: give one of them")
    config = influx_config.parse_influx(influx, token_file=influx_token_file)
    config = dataclasses.replace(config, extent=influx_fields, also=frozenset(influx_also))
    reader = influx_config.reader_of(config, influx_read_token_file)
    with open_ledger(chosen_ledger(ledger)) as opened, closing(open_sink(config)) as sink:
        points = Points(config.extent, config.also, TagValues())
        outcome = Reconciler(opened, sink, points, reader).reconcile(repairs=not is_check, retags=retag)
        save(opened, outcome)
    if not print_data(form, {"reconciliation": msgspec.to_builtins(outcome)}):
        table = plain_table("day", "runs", "points", *KINDS)
        for day in outcome.days:
            table.add_row(day.day, f"{day.runs:,}", f"{day.points:,}", *(f"{day.differences.get(kind, 0):,}" for kind in KINDS))
        if outcome.days:
            console_for(form).print(table)
        if outcome.untagged:
            click.echo(f"{outcome.untagged:,} points are from before the tag case_hash: --retag writes them again", err=True)
        if outcome.unknown:
            click.echo(f"{outcome.unknown:,} points are of runs that this ledger does not have, and stay", err=True)
        click.echo(outcome.sentence, err=True)
    if outcome.remaining:
        sys.exit(FAILED)
