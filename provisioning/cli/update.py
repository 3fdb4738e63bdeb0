"""The commands `edgemeter fleet release` and `edgemeter fleet update`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import FiniteRange
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.provisioning.cli.options import folder_option, format_option, json_option, open_registry, selection_option
from edgemeter.provisioning.identity import release_keys
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import narrow_table
from edgemeter.provisioning.jobs.job_view import follow_job
from edgemeter.provisioning.registry.jobs import Execution
from edgemeter.provisioning.update import releases, rollout
from edgemeter.provisioning.update.rollout import Allowed, UpdateChoice

# It may wait for a long measurement, and for the connection.
TIMEOUT_S = 4 * 3600.0


@click.group()
def release() -> None:
    """Build, sign, check and add releases: all that a board needs to run the agent, in one signed file, installed without a network.

    Example: edgemeter fleet release build --board pi5 --python 3.13
    """


@release.command(short_help="Verify releases and add them to the fleet.")
@click.argument("paths", metavar="RELEASE...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Verify the releases, and add nothing.")
@json_option
@folder_option
def add(paths: tuple[Path, ...], folder: FleetFolder, *, dry_run: bool, as_json: bool) -> None:
    """Verify releases with the fleet's key and add them to those that `edgemeter fleet update` installs.

    Example: edgemeter fleet release add edgemeter-1.2.0-pi5.tar
    """
    verified = [releases.inspect_release(folder, path) for path in paths]
    if dry_run:
        for release in verified:
            click.echo(f"would add {release.manifest.version} for {release.manifest.board}: {release.path}", err=as_json)
        return
    with open_registry(folder) as registry:
        added = [releases.add_release(folder, registry, release) for release in verified]
    if as_json:
        click.echo(json_document(added))
        return
    for each in added:
        click.echo(f"{each.version} for {each.board} ({each.arch}, Python {each.python}, glibc {each.glibc}): {each.sha256[:12]}")


@release.command()
@click.option(
    "--public-key", type=click.Path(path_type=Path, dir_okay=False), help="Public key of a new pair whose private key stays elsewhere."
)
@click.option("--finish", "finishes", is_flag=True, help="Drop the old key: devices reject it from their next update on.")
@click.option("--even-if", type=click.Choice(["behind"]), help="behind: finish although some devices trust the old key alone.")
@click.option("--dry-run", is_flag=True, help="Show which devices have not taken the new key, and change nothing.")
@folder_option
def rotate(folder: FleetFolder, *, public_key: Path | None, finishes: bool, even_if: str | None, dry_run: bool) -> None:
    """Replace the key that signs releases, over the air.

    Begin, update all devices to a release signed with the old key, then end it with --finish.

    Example: edgemeter fleet release rotate
    """
    if finishes and public_key is not None:
        raise click.UsageError("--public-key begins a rotation, --finish ends one: give one of them")
    trusted = release_keys.read_keys(folder.release_public_key)
    with open_registry(folder, read_only=True) as registry:
        behind = release_keys.devices_behind(registry, trusted.since_ns) if trusted.is_open else []
    if dry_run:
        click.echo(f"{len(trusted.keys)} release keys, number {trusted.number}; not taken yet by {', '.join(behind) or 'no device'}")
    elif not finishes:
        rotated = release_keys.begin_rotation(folder, public_key, time.time_ns())
        click.echo(
            f"release keys, number {rotated.number}: devices trust the new key and the old one once they run a release built from now on"
        )
        click.echo(
            "sign with the old key until you finish: release build, release add, update, then `edgemeter fleet release rotate --finish`"
        )
    elif behind and even_if is None:
        raise ConfigError(
            f"{len(behind)} devices run no release built since the rotation began ({', '.join(behind[:5])}): update them first, "
            "or leave them to `edgemeter fleet apply` with --even-if behind"
        )
    else:
        rotated = release_keys.finish_rotation(folder, time.time_ns())
        click.echo(f"release keys, number {rotated.number}: sign with the new key; each device rejects the old one after its next update")


@release.command("list")
@format_option
@folder_option
def list_releases(folder: FleetFolder, *, form: Format | None) -> None:
    """List the releases, the newest first.

    Example: edgemeter fleet release list
    """
    with open_registry(folder, read_only=True) as registry:
        listed = releases.read_releases(registry)
    if print_data(form, listed):
        return
    rows = [
        (
            release.version,
            release.board,
            release.python,
            release.glibc,
            f"{release.size_bytes / 1e6:.1f} MB",
            release.sha256[:12],
            release.checked,
        )
        for release in listed
    ]
    headings = ("version", "board", "Python", "glibc", "size", "sha256", "checked")
    console_for(form).print(narrow_table(headings, rows, folded={"checked"}, right={"size"}))


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
