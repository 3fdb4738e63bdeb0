"""The command `edgemeter fleet apply`: its progress and its summary."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base.cli.options import format_option
from edgemeter.agent.base.cli.tables import Format, print_table
from edgemeter.agent.base.console import Console
from edgemeter.agent.base.errors import DONE, FAILED, ConfigError, os_error_as
from edgemeter.agent.base.terminal import print_text
from edgemeter.provisioning.apply import applying
from edgemeter.provisioning.apply.applying import Applying, ApplyOutcome
from edgemeter.provisioning.cli.options import FILE, dry_run_option, in_folder, selection_option
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.release import release_file


@click.command(short_help="Install the agent on running boards over SSH.")
@selection_option("install the agent on")
@in_folder
@click.option(
    "--release", "releases", type=FILE, multiple=True, required=True,
    help="Release (.tar) to install. Repeatable: each device gets the first that fits.",
)  # fmt: skip
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    help="Number of devices handled in parallel.",
)
@click.option(
    "--sudo-password-file",
    type=FILE,
    help="File whose first line is the sudo password of the devices; - asks for it.",
)
@click.option(
    "--ssh-option", "ssh_options", multiple=True, metavar="KEY=VALUE",
    help="Option as of `ssh -o`, such as IdentityFile=FILE. Repeatable.",
)  # fmt: skip
@click.option(
    "--rejoin",
    "rejoins",
    is_flag=True,
    help="Also join boards that have joined already, with a new token.",
)
@dry_run_option
@format_option('{"devices": [...]}')
def apply(
    selection: str, folder: FleetFolder, jobs: int, *, dry_run: bool, form: Format, **options: Any
) -> None:
    """Install the agent on running boards over SSH.

    Repeating it changes nothing; an interrupted run is resumed.

    Example: edgemeter fleet apply --on 'pi5-*' --release edgemeter-pi5.tar
    """
    targets = applying.read_targets(folder, selection)
    console = Console(sys.stderr)
    application = Applying(
        releases=[
            release_file.read_release(release, folder.release_public_key)
            for release in options["releases"]
        ],
        public_key=folder.release_public_key.read_text(),
        join_file=lambda device: applying.make_join_file(folder, device),
        ssh_options=options["ssh_options"],
        sudo_password=_sudo_password(options["sudo_password_file"]),
        is_dry=dry_run,
        rejoins=options["rejoins"],
    )
    outcomes = application.to_all(
        targets, jobs, lambda device, activity: print_text(console, f"{device}: {activity}")
    )
    changed = "would change" if dry_run else "changed"
    rows = [_row(outcome, changed) for outcome in outcomes]
    print_table(
        form,
        "devices",
        rows,
        {name: name for name in ("device", "result", changed, "skipped", "found")},
    )
    sys.exit(FAILED if any(outcome.state == "failed" for outcome in outcomes) else DONE)


def _sudo_password(file: Path | None) -> str | None:
    if file == Path("-"):
        return str(click.prompt("sudo password of the devices", hide_input=True, err=True))
    if file is None:
        return None
    with os_error_as(
        ConfigError,
        f"cannot read {str(file)!r}",
        "give a file with the sudo password of the devices",
    ):
        password = file.read_bytes().decode(errors="replace").partition("\n")[0].rstrip("\r")
    if not password.strip():
        raise ConfigError(f"{str(file)!r} has no password in its first line: write it there")
    return password


def _row(outcome: ApplyOutcome, changed: str) -> dict[str, Any]:
    """Return the outcome with the names of its steps by their states."""
    names = {
        state: ", ".join(step.step for step in outcome.steps if step.state == state) or "-"
        for state in ("changed", "skipped")
    }
    result = changed if outcome.state == "changed" else outcome.state
    return {
        **asdict(outcome),
        "result": result,
        changed: names["changed"],
        "skipped": names["skipped"],
    }
