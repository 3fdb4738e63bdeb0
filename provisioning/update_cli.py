"""The commands `edgemeter fleet release` and `edgemeter fleet update`."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.agent.finite_range import FiniteRange
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgemeter.provisioning.jobs.executions import Execution
    from edgemeter.provisioning.update.choice import Allowed, Choice
    from edgemeter.provisioning.update.releases import Release

# It may wait for a long measurement, and for the line.
TIMEOUT_S = 4 * 3600.0


@click.group()
def release() -> None:
    """Keep the signed bundles that devices can go to.

    Example: edgemeter fleet release add edgemeter-1.2.0-pi5.tar
    """


@release.command()
@click.argument("bundles", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Verify only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def add(bundles: tuple[Path, ...], folder: FleetFolder, *, dry_run: bool, as_json: bool) -> None:
    """Verify bundles by the fleet's key and keep them for `edgemeter fleet update`; a bundle that is there stays as it is.

    Example: edgemeter fleet release add edgemeter-1.2.0-pi5.tar
    """
    from contextlib import closing

    from edgemeter.provisioning.registry.registry import Registry
    from edgemeter.provisioning.update import addition

    found = [addition.look(folder, bundle) for bundle in bundles]
    if dry_run:
        for one in found:
            click.echo(f"would add {one.manifest.version} for {one.manifest.board}: {one.path}", err=as_json)
        return
    with closing(Registry(folder.registry)) as registry:
        added = [addition.add(folder, registry, one) for one in found]
    if as_json:
        click.echo(json.dumps([_document(one) for one in added], indent=2))
        return
    for kept in added:
        click.echo(f"{kept.version} for {kept.board} ({kept.arch}, Python {kept.python}, glibc {kept.glibc}): {kept.sha256[:12]}")


@release.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def list_releases(folder: FleetFolder, *, as_json: bool) -> None:
    """List the releases, the newest first.

    Example: edgemeter fleet release list
    """
    from contextlib import closing

    from edgemeter.provisioning.inventory import narrow_table
    from edgemeter.provisioning.registry.registry import Registry
    from edgemeter.provisioning.update import releases

    with closing(Registry(folder.registry, "read")) as registry:
        known = releases.read(registry)
    if as_json:
        click.echo(json.dumps([_document(one) for one in known], indent=2))
        return
    rows = [
        (one.version, one.board, one.python, one.glibc, f"{one.size_bytes / 1e6:.1f} MB", one.sha256[:12], one.checked) for one in known
    ]
    headings = ("version", "board", "Python", "glibc", "size", "bundle", "checked")
    narrow_table.show(narrow_table.table(headings, rows, folded={"checked"}, right={"size"}))


@click.command()
@click.argument("version", required=False)
@click.option("--on", "selection", required=True, help="Which devices: 'board=pi5 & coral', 'device=pi5-*', all.")
@click.option("--canary", type=click.IntRange(1), help="So many devices first; the others once all of these are done.")
@click.option(
    "--even-if",
    type=click.Choice(["older", "bad"]),
    multiple=True,
    help="older: go back to an older version; bad: try again what failed there. Again for both.",
)
@click.option("--timeout", "timeout_s", type=FiniteRange(60, 604_800), default=TIMEOUT_S, show_default=True, help="Seconds a device has.")
@click.option("--wait/--detach", "waits", default=True, help="Stay until all have ended (exit 1 when one failed), or leave at once.")
@click.option("--dry-run", is_flag=True, help="Show who runs what and who would go, and order nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def update(
    version: str | None,
    selection: str,
    folder: FleetFolder,
    *,
    canary: int | None,
    even_if: "tuple[Allowed, ...]",
    timeout_s: float,
    waits: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let devices go to a release (without VERSION the newest), each to the bundle that fits it; one that does not work is gone back from.

    Example: edgemeter fleet update 1.2.0 --on 'board=pi5' --canary 2
    """
    from contextlib import closing

    from edgemeter.provisioning.registry.registry import Registry
    from edgemeter.provisioning.update import rollout

    if canary is not None and not waits:
        message = "--canary waits for the first devices: it cannot be combined with --detach"
        raise click.UsageError(message)
    with closing(Registry(folder.registry, "read" if dry_run else "write")) as registry:
        choices = rollout.plan(folder, registry, selection, version, even_if)
        if not as_json:
            _show(choices)
        if dry_run:
            if as_json:
                click.echo(json.dumps([_planned(one) for one in choices], indent=2))
            return
        ended: list[Execution] = []
        try:
            for wave in rollout.waves(choices, canary):
                jobs = rollout.order(registry, wave, even_if, timeout_s, time.time_ns())
                click.echo(f"ordered: {', '.join(jobs)}", err=True)
                ended += rollout.follow(folder, registry, jobs) if waits else []
                if any(one.state != "done" for one in ended):
                    break
        except KeyboardInterrupt:
            click.echo("edgemeter: what was ordered goes on: `edgemeter fleet jobs` shows it", err=True)
            raise
        _say_ended(ended, choices, as_json=as_json)
    sys.exit(0 if all(one.state == "done" for one in ended) else 1)


def _show(choices: "Sequence[Choice]") -> None:
    from edgemeter.provisioning.inventory import narrow_table

    rows = []
    for one in choices:
        goes = (one.release.version, one.release.sha256[:12]) if one.release else ("stays", "")
        bad = f"bad there: {', '.join(one.bad)}" if one.bad else ""
        rows.append((one.device.device, one.device.board or "", one.runs or "", *goes, "; ".join(filter(None, (bad, one.note)))))
    headings = ("device", "board", "runs", "goes to", "bundle", "note")
    narrow_table.show(narrow_table.table(headings, rows, folded={"note"}))


def _say_ended(ended: "Sequence[Execution]", choices: "Sequence[Choice]", *, as_json: bool) -> None:
    if as_json:
        told = [{"device": one.device, "job": one.job, "state": one.state, "reason": one.reason} for one in ended]
        click.echo(json.dumps({"devices": [_planned(one) for one in choices], "ended": told}, indent=2))
        return
    for one in ended:
        click.echo(f"{one.device}: {one.state.replace('_', ' ')}{f': {one.reason}' if one.reason else ''}")
    left = sum(1 for one in choices if one.release is not None) - len(ended)
    if ended and left:
        click.echo(f"{left} devices were not ordered to go: a canary failed", err=True)


def _document(release: "Release") -> dict[str, object]:
    from dataclasses import asdict

    return asdict(release)


def _planned(choice: "Choice") -> dict[str, object]:
    return {
        "device": choice.device.device,
        "board": choice.device.board,
        "runs": choice.runs,
        "goes_to": choice.release.version if choice.release else None,
        "bundle": choice.release.sha256 if choice.release else None,
        "bad": list(choice.bad),
        "note": choice.note,
    }
