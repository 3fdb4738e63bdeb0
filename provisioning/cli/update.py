"""The command `edgemeter fleet update`."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table
from edgemeter.provisioning.cli.jobs import MAX_FAILED_RATIO, order, timeout_option, waves_options
from edgemeter.provisioning.cli.options import rehearsed_options, selection_option
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs.waves import in_waves
from edgemeter.provisioning.update import choice as choosing
from edgemeter.provisioning.update.choice import Allowed, UpdateChoice

# It may wait for a long measurement, and for the connection.
TIMEOUT_S = 4 * 3600.0


@click.command()
@click.argument("version", required=False)
@selection_option("update")
@waves_options
@click.option(
    "--even-if",
    type=click.Choice(["older", "bad"]),
    multiple=True,
    help="older: allow an older version; bad: retry a version that failed there. Repeatable.",
)
@timeout_option(default=TIMEOUT_S)
@rehearsed_options
def update(
    version: str | None,
    selection: str,
    folder: FleetFolder,
    *,
    wave_ends: tuple[str, ...],
    max_failed_ratio: float | None,
    even_if: tuple[Allowed, ...],
    timeout_s: float,
    waits: bool,
    dry_run: bool,
    form: Format,
) -> None:
    """Update devices to a release, by default the newest; a release that fails its health check is rolled back.

    It is a job: `edgemeter fleet jobs` shows, pauses, resumes and cancels it.

    Example: edgemeter fleet update 1.2.0 --on 'board=pi5' --waves 2,10%,50%
    """
    with open_registry(folder, read_only=dry_run) as registry:
        choices = choosing.plan_update(folder, registry, selection, version, even_if)
        going = [choice for choice in choices if choice.release is not None]
        waves = in_waves({choice.device.device: choice.release for choice in going}, wave_ends)
        planned = [_planned(choice, waves) for choice in choices]
        if form != "json":
            _show(planned)
        if dry_run:
            print_data(form, planned)
        elif going:
            new, targets = choosing.update_job(
                going, waves, even_if, timeout_s, MAX_FAILED_RATIO if max_failed_ratio is None else max_failed_ratio
            )
            order(registry, new, targets, waits=waits, form=form)
        elif not print_data(form, {"job": None, "devices": planned}):
            click.echo("no device is to be updated", err=True)


def _show(planned: Sequence[Mapping[str, Any]]) -> None:
    table = plain_table("device", "board", "runs", "goes to", "sha256", "wave", "note")
    for row in planned:
        bad = f"failed there: {', '.join(row['bad'])}" if row["bad"] else ""
        cells = (row["device"], row["board"], row["runs"], row["goes_to"] or "stays", (row["bundle"] or "")[:12], row["wave"])
        table.add_row(*(Text(str(cell or "")) for cell in cells), Text("; ".join(filter(None, (bad, row["note"])))))
    console_for("table").print(table)


def _planned(choice: UpdateChoice, waves: Mapping[str, int]) -> dict[str, Any]:
    return {
        "device": choice.device.device,
        "board": choice.device.board,
        "runs": choice.runs,
        "goes_to": choice.release.version if choice.release else None,
        "wave": waves[choice.device.device] + 1 if choice.release else None,
        "bundle": choice.release.sha256 if choice.release else None,
        "bad": list(choice.health.bad_agents) if choice.health else [],
        "note": choice.note,
    }
