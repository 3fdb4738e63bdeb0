"""`edgemeter trend alerts`: evaluate alert rules and notify people and pagers."""

import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from edgemeter.agent.base.cli.options import PATH, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.console import Table, Text
from edgemeter.agent.base.errors import FAILED
from edgemeter.agent.base.number_text import count, printable, stamp
from edgemeter.collector.alerts.check import NEWEST_DAYS, alerts_of, check_alerts, undelivered_texts
from edgemeter.collector.alerts.rules import USUAL, read_rules
from edgemeter.collector.cli.stores import chosen_stores, existing_store, store_option
from edgemeter.collector.ledgers.place import ledger_place
from edgemeter.collector.runs.cases import grouped


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="Evaluate alert rules and notify people.",
)
def alerts() -> None:
    """Evaluate alert rules and notify people.

    Each channel is notified once when an alert opens and once when it closes.

    Example: edgemeter trend alerts check --rules alerts.toml
    """


@alerts.command(short_help="Evaluate the rules once and notify the channels.")
@click.option(
    "--rules",
    "rules_file",
    type=PATH,
    envvar="EDGEMETER_ALERT_RULES",
    help="Rules file (TOML). Default: the built-in rules.",
)
@click.option(
    "--test",
    "is_test",
    is_flag=True,
    help="Open a test alert on every channel; the next check closes it.",
)
@store_option
def check(rules_file: Path | None, stores: tuple[str, ...], *, is_test: bool) -> None:
    """Evaluate the rules once and notify the channels.

    Run it from cron; it fails while anything is undelivered.

    Example: edgemeter trend alerts check --rules alerts.toml
    """
    where = chosen_stores(stores)
    existing_store(where[0])
    result = check_alerts(
        where,
        USUAL if rules_file is None else read_rules(rules_file),
        time.time_ns,
        is_test=is_test,
    )
    if not result.has_new:
        click.echo(
            f"edgemeter: no run of the newest {NEWEST_DAYS} days is ok, so none was judged; "
            "`edgemeter runs` says why",
            err=True,
        )
    for event, alert in result.changes:
        if event in ("opened", "closed"):
            click.echo(printable(f"{event} [{alert.severity}] {alert.title}: {alert.text}"))
    for channel, notices in result.sent.items():
        click.echo(f"sent {count(notices, 'notification')} to {channel}")
    open_alerts = sum(alert.state == "open" for _, alert in result.changes)
    click.echo(
        f"judged {result.series:,} series: "
        f"{count(open_alerts, 'alert') + ' open' if open_alerts else 'no alert'}"
    )
    undelivered = undelivered_texts(alerts_of(ledger_place(where[0]))[1])
    for text in undelivered:
        click.echo(f"edgemeter: {printable(text)}", err=True)
    if undelivered:
        sys.exit(FAILED)


@alerts.command("list", short_help="List alerts, and what each channel knows of them.")
@store_option
@click.option("--all", "with_closed", is_flag=True, help="Include closed alerts.")
@format_option('{"alerts": [...]}, each with its findings and channels')
def listing(stores: tuple[str, ...], *, with_closed: bool, form: Format) -> None:
    """List the open alerts.

    The list shows the last notification of each channel, and why a newer one failed.

    Example: edgemeter trend alerts list --all
    """
    stored, notified = alerts_of(ledger_place(existing_store(chosen_stores(stores)[0])))
    channels = grouped((row.alert, row) for row in notified)
    listed = [alert for alert in stored if with_closed or alert.state == "open"]
    rows = [
        asdict(alert) | {"channels": [row._asdict() for row in channels.get(alert.number, ())]}
        for alert in listed
    ]
    if print_data(form, {"alerts": rows}):
        return
    table = Table(
        "#", "state", "severity", "since", "rule", "alert", "evidence", "channels", right="#"
    )
    for alert in listed:
        cells = (
            f"{alert.number}",
            alert.state,
            alert.severity,
            stamp(alert.opened_ns),
            alert.rule,
            alert.title,
            alert.text,
            "; ".join(map(str, channels.get(alert.number, ()))),
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    if listed:
        console_for(form).print(table)
    click.echo(count(len(listed), "alert") + ("" if with_closed else " open"), err=True)
