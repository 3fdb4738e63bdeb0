"""The commands `edgemeter fleet campaign ...`."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from edgemeter.agent.base.command_group import DefaultGroup
from edgemeter.agent.base.options import format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import print_text
from edgemeter.provisioning.campaigns.campaign_handler import ChangeByHand, change_campaign
from edgemeter.provisioning.cli.options import FILE, change_options, in_folder, print_notes, rehearsed_options
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory.fleet_file import open_registry, read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import day, narrow_table, stamp
from edgemeter.provisioning.jobs.job_view import one_line
from edgemeter.provisioning.registry import campaigns
from edgemeter.provisioning.registry.campaigns import CELL_STATES, CampaignCell, Coverage, read_coverage

MOST_REASONS = 20


@click.group(cls=DefaultGroup)
def campaign() -> None:
    """Carry out campaigns and updates group by group, with limits and coverage; a campaign measures models x devices x modes.

    Example: edgemeter fleet campaign start campaign.toml
    """


@campaign.command(short_help="Start the campaign in a TOML file.")
@click.argument("file", type=FILE)
@rehearsed_options
def start(file: Path, folder: FleetFolder, *, dry_run: bool, form: Format) -> None:
    """Start the campaign in a TOML file, on the devices that match its selection now.

    Example: edgemeter fleet campaign start campaign.toml --dry-run
    """
    from edgemeter.provisioning.campaigns import planning
    from edgemeter.provisioning.content.store import ContentStore, DryRunStore
    from edgemeter.provisioning.jobs import ordering

    written = planning.read_campaign_file(file)
    with open_registry(folder, read_only=dry_run) as registry:
        picked = ordering.pick(folder, registry, written.on)
        store = DryRunStore() if dry_run else ContentStore(folder.content)
        with Console(stderr=True).status(f"packing {file.name}"):
            plan = planning.plan(written, file.resolve().parent, read_if_present(folder), store, picked.devices)
        print_notes((*picked.notes, *plan.notes, *server_issues(folder, time.time_ns())))
        if dry_run:
            _print_plan(written.name, plan.cells, form=form)
            return
        planning.start(registry, plan, time.time_ns())
        _print_coverage(read_coverage(registry, written.name), form, in_full=False)


@campaign.command(short_help="Show which cells are done, pending or lost.")
@click.argument("name")
@click.option("--cells", "in_full", is_flag=True, help="List every cell.")
@format_option()
@in_folder
def status(name: str, folder: FleetFolder, *, in_full: bool, form: Format) -> None:
    """Show the state of a campaign: which cells are done, pending, lost or impossible, and why.

    Example: edgemeter fleet campaign status autumn
    """
    with open_registry(folder, read_only=True) as registry:
        _print_coverage(read_coverage(registry, name), form, in_full=in_full)


@campaign.command(name="list")
@format_option()
@in_folder
def list_(folder: FleetFolder, *, form: Format) -> None:
    """List the campaigns, the newest first.

    Example: edgemeter fleet campaign list
    """
    with open_registry(folder, read_only=True) as registry:
        coverages = [read_coverage(registry, campaign.campaign) for campaign in campaigns.read(registry)]
    if print_data(form, {"campaigns": [_document(covered, with_cells=False) for covered in coverages]}):
        return
    rows = [
        (its.campaign, its.state, day(its.made_ns), f"{its.wave + 1}/{its.waves}", _ratio(covered))
        for covered, its in ((covered, covered.campaign) for covered in coverages)
    ]
    console = console_for(form)
    console.print(narrow_table(("campaign", "state", "started (UTC)", "group", "coverage"), rows, folded={"coverage"}))
    for covered in coverages:
        if covered.campaign.reason:
            print_text(console, f"{covered.campaign.campaign}: {covered.campaign.reason}")


def _add_change(change: ChangeByHand, text: str, short_help: str | None = None) -> None:
    """Add the command that makes a change by hand."""

    @campaign.command(change, help=f"{text}\n\nExample: edgemeter fleet campaign {change} autumn", short_help=short_help)
    @click.argument("name")
    @change_options
    def command(name: str, folder: FleetFolder, *, form: Format) -> None:
        with open_registry(folder) as registry:
            outcome = change_campaign(registry, name, change, time.time_ns())
        if not print_data(form, {"campaign": name, "done": outcome}):
            click.echo(f"{name}: {outcome}")


_add_change("pause", "Pause a campaign: nothing more starts, executions in flight continue.", "Pause a campaign: nothing more starts.")
_add_change(
    "resume",
    "Resume a paused or aborted campaign; failures so far no longer count for its abort rules.",
    "Resume a paused or aborted campaign.",
)
_add_change("cancel", "Cancel a campaign; runs in progress stop and publish nothing.")


def _print_plan(name: str, planned: Sequence[CampaignCell], *, form: Format) -> None:
    cells = [
        {"model": cell.model, "mode": cell.mode, "device": cell.device, "group": cell.wave + 1, "impossible": cell.impossible}
        for cell in planned
    ]
    if print_data(form, {"campaign": name, "cells": cells}):
        return
    for cell in planned:
        ending = f": impossible: {cell.impossible}" if cell.impossible else ""
        click.echo(f"group {cell.wave + 1}: {cell.device}: {cell.model}, {cell.mode}{ending}")
    click.echo(f"{sum(cell.impossible is None for cell in planned)} of {len(planned)} cells are possible")


def _print_coverage(covered: Coverage, form: Format, *, in_full: bool) -> None:
    if print_data(form, _document(covered, with_cells=True), rows="all_cells"):
        return
    console = console_for(form)
    its = covered.campaign
    why = f" ({its.reason})" if its.reason else ""
    print_text(console, f"{its.campaign}: {its.state}{why}, group {its.wave + 1} of {its.waves}")
    cases: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for coverage in covered.cells:
        cases[coverage.cell.model, coverage.cell.mode][coverage.state] += 1
    rows = [(model, mode, *(str(counts[state]) for state in CELL_STATES)) for (model, mode), counts in cases.items()]
    console.print(narrow_table(("model", "mode", *CELL_STATES), rows, folded={"model"}, right=CELL_STATES))
    print_text(console, f"coverage: {_ratio(covered)} of the possible cells")
    listed = [coverage for coverage in covered.cells if in_full or coverage.state in {"lost", "impossible"}]
    shown_count = len(listed) if in_full else MOST_REASONS
    for coverage in listed[:shown_count]:
        ending = f": {one_line(coverage.why)}" if coverage.why else ""
        print_text(console, f"  {coverage.cell.device}, {coverage.cell.model}, {coverage.cell.mode}: {coverage.state}{ending}")
    if len(listed) > shown_count:
        print_text(console, f"  and {len(listed) - shown_count} more: --cells lists all")


def _ratio(covered: Coverage) -> str:
    possible = len(covered.cells) - covered.counts["impossible"]
    # 99.95% is not all of it.
    return "-" if covered.ratio is None else f"{covered.counts['done']} of {possible}, {math.floor(covered.ratio * 1000) / 10:g}%"


def _document(covered: Coverage, *, with_cells: bool) -> dict[str, object]:
    its = covered.campaign
    document: dict[str, object] = {
        "campaign": its.campaign,
        "state": its.state,
        "reason": its.reason,
        "group": its.wave + 1,
        "groups": its.waves,
        "started": stamp(its.made_ns),
        "ended": stamp(its.ended_ns),
        "cells": covered.counts,
        "coverage_ratio": covered.ratio,
    }
    if with_cells:
        document["all_cells"] = [
            {
                "model": coverage.cell.model,
                "mode": coverage.cell.mode,
                "device": coverage.cell.device,
                "group": coverage.cell.wave + 1,
                "job": coverage.cell.job,
                "standing": coverage.state,
                "why": coverage.why,
                "runs": [] if coverage.execution is None else list(coverage.execution.runs),
            }
            for coverage in covered.cells
        ]
    return document
