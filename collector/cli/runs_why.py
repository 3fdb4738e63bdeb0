"""The command `edgemeter runs why`."""

from dataclasses import asdict

import click

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.collector.cli.stores import ledger_option, opened_runs
from edgemeter.collector.ledgers.place import LedgerPlace


@click.command(short_help="Show why a run at a steady rate missed frames.")
@click.argument("run_id", metavar="ID")
@ledger_option
@format_option('{"run": ID, "frames": ..., "dropped": ..., "rows": [...], ...}, complete', "table", "json")
def why(run_id: str, ledger: LedgerPlace | None, *, form: Format) -> None:
    """Show why a run at a steady rate missed frames, and where it missed the most in a row.

    Example: edgemeter runs why 3f2a1b9c
    """
    from edgemeter.collector.runs.missed_frames import missed_frames, show_missed_frames

    with opened_runs(ledger) as history:
        record = history.entry(history.find(run_id), with_samples=True).record
    if record.steady is None:
        raise ConfigError(f"run {record.id[:8]} of {record.model.name} has no frames: measure it with --rate, or see `edgemeter runs show`")
    missed = missed_frames(record, record.steady)
    if not print_data(form, {"run": record.id, **asdict(missed)}):
        show_missed_frames(record, missed, console_for(form))
