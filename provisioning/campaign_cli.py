"""The commands `edgemeter fleet campaign ...`."""

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from edgemeter.provisioning.campaigns.coverage import Coverage, Standing
    from edgemeter.provisioning.campaigns.planning import Plan

MOST_REASONS = 20


@click.group()
def campaign() -> None:
    """Measure models x devices x modes, group by group, with a canary, limits and a coverage.

    Example: edgemeter fleet campaign start campaign.toml
    """


@campaign.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Say which cells there would be in which group, and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def start(file: Path, folder: FleetFolder, *, dry_run: bool, as_json: bool) -> None:
    """Start the campaign in a TOML file, on the devices that its selection picks now.

    Example: edgemeter fleet campaign start campaign.toml --dry-run
    """
    from contextlib import closing

    from rich.console import Console

    from edgemeter.provisioning.campaigns import campaign_file, coverage, planning
    from edgemeter.provisioning.content.store import ContentStore, Rehearsal
    from edgemeter.provisioning.inventory import known
    from edgemeter.provisioning.jobs import ordering
    from edgemeter.provisioning.registry.registry import Registry

    written = campaign_file.read(file)
    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        picked = ordering.pick(folder, registry, written.on)
        store = Rehearsal() if dry_run else ContentStore(folder.content)
        with Console(stderr=True).status(f"packing {file.name}"):
            made = planning.plan(planning.Source(written, file.resolve().parent, known.written(folder), store), picked.devices)
        for note in (*picked.notes, *made.notes):
            click.echo(f"edgemeter: {note}", err=True)
        if dry_run:
            _say_plan(made, as_json=as_json)
            return
        planning.start(registry, made, time.time_ns())
        _say(coverage.read(registry, written.name), as_json=as_json, in_full=False)


@campaign.command()
@click.argument("name")
@click.option("--cells", "in_full", is_flag=True, help="List every cell.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every cell.")
@folder_option
def status(name: str, folder: FleetFolder, *, in_full: bool, as_json: bool) -> None:
    """Show how a campaign stands: which cells are done, pending, lost or impossible, and why.

    Example: edgemeter fleet campaign status autumn
    """
    from contextlib import closing

    from edgemeter.provisioning.campaigns import coverage
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read")) as registry:
        _say(coverage.read(registry, name), as_json=as_json, in_full=in_full)


@campaign.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def list_(folder: FleetFolder, *, as_json: bool) -> None:
    """List the campaigns, the newest first.

    Example: edgemeter fleet campaign list
    """
    from contextlib import closing

    from edgemeter.provisioning.campaigns import campaigns, coverage
    from edgemeter.provisioning.inventory import narrow_table
    from edgemeter.provisioning.inventory.wording import day
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read")) as registry:
        found = [coverage.read(registry, one.campaign) for one in campaigns.read(registry)]
    if as_json:
        click.echo(json.dumps({"campaigns": [_document(one, with_cells=False) for one in found]}, indent=2))
        return
    rows = [
        (its.campaign, its.state, day(its.made_ns), f"{its.wave + 1}/{its.waves}", _ratio(one))
        for one, its in ((one, one.campaign) for one in found)
    ]
    headings = ("campaign", "state", "started (UTC)", "group", "coverage")
    narrow_table.show(narrow_table.table(headings, rows, folded={"coverage"}))
    for one in found:
        if one.campaign.reason:
            click.echo(f"{one.campaign.campaign}: {one.campaign.reason}")


@campaign.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Say what would wait, and pause nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def pause(name: str, folder: FleetFolder, *, dry_run: bool, as_json: bool) -> None:
    """Let nothing more of a campaign begin; what is in flight goes on.

    Example: edgemeter fleet campaign pause autumn
    """
    from contextlib import closing

    from edgemeter.provisioning.campaigns import changes
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        _say_change(name, changes.pause(registry, name, is_rehearsal=dry_run), dry_run=dry_run, as_json=as_json)


@campaign.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Say what would go on, and resume nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def resume(name: str, folder: FleetFolder, *, dry_run: bool, as_json: bool) -> None:
    """Let a paused or aborted campaign go on; what failed so far counts for no abort criterion any more.

    Example: edgemeter fleet campaign resume autumn
    """
    from contextlib import closing

    from edgemeter.provisioning.campaigns import changes
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        _say_change(name, changes.resume(registry, name, is_rehearsal=dry_run), dry_run=dry_run, as_json=as_json)


