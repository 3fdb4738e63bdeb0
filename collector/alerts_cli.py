"""`edgemeter alerts`: tell people and pagers of what the watch confirmed."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.collector.trend_cli import default_store, existing_store, shown_progress, store_option

if TYPE_CHECKING:
    from edgemeter.collector.alerts.rules import Rules
    from edgemeter.collector.trend.watch_file import WatchFile

_rules_option = click.option(
    "--rules",
    "rules_file",
    type=click.Path(path_type=Path),
    envvar="EDGEMETER_ALERT_RULES",
    help="The rules (TOML; `edgemeter alerts sample` prints one). Default: the usual rules, sent nowhere.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, short_help="Tell people and pagers of what the watch confirmed.")
def alerts() -> None:
    """Tell people and pagers of what the watch confirmed: each alert opens once, is updated, closes.

    Example: edgemeter alerts check --rules alerts.toml
    """


@alerts.command(short_help="Look at the rules once, and send what happened.")
@_rules_option
@store_option
@click.option("--dry-run", "is_dry", is_flag=True, help="Only say what would happen: nothing is written or sent.")
@click.option("--json", "as_json", is_flag=True, help='Print {"changes": [...], "sent": [...], "requests": [...]}.')
def check(rules_file: Path | None, stores: tuple[str, ...], *, is_dry: bool, as_json: bool) -> None:
    """Look at the rules once: open, update and close alerts, ask boards for more runs, and send what happened. Run it from cron.

    Example: edgemeter alerts check --rules alerts.toml --dry-run
    """
    from edgemeter.collector.alerts import alerts_table, sending
    from edgemeter.collector.alerts import check as checking
    from edgemeter.collector.trend.history import open_history

    rules = _rules(rules_file)
    where = stores or (default_store(),)
    with shown_progress() as progress, _file(where) as file:
        history = open_history(where, progress)
        done = checking.check(history, where[0], file, rules, time.time_ns(), is_dry=is_dry)
    plan = sending.planned(rules, done.changes) if is_dry else {}
    click.echo(alerts_table.checked_json(done, plan) if as_json else alerts_table.checked_text(done, plan))
    failed = [one for one in done.sent if one.error is not None]
    for one in failed:
        click.echo(f"edgemeter: {one.error}", err=True)
    if failed:
        sys.exit(1)


@alerts.command("list", short_help="List alerts.")
@store_option
@click.option("--all", "with_closed", is_flag=True, help="Closed ones too.")
@click.option("--json", "as_json", is_flag=True, help='Print {"alerts": [...]}.')
def listing(stores: tuple[str, ...], *, with_closed: bool, as_json: bool) -> None:
    """List the alerts that are open, or all of them.

    Example: edgemeter alerts list --all
    """
    from edgemeter.collector.alerts import alerts_table, lifecycle
    from edgemeter.collector.show import figures

    with _file(stores) as file:
        found = lifecycle.read(file, with_closed=with_closed)
    if as_json:
        click.echo(alerts_table.as_json(found))
    else:
        if found:
            _print(alerts_table.table(found))
        click.echo(figures.count(len(found), "alert") + ("" if with_closed else " open"), err=True)


@alerts.command(short_help="Say that an alert is real; a new level begins.")
@click.argument("number", type=click.IntRange(1))
@store_option
@click.option("--remark", help="What it was.")
def acknowledge(number: int, stores: tuple[str, ...], remark: str | None) -> None:
    """Say that an alert is real: from its day on a new level begins, history stays, and the alert closes at the next check.

    Example: edgemeter alerts acknowledge 7 --remark "new power supply"
    """
    from edgemeter.collector.alerts import judging

    with _file(stores) as file:
        click.echo(judging.acknowledge(file, number, remark), err=True)


@alerts.command(short_help="Say that an alert is false; it does not open again.")
@click.argument("number", type=click.IntRange(1))
@store_option
@click.option("--because", "remark", help="Why.")
def dismiss(number: int, stores: tuple[str, ...], remark: str | None) -> None:
    """Say that an alert is false: it closes and does not open again for the same day.

    Example: edgemeter alerts dismiss 7 --because "the meter was moved"
    """
    from edgemeter.collector.alerts import judging

    with _file(stores) as file:
        click.echo(judging.dismiss(file, number, remark), err=True)


@alerts.command(short_help="How the alarms themselves are: opened, confirmed, dismissed.")
@_rules_option
@store_option
@click.option("--days", type=click.IntRange(1), default=90, show_default=True, help="Over so many days.")
@click.option("--json", "as_json", is_flag=True, help='Print {"rules": [...]}.')
def health(rules_file: Path | None, stores: tuple[str, ...], days: int, *, as_json: bool) -> None:
    """Show how the alarms themselves are: how many opened, were confirmed or dismissed, and which rule cries too often.

    Example: edgemeter alerts health --days 30
    """
    from edgemeter.collector.alerts import alerts_table, lifecycle
    from edgemeter.collector.alerts import health as healths

    rules = _rules(rules_file)
    with _file(stores) as file:
        known = lifecycle.read(file, with_closed=True)
    found = healths.health(known, [rule.name for rule in rules.rule], time.time_ns(), days)
    if as_json:
        click.echo(alerts_table.health_json(found))
    else:
        _print(alerts_table.health_table(found))


@alerts.command(short_help="List the runs that suspects asked their boards for.")
@store_option
@click.option("--json", "as_json", is_flag=True, help='Print {"requests": [...]}.')
def requests(stores: tuple[str, ...], *, as_json: bool) -> None:
    """List the runs that suspects asked their boards for, at most a tenth of all runs.

    Example: edgemeter alerts requests
    """
    from edgemeter.collector.alerts import alerts_table
    from edgemeter.collector.trend import more_runs

    with _file(stores) as file:
        found = more_runs.read(file)
    if as_json:
        click.echo(alerts_table.requests_json(found))
    elif found:
        _print(alerts_table.requests_table(found))
    else:
        click.echo("no board was asked for more runs", err=True)


@alerts.command(short_help="Send a test to a channel.")
@click.argument("channel")
@click.option(
    "--rules", "rules_file", required=True, type=click.Path(path_type=Path), envvar="EDGEMETER_ALERT_RULES", help="The rules (TOML)."
)
def test(channel: str, rules_file: Path) -> None:
    """Send a notice to a channel that says that it is a test.

    Example: edgemeter alerts test "team chat" --rules alerts.toml
    """
    from edgemeter.collector.alerts import sending

    sending.test(_rules(rules_file), channel)
    click.echo(f"sent a test to {channel!r}", err=True)


@alerts.command(short_help="Print sample rules with every key.")
def sample() -> None:
    """Print sample rules with every key.

    Example: edgemeter alerts sample > alerts.toml
    """
    from importlib.resources import files

    click.echo(files("edgemeter.collector.alerts").joinpath("sample_alerts.toml").read_text(encoding="utf-8"), nl=False)


def _rules(path: Path | None) -> "Rules":
    from edgemeter.collector.alerts import rules

    return rules.USUAL if path is None else rules.read(path)


def _file(stores: tuple[str, ...]) -> "WatchFile":
    from edgemeter.collector.trend.watch_file import WatchFile, beside

    return WatchFile(beside(existing_store(stores[0] if stores else default_store())))


def _print(table: Any) -> None:
    from rich.console import Console

    console = Console()
    (console if console.is_terminal else Console(width=300)).print(table)
