"""The command `edgemeter fleet update`."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console

from edgemeter.agent.base.errors import DONE, FAILED
from edgemeter.agent.base.options import FiniteRange, format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.provisioning.cli.options import in_folder, selection_option
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import narrow_table
from edgemeter.provisioning.jobs.job_view import follow_job
from edgemeter.provisioning.registry import campaigns
from edgemeter.provisioning.registry.campaigns import GroupEnd
from edgemeter.provisioning.registry.jobs import Execution
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.update import rollout
from edgemeter.provisioning.update.rollout import Allowed, UpdateChoice

# It may wait for a long measurement, and for the connection.
TIMEOUT_S = 4 * 3600.0


def _group_ends(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[GroupEnd, ...]:
    parts = [part.strip() for part in value.split(",") if part.strip()]
    try:
        return msgspec.convert([int(part) if part.isdecimal() else part for part in parts], tuple[GroupEnd, ...])
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"{value!r}: write numbers of devices or shares of them, such as 2,10%,50%") from error


@click.command()
@click.argument("version", required=False)
@selection_option("update")
@click.option(
    "--groups",
    metavar="ENDS",
    default="",
    callback=_group_ends,
    help="How many devices have begun with each group, as numbers or shares (2,10%,50%); the last group is all others. Default: one group.",
)
@click.option(
    "--max-failed",
    "max_failed_ratio",
    metavar="RATIO",
    type=FiniteRange(0, 1),
    default=0.2,
    show_default=True,
    help="Stop when more than this share of the devices that ended, or of a group, was not updated.",
)
@click.option(
    "--even-if",
    type=click.Choice(["older", "bad"]),
    multiple=True,
    help="older: allow an older version; bad: retry a version that failed there. Repeatable.",
)
@click.option("--timeout", "timeout_s", type=FiniteRange(60, 604_800), default=TIMEOUT_S, show_default=True, help="Seconds per device.")
@click.option("--wait/--detach", "waits", default=True, help="Wait until all have ended (exit status 1 if one failed), or return at once.")
@click.option("--dry-run", is_flag=True, help="Show present and new versions, and order nothing.")
@format_option("", "table", "json")
@in_folder
def update(
    version: str | None,
    selection: str,
    folder: FleetFolder,
    *,
    groups: tuple[GroupEnd, ...],
    max_failed_ratio: float,
    even_if: tuple[Allowed, ...],
    timeout_s: float,
    waits: bool,
    dry_run: bool,
    form: Format,
) -> None:
    """Update devices to a release, by default the newest; a release that fails its health check is rolled back.

    The service updates group after group, as it carries out a campaign: `edgemeter fleet campaign` shows, pauses, resumes and cancels it.

    Example: edgemeter fleet update 1.2.0 --on 'board=pi5' --groups 2,10%,50%
    """
    rules = rollout.update_rules(groups, max_failed_ratio)
    with open_registry(folder, read_only=dry_run) as registry:
        choices = rollout.plan_update(folder, registry, selection, version, even_if)
        going = [choice for choice in choices if choice.release is not None]
        waves = rollout.group_of(going, rules)
        planned = [_planned(choice, waves) for choice in choices]
        if form != "json":
            _show(planned)
        if dry_run:
            print_data(form, planned)
            return
        name = rollout.start_update(registry, going, rules, even_if, timeout_s, time.time_ns()) if going else None
        click.echo(f"started: {name}" if name else "no device is to be updated", err=True)
        ended = _follow(folder, registry, name) if name and waits else []
        state = campaigns.find(registry, name).state if name else "done"
        fields = ("device", "job", "state", "reason")
        rows = [{field: getattr(execution, field) for field in fields} for execution in ended]
        if not print_data(form, {"campaign": name, "state": state, "devices": planned, "ended": rows}):
            for execution in ended:
                click.echo(f"{execution.device}: {execution.state.replace('_', ' ')}{f': {execution.reason}' if execution.reason else ''}")
    sys.exit(FAILED if waits and (state != "done" or any(execution.state != "done" for execution in ended)) else DONE)


def _follow(folder: FleetFolder, registry: Registry, name: str) -> list[Execution]:
    """Return how the devices' updates ended, or that they wait, once the campaign has ended or was stopped."""
    try:
        ended = follow_job(folder, registry, name, Console(stderr=True), owner="campaign")
    except KeyboardInterrupt:
        click.echo(f"edgemeter: the service continues with it: `edgemeter fleet campaign status {name}` shows it", err=True)
        raise
    campaign = campaigns.find(registry, name)
    if campaign.state in {"aborted", "paused"}:
        waiting_count = sum(not execution.is_final for execution in ended)
        remedy = f"`edgemeter fleet campaign resume {name}` continues, `cancel` ends it"
        click.echo(f"{campaign.state} ({campaign.reason}), {waiting_count} devices were not updated: {remedy}", err=True)
    return ended


def _show(planned: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for row in planned:
        bad = f"failed there: {', '.join(row['bad'])}" if row["bad"] else ""
        cells = (row["device"], row["board"], row["runs"], row["goes_to"] or "stays", (row["bundle"] or "")[:12], row["group"])
        rows.append((*(str(cell or "") for cell in cells), "; ".join(filter(None, (bad, row["note"])))))
    headings = ("device", "board", "runs", "goes to", "sha256", "group", "note")
    console_for("table").print(narrow_table(headings, rows, folded={"note"}))


def _planned(choice: UpdateChoice, waves: Mapping[str, int]) -> dict[str, Any]:
    return {
        "device": choice.device.device,
        "board": choice.device.board,
        "runs": choice.runs,
        "goes_to": choice.release.version if choice.release else None,
        "group": waves[choice.device.device] + 1 if choice.release else None,
        "bundle": choice.release.sha256 if choice.release else None,
        "bad": list(choice.bad),
        "note": choice.note,
    }