@campaign.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Say what would be ended, and end nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def cancel(name: str, folder: FleetFolder, *, dry_run: bool, as_json: bool) -> None:
    """End a campaign; runs in progress are ended and publish nothing.

    Example: edgemeter fleet campaign cancel autumn
    """
    from contextlib import closing

    from edgemeter.provisioning.campaigns import changes
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        _say_change(name, changes.cancel(registry, name, time.time_ns(), is_rehearsal=dry_run), dry_run=dry_run, as_json=as_json)


def _say_change(name: str, what: str, *, dry_run: bool, as_json: bool) -> None:
    click.echo(json.dumps({"campaign": name, "done": what, "dry_run": dry_run}) if as_json else f"{name}: {what}")


def _say_plan(made: "Plan", *, as_json: bool) -> None:
    cells = [
        {"model": one.model, "mode": one.mode, "device": one.device, "group": one.wave + 1, "impossible": one.impossible}
        for one in made.cells
    ]
    if as_json:
        click.echo(json.dumps({"campaign": made.written.name, "cells": cells}, indent=2))
        return
    for one in cells:
        ending = f": impossible: {one['impossible']}" if one["impossible"] else ""
        click.echo(f"group {one['group']}: {one['device']}: {one['model']}, {one['mode']}{ending}")
    possible = sum(one["impossible"] is None for one in cells)
    click.echo(f"{possible} of {len(cells)} cells are possible")


def _say(covered: "Coverage", *, as_json: bool, in_full: bool) -> None:
    from edgemeter.provisioning.campaigns import coverage
    from edgemeter.provisioning.inventory import narrow_table

    if as_json:
        click.echo(json.dumps(_document(covered, with_cells=True), indent=2))
        return
    its = covered.campaign
    why = f" ({its.reason})" if its.reason else ""
    click.echo(f"{its.campaign}: {its.state}{why}, group {its.wave + 1} of {its.waves}")
    standings: tuple[Standing, ...] = ("done", "pending", "lost", "impossible")
    rows = [(model, mode, *(str(counts[name]) for name in standings)) for (model, mode), counts in coverage.by_row(covered.cells).items()]
    narrow_table.show(narrow_table.table(("model", "mode", *standings), rows, folded={"model"}, right=standings))
    click.echo(f"coverage: {_ratio(covered)} of the possible cells")
    _say_cells(covered, in_full=in_full)


def _say_cells(covered: "Coverage", *, in_full: bool) -> None:
    from edgemeter.provisioning.jobs import shown

    told = [one for one in covered.cells if in_full or one.standing in {"lost", "impossible"}]
    for one in told if in_full else told[:MOST_REASONS]:
        why = f": {shown.one_line(one.why)}" if one.why else ""
        click.echo(f"  {one.cell.device}, {one.cell.model}, {one.cell.mode}: {one.standing}{why}")
    if not in_full and len(told) > MOST_REASONS:
        click.echo(f"  and {len(told) - MOST_REASONS} more: --cells lists all")


def _ratio(covered: "Coverage") -> str:
    possible = len(covered.cells) - covered.counts["impossible"]
    # 99.95 % is not all of it.
    return "-" if covered.ratio is None else f"{covered.counts['done']} of {possible}, {math.floor(covered.ratio * 1000) / 10:g} %"


def _document(covered: "Coverage", *, with_cells: bool) -> dict[str, object]:
    from edgemeter.provisioning.jobs import shown

    its = covered.campaign
    found: dict[str, object] = {
        "campaign": its.campaign,
        "state": its.state,
        "reason": its.reason,
        "group": its.wave + 1,
        "groups": its.waves,
        "started": shown.stamp(its.made_ns),
        "ended": shown.stamp(its.ended_ns),
        "cells": covered.counts,
        "coverage_ratio": covered.ratio,
    }
    if with_cells:
        found["all_cells"] = [
            {
                "model": one.cell.model,
                "mode": one.cell.mode,
                "device": one.cell.device,
                "group": one.cell.wave + 1,
                "job": one.cell.job,
                "standing": one.standing,
                "why": one.why,
                "runs": [] if one.execution is None else list(one.execution.runs),
            }
            for one in covered.cells
        ]
    return found
