"""`edgemeter trend alerts`: evaluate alert rules and notify people and pagers."""

import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from edgemeter.agent.base import figures
from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.options import PATH, format_option
from edgemeter.agent.base.progress import progress_bar
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.contract.figures import LATENCY
from edgemeter.collector.alerts import alerts_table, lifecycle, outbox
from edgemeter.collector.alerts import check as checking
from edgemeter.collector.alerts.rules import USUAL, AlertRules, read_rules
from edgemeter.collector.cli.stores import chosen_stores, existing_store, store_option
from edgemeter.collector.index.history import open_history
from edgemeter.collector.ledgers.place import ledger_place
from edgemeter.collector.trend.watch_file import WatchFile, WatchStore, open_watch, watch_file_beside

# Without a run that is ok in so many days a check that finds nothing says little.
NEWEST_DAYS = 7

_rules_option = click.option(
    "--rules",
    "rules_file",
    type=PATH,
    envvar="EDGEMETER_ALERT_RULES",
    help="Rules file (TOML; see `edgemeter config sample alerts`). Default: the built-in rules, without notifications.",
)


@click.group(
    cls=DefaultGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="Evaluate alert rules and notify people and pagers.",
)
def alerts() -> None:
    """Evaluate alert rules and notify people and pagers. Each alert opens once, is updated, and closes.

    Example: edgemeter trend alerts check --rules alerts.toml
    """


@alerts.command(short_help="Evaluate the rules once and send notifications.")
@_rules_option
@store_option
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would happen, without writing or sending anything.")
@click.option("--retry", "is_retry", is_flag=True, help="Send everything undelivered now, and not only what is due again.")
@format_option('{"changes": [...], "sent": [...], "waiting": [...]}', "table", "json")
def check(rules_file: Path | None, stores: tuple[str, ...], *, is_dry: bool, is_retry: bool, form: Format) -> None:
    """Evaluate the rules once: open, update and close alerts, and send notifications. Run it from cron; it fails while any is undelivered.

    Example: edgemeter trend alerts check --rules alerts.toml --dry-run
    """
    rules = _rules(rules_file)
    where = chosen_stores(stores)
    with ExitStack() as stack:
        # What a dry run has to write down lies outside the folder of the ledger, and goes with it.
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="edgemeter-"))) if is_dry else None
        progress, file = stack.enter_context(progress_bar()), stack.enter_context(_file(where, scratch))
        before = () if is_dry else checking.send_waiting(file, rules, time.time_ns(), is_retry=is_retry)
        history = open_history(where, progress, scratch / "index" if scratch else None)
        result = checking.check_alerts(history, where[0], file, rules, time.time_ns(), is_dry=is_dry)
        result = replace(result, sent=[*before, *result.sent])
        newest = history.columns(history.series(), [LATENCY], history.newest_day() + 1 - NEWEST_DAYS).is_ok
    if not newest.any():
        words = f"no run of the newest {NEWEST_DAYS} days is ok, and only such runs are judged; `edgemeter runs` says why"
        click.echo(f"edgemeter: {words}", err=True)
    plan = checking.planned_sends(rules, result.changes) if is_dry else {}
    click.echo(alerts_table.check_json(result, plan) if form == "json" else alerts_table.check_text(result, plan))
    for channel in result.waiting:
        click.echo(f"edgemeter: {alerts_table.waiting_text(channel)}", err=True)
    if result.waiting and not is_dry:
        sys.exit(FAILED)


@alerts.command("list", short_help="List alerts, and notifications that wait.")
@store_option
@click.option("--all", "with_closed", is_flag=True, help="Include closed alerts.")
@click.option("--members", "with_members", is_flag=True, help="Show below each event the findings that it consists of.")
@format_option('{"alerts": [...], "waiting": [...]}, each alert with its members')
def listing(stores: tuple[str, ...], *, with_closed: bool, with_members: bool, form: Format) -> None:
    """List the open alerts, or all of them; then the notifications that wait, and why.

    Example: edgemeter trend alerts list --all
    """
    with _file(stores) as file, file.reading() as statements:
        listed = lifecycle.alerts_of(statements, with_closed=with_closed)
        unsent_notices = [unsent for unsent in outbox.unsent_notices(statements) if unsent.state != "over"]
    rows = [alerts_table.alert_row(alert) for alert in listed]
    if not print_data(form, {"alerts": rows, "waiting": [alerts_table.unsent_row(unsent) for unsent in unsent_notices]}):
        if listed:
            console_for(form).print(alerts_table.alerts_table(listed, with_members=with_members))
        if unsent_notices:
            console_for(form).print(alerts_table.unsent_table(unsent_notices))
        click.echo(figures.count(len(listed), "alert") + ("" if with_closed else " open"), err=True)


