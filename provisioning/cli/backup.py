"""The commands `edgemeter fleet backup` and `fleet restore`."""

import time
from datetime import datetime
from pathlib import Path

import click

from edgemeter.provisioning.cli.options import FILE, dry_run_option, folder_option
from edgemeter.provisioning.inventory import fleet_file, fleet_folder
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

_passphrase_option = click.option(
    "--passphrase-file",
    type=FILE,
    envvar="EDGEMETER_BACKUP_PASSPHRASE_FILE",
    help="File whose first line is the passphrase. Default: it is asked for.",
)


@click.command()
@click.argument("file", type=FILE)
@_passphrase_option
@dry_run_option
@folder_option
def backup(file: Path, passphrase_file: Path | None, folder: FleetFolder, *, dry_run: bool) -> None:
    """Write keys, inventory, registry and the broker's configuration into one encrypted file (format: age); content is left out.

    Example: edgemeter fleet backup fleet-2026-11.age --passphrase-file passphrase
    """
    from edgemeter.provisioning.identity.backup import back_up

    fleet = fleet_file.read(folder.fleet_file).fleet
    if dry_run:
        click.echo(f"would write the fleet {fleet!r} in {str(folder.path)!r} to {file}")
        return
    size_bytes = back_up(folder, fleet, file, _passphrase(passphrase_file, is_new=True), time.time_ns())
    click.echo(f"{file}: the fleet {fleet!r}, {size_bytes / 1e6:.1f} MB; its content is not in it: keep the files of the releases too")


@click.command()
@click.argument("file", type=FILE)
@_passphrase_option
@dry_run_option
@folder_option
def restore(file: Path, passphrase_file: Path | None, folder: FleetFolder, *, dry_run: bool) -> None:
    """Restore a fleet's folder from a backup; the folder must not exist yet, or be empty.

    Example: edgemeter fleet restore fleet-2026-11.age --folder /srv/fleet
    """
    from edgemeter.provisioning.identity.backup import check_backup, restore_backup

    passphrase = _passphrase(passphrase_file, is_new=False)
    head, files = check_backup(file, passphrase) if dry_run else restore_backup(file, folder, passphrase)
    made_at = f"{datetime.fromtimestamp(head.made_ns / 1e9).astimezone():%Y-%m-%d %H:%M %Z}"
    verb = "would restore" if dry_run else "restored"
    click.echo(f"{verb} the fleet {head.fleet!r} as of {made_at}: {files} files in {folder.path}")
    click.echo("it does not know what happened since: revoke again whoever was revoked, and accept the boards that `list` marks", err=True)
    click.echo("next: `edgemeter fleet init` with this --folder writes the paths of this machine; then start broker and service", err=True)
    if folder.path != fleet_folder.default().path:
        click.echo(f"set EDGEMETER_FLEET_FOLDER={folder.path}, where `edgemeter run --on` looks for devices", err=True)


def _passphrase(path: Path | None, *, is_new: bool) -> str:
    from edgemeter.provisioning.identity.passphrase import BACKUP_VARIABLE, ask_passphrase, read_passphrase

    return read_passphrase(path) if path is not None else ask_passphrase("the backup", BACKUP_VARIABLE, is_new=is_new)
