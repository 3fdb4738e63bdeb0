"""The command `edgemeter fleet update`."""

import sys
import time
from collections.abc import Sequence

import click
from rich.console import Console

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.options import FiniteRange
from edgemeter.agent.base.tables import console_for
from edgemeter.provisioning.cli.options import folder_option, json_option, open_registry, selection_option
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import narrow_table
from edgemeter.provisioning.jobs.job_view import follow_job
from edgemeter.provisioning.registry.jobs import Execution
from edgemeter.provisioning.update import rollout
from edgemeter.provisioning.update.rollout import Allowed, UpdateChoice

# It may wait for a long measurement, and for the connection.
TIMEOUT_S = 4 * 3600.0


@click.command()
@click.argument("version", required=False)
@selection_option("update")
@click.option("--canary", type=click.IntRange(1), help="Update this number of devices first, and the others once all of these succeed.")
@click.option(
    "--even-if",
    type=click.Choice(["older", "bad"]),
    multiple=True,
    help="older: allow an older version; bad: retry a version that failed there. Repeatable.",
)
@click.option("--timeout", "timeout_s", type=FiniteRange(60, 604_800), default=TIMEOUT_S, show_default=True, help="Seconds per device.")
@click.option("--wait/--detach", "waits", default=True, help="Wait until all have ended (exit status 1 if one failed), or return at once.")
@click.option("--dry-run", is_flag=True, help="Show present and new versions, and order nothing.")
@json_option
@folder_option
def update(
    version: str | None,
    selection: str,
    folder: FleetFolder,
    *,
    canary: int | None,
    even_if: tuple[Allowed, ...],
    timeout_s: float,
    waits: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Update devices to a release, by default the newest; a release that fails its health check is rolled back.

    Example: edgemeter fleet update 1.2.0 --on 'board=pi5' --canary 2
    """
    if canary is not None and not waits:
        raise click.UsageError("--canary waits for the first devices, so it cannot be combined with --detach")
    with open_registry(folder, read_only=dry_run) as registry:
        choices = rollout.plan_update(folder, registry, selection, version, even_if)
        if not as_json:
            _show(choices)
        if dry_run:
            if as_json:
                click.echo(json_document([_planned(choice) for choice in choices]))
            return
        ended: list[Execution] = []
        try:
            for wave in rollout.update_waves(choices, canary):
                jobs = rollout.order_update(registry, wave, even_if, timeout_s, time.time_ns())
                click.echo(f"ordered: {', '.join(jobs)}", err=True)
                if waits:
                    ended += [execution for job in jobs for execution in follow_job(folder, registry, job, Console(stderr=True))]
                if any(execution.state != "done" for execution in ended):
                    break
        except KeyboardInterrupt:
            click.echo("edgemeter: the ordered updates continue: `edgemeter fleet jobs` shows them", err=True)
            raise
        _print_ended(ended, choices, as_json=as_json)
    sys.exit(0 if all(execution.state == "done" for execution in ended) else 1)


def _show(choices: Sequence[UpdateChoice]) -> None:
    rows = []
    for choice in choices:
        goes = (choice.release.version, choice.release.sha256[:12]) if choice.release else ("stays", "")
        bad = f"failed there: {', '.join(choice.bad)}" if choice.bad else ""
        rows.append(
            (choice.device.device, choice.device.board or "", choice.runs or "", *goes, "; ".join(filter(None, (bad, choice.note))))
        )
    headings = ("device", "board", "runs", "goes to", "sha256", "note")
    console_for(None).print(narrow_table(headings, rows, folded={"note"}))


def _print_ended(ended: Sequence[Execution], choices: Sequence[UpdateChoice], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"device": execution.device, "job": execution.job, "state": execution.state, "reason": execution.reason} for execution in ended
        ]
        click.echo(json_document({"devices": [_planned(choice) for choice in choices], "ended": rows}))
        return
    for execution in ended:
        click.echo(f"{execution.device}: {execution.state.replace('_', ' ')}{f': {execution.reason}' if execution.reason else ''}")
    not_updated = sum(1 for choice in choices if choice.release is not None) - len(ended)
    if ended and not_updated:
        click.echo(f"{not_updated} devices were not updated, because a canary failed", err=True)


def _planned(choice: UpdateChoice) -> dict[str, object]:
    return {
        "device": choice.device.device,
        "board": choice.device.board,
        "runs": choice.runs,
        "goes_to": choice.release.version if choice.release else None,
        "bundle": choice.release.sha256 if choice.release else None,
        "bad": list(choice.bad),
        "note": choice.note,
    }
