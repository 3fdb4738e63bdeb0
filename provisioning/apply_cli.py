"""The command `edgemeter fleet apply`."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from edgemeter.provisioning.apply.applying import Settings, Wish


@click.command(short_help="Put the agent on boards that already run, over SSH.")
@click.argument("devices", nargs=-1, metavar="[DEVICE]...")
@folder_option
@click.option("--on", "selection", help="Go to the devices that this selection fits: 'board=pi5 & coral'.")
@click.option("--host", help="Go to this host, which fleet.toml need not name; DEVICE is then what it is to be called.")
@click.option("--user", help="Log in as this user. Default: fleet.toml's, else as ssh's configuration says.")
@click.option("--port", type=click.IntRange(1, 65535), help="SSH's port. Default: fleet.toml's, else as ssh's configuration says.")
@click.option(
    "--bundle",
    "bundles",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="A bundle (folder or .tar) of `edgemeter fleet bundle`; several: each device gets the first that fits it.",
)
@click.option("--python-tar", type=click.Path(path_type=Path), help="For boards whose Python is older than 3.10: a relocatable CPython.")
@click.option("--jobs", type=click.IntRange(1, 256), default=8, show_default=True, help="So many devices at a time.")
@click.option("--ask-sudo-password", is_flag=True, help="Ask here for the password that sudo wants there.")
@click.option("--sudo-password-file", type=click.Path(path_type=Path), help="The first line of this file is the password for sudo.")
@click.option("--identity-file", type=click.Path(path_type=Path), help="Log in with this key alone.")
@click.option(
    "--host-keys",
    type=click.Choice(["accept-new", "strict"]),
    default="accept-new",
    show_default=True,
    help="A host that was never seen: note its key, or refuse. A key that changed is always refused.",
)
@click.option("--ssh-option", "ssh_options", multiple=True, metavar="KEY=VALUE", help="As `ssh -o`, e.g. ProxyJump=gate.example.")
@click.option("--rejoin", "rejoins", is_flag=True, help="Join anew, with a new token, also a board that has joined.")
@click.option("--prefix", default="", help="Install below this folder of the device instead of its root; nothing is started.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help='Print {"devices": [...]}.')
def apply(devices: tuple[str, ...], folder: FleetFolder, jobs: int, *, is_dry: bool, as_json: bool, **said: Any) -> None:
    """Put the agent on boards that already run, over SSH; a repeated run changes nothing, an interrupted one goes on.

    Example: edgemeter fleet apply pi5-01 pi5-02 --bundle edgemeter-pi5.tar
    """
    from edgemeter.provisioning.apply import parallel, summary
    from edgemeter.provisioning.apply.watching import Watching

    wanted = _wishes(folder, devices, said)
    password = _password(said["sudo_password_file"], is_asked=said["ask_sudo_password"])
    with tempfile.TemporaryDirectory(prefix="edgemeter-apply-") as scratch:
        settings = _settings(folder, Path(scratch), password, {**said, "is_dry": is_dry})
        if said["host_keys"] == "accept-new":
            click.echo("ssh notes the keys of hosts that it has never seen (--host-keys strict refuses them)", err=True)
        with Watching() as watching:
            outcomes = parallel.apply(wanted, settings, jobs, watching.told, watching.ended)
    if as_json:
        click.echo(summary.as_json(outcomes, is_dry=is_dry))
    else:
        summary.print_table(outcomes, is_dry=is_dry)
    sys.exit(1 if any(outcome.state == "failed" for outcome in outcomes) else 0)


def _wishes(folder: FleetFolder, devices: tuple[str, ...], said: dict[str, Any]) -> "list[Wish]":
    from edgemeter.provisioning.apply import wishes
    from edgemeter.provisioning.apply.wishes import Login
    from edgemeter.provisioning.inventory import known

    login = Login(said["user"], said["port"])
    if said["host"] is None:
        return wishes.of_fleet(_names(folder, devices, said["selection"]), known.written(folder), login)
    if len(devices) > 1 or said["selection"] is not None:
        message = "--host is one device: give at most one DEVICE with it, and no --on"
        raise click.UsageError(message)
    return [wishes.of_host(said["host"], devices[0] if devices else None, known.written(folder), login)]


def _settings(folder: FleetFolder, scratch: Path, password: str | None, said: dict[str, Any]) -> "Settings":
    from edgemeter.provisioning.apply import join_file, offer, python_tar
    from edgemeter.provisioning.apply.applying import Settings
    from edgemeter.provisioning.apply.ssh import SshOptions

    if said["prefix"] and not said["prefix"].startswith("/"):
        message = f"--prefix is a folder of the device, from / on: {said['prefix']!r} is not"
        raise click.UsageError(message)
    return Settings(
        offers=[offer.read(bundle, folder.release_public_key, scratch) for bundle in said["bundles"]],
        public_key=folder.release_public_key.read_text(),
        join_file=lambda device: join_file.make(folder, device),
        ssh=SshOptions(said["identity_file"], said["host_keys"], said["ssh_options"]),
        sudo_password=password,
        python_tar=python_tar.read(said["python_tar"]) if said["python_tar"] else None,
        prefix=said["prefix"].rstrip("/"),
        is_dry=said["is_dry"],
        rejoins=said["rejoins"],
    )


def _names(folder: FleetFolder, devices: tuple[str, ...], selection: str | None) -> list[str]:
    from edgemeter.provisioning.inventory import known
    from edgemeter.provisioning.registry.registry import Registry

    if selection is None:
        if not devices:
            message = "name devices, or give --on SELECTION or --host HOST"
            raise click.UsageError(message)
        return list(devices)
    registry = Registry(folder.registry, "read")
    try:
        return [*devices, *(one.device for one in known.select(folder, registry, selection))]
    finally:
        registry.close()


def _password(file: Path | None, *, is_asked: bool) -> str | None:
    from edgemeter.agent.errors import ConfigError

    if is_asked and file is not None:
        message = "give --ask-sudo-password or --sudo-password-file, not both"
        raise click.UsageError(message)
    if is_asked:
        return str(click.prompt("password for sudo on the devices", hide_input=True, err=True))
    if file is None:
        return None
    try:
        return file.read_text().split("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the password in {str(file)!r}: {error}"
        raise ConfigError(message) from error