@alerts.command(short_help="Confirm an alert; a new level begins.")
@click.argument("number", type=click.IntRange(1))
@store_option
@click.option("--reason", "remark", help="The cause.")
def acknowledge(number: int, stores: tuple[str, ...], remark: str | None) -> None:
    """Confirm an alert: its day marks the start of a new level, history is kept, and the alert closes at the next check.

    Example: edgemeter trend alerts acknowledge 7 --reason "new power supply"
    """
    with _file(stores) as file:
        click.echo(lifecycle.acknowledge(file, number, remark), err=True)


@alerts.command(short_help="Dismiss a false alert; it does not open again.")
@click.argument("number", type=click.IntRange(1))
@store_option
@click.option("--reason", "remark", help="Why it is false.")
def dismiss(number: int, stores: tuple[str, ...], remark: str | None) -> None:
    """Dismiss a false alert: it closes and does not open again for the same day.

    Example: edgemeter trend alerts dismiss 7 --reason "the meter was moved"
    """
    with _file(stores) as file:
        click.echo(lifecycle.dismiss(file, number, remark), err=True)


@alerts.command(short_help="Drop notifications that wait.")
@click.argument("notices", nargs=-1, type=click.IntRange(1), metavar="NOTICE")
@store_option
@click.option("--channel", help="Drop everything that waits for this channel.")
def drop(notices: tuple[int, ...], stores: tuple[str, ...], channel: str | None) -> None:
    """Drop notifications that wait; the alerts stay. Their numbers are those that `list` shows.

    Example: edgemeter trend alerts drop --channel "team chat"
    """
    if not notices and channel is None:
        raise click.UsageError("name a notice, or --channel")
    with _file(stores) as file:
        dropped = outbox.drop_notices(file, notices, channel)
    click.echo(f"dropped {figures.count(dropped, 'notice')}", err=True)


@alerts.command(short_help="Show which rules fire most often, and how many alerts were real.")
@_rules_option
@store_option
@click.option("--days", type=click.IntRange(1), default=90, show_default=True, help="Number of days to consider.")
@format_option('{"rules": [...]}')
def health(rules_file: Path | None, stores: tuple[str, ...], days: int, *, form: Format) -> None:
    """Show for each rule how many alerts opened, were confirmed or dismissed, and which rules fire most often.

    Example: edgemeter trend alerts health --days 30
    """
    rules = [rule.name for rule in _rules(rules_file).rule]
    with _file(stores) as file:
        rules_health = lifecycle.rules_health(lifecycle.read_alerts(file, with_closed=True), rules, time.time_ns(), days)
    if not print_data(form, {"rules": rules_health}):
        console_for(form).print(alerts_table.health_table(rules_health))


@alerts.command(short_help="Send a test notification to a channel.")
@click.argument("channel")
@click.option("--rules", "rules_file", required=True, type=PATH, envvar="EDGEMETER_ALERT_RULES", help="Rules file (TOML).")
def test(channel: str, rules_file: Path) -> None:
    """Send a test notification to a channel.

    Example: edgemeter trend alerts test "team chat" --rules alerts.toml
    """
    checking.send_test(_rules(rules_file), channel)
    click.echo(f"sent a test notification to {channel!r}", err=True)


def _rules(path: Path | None) -> AlertRules:
    return USUAL if path is None else read_rules(path)


def _file(stores: Sequence[str], scratch: Path | None = None) -> WatchStore:
    ledger = ledger_place(existing_store(chosen_stores(stores)[0]))
    if scratch is None:
        return open_watch(ledger)
    if not isinstance(ledger, Path):
        return open_watch(ledger, "read")
    # A copy, so that nothing beside the ledger is written.
    path, copy = watch_file_beside(str(ledger)), scratch / "watch"
    if path.exists():
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    return WatchFile(copy)
