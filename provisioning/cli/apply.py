"""The command `edgemeter fleet apply`: its progress and its summary."""

import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from edgemeter.agent.base.errors import DONE, FAILED
from edgemeter.agent.base.options import format_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.base.terminal import plain_table, print_text
from edgemeter.provisioning.apply.applying import ApplyOutcome, ApplyRequest, ApplySettings, apply_all, make_join_file, of_fleet, of_host
from edgemeter.provisioning.apply.offer import further_wheel, read_offer, read_python_tar
from edgemeter.provisioning.apply.ssh import SshOptions
from edgemeter.provisioning.cli.options import in_folder
from edgemeter.provisioning.identity.passphrase import read_passphrase
from edgemeter.provisioning.inventory.fleet_file import open_registry, read_if_present
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import select_devices

_STYLE = {"ok": "green", "changed": "cyan", "failed": "red"}
_FILE = click.Path(path_type=Path)


@click.command(short_help="Install the agent on running boards over SSH.")
@click.argument("devices", nargs=-1, metavar="[DEVICE]...")
@in_folder
@click.option(
    "--on", "selection", metavar="SELECTION", help="Apply to these devices (as in `edgemeter fleet list --on`), in addition to those named."
)
@click.option("--host", help="Apply to this host, which need not be in fleet.toml; DEVICE is then its name in the fleet.")
@click.option("--user", help="SSH user. Default: that of fleet.toml, else of ssh's configuration.")
@click.option("--port", type=click.IntRange(1, 65535), help="SSH port. Default: that of fleet.toml, else of ssh's configuration.")
@click.option(
    "--release",
    "releases",
    type=_FILE,
    multiple=True,
    required=True,
    help="A release (folder or .tar) of `edgemeter fleet release build`; repeatable: each device gets the first that fits.",
)
@click.option(
    "--with",
    "wheels",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE.whl",
    help="Wheel to install in addition to those of this and later releases, such as a maker's runtime for its accelerator; repeatable.",
)
@click.option("--python-tar", type=_FILE, help="A relocatable CPython for boards whose Python is older than 3.10.")
@click.option("--jobs", type=click.IntRange(1, 256), default=8, show_default=True, help="Number of devices handled in parallel.")
@click.option("--ask-sudo-password", is_flag=True, help="Prompt for the sudo password of the devices.")
@click.option("--sudo-password-file", type=_FILE, help="File with the sudo password in its first line.")
@click.option("--identity-file", type=_FILE, help="Log in with this key only.")
@click.option(
    "--host-keys",
    type=click.Choice(["accept-new", "strict"]),
    default="accept-new",
    show_default=True,
    help="Record the key of an unknown host, or refuse it. A changed key is always refused.",
)
@click.option(
    "--ssh-option", "ssh_options", multiple=True, metavar="KEY=VALUE", help="As `ssh -o`, e.g. ProxyJump=gate.example; repeatable."
)
@click.option("--rejoin", "rejoins", is_flag=True, help="Join again, with a new token, boards that have joined already.")
@click.option(
    "--disk",
    metavar="DEVICE",
    help="Install into the system on this disk of the board (/dev/nvme0n1, /dev/mmcblk0), which started from another: its next boot from "
    "that disk starts the agent.",
)
@click.option("--prefix", default="", help="Install below this folder of the device instead of its root; nothing is started.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show what would change, and change nothing.")
@format_option('{"devices": [...]}')
def apply(devices: tuple[str, ...], folder: FleetFolder, jobs: int, *, is_dry: bool, form: Format, **options: Any) -> None:
    """Install the agent on running boards over SSH; a repeated run changes nothing, an interrupted one is resumed.

    Example: edgemeter fleet apply pi5-01 pi5-02 --release edgemeter-pi5.tar
    """
    requests = _requests(folder, devices, options)
    password = _password(options["sudo_password_file"], is_asked=options["ask_sudo_password"])
    prefix = options["prefix"]
    if prefix and not prefix.startswith("/"):
        raise click.UsageError(f"--prefix has to be an absolute folder of the device: {prefix!r} is not")
    if prefix and options["disk"]:
        raise click.UsageError("give --disk or --prefix, not both")
    with tempfile.TemporaryDirectory(prefix="edgemeter-apply-") as scratch:
        settings = ApplySettings(
            offers=[read_offer(release, folder.release_public_key, Path(scratch)) for release in options["releases"]],
            public_key=folder.release_public_key.read_text(),
            join_file=lambda device: make_join_file(folder, device),
            ssh=SshOptions(options["identity_file"], options["host_keys"], options["ssh_options"]),
            sudo_password=password,
            python_tar=read_python_tar(options["python_tar"]) if options["python_tar"] else None,
            disk=options["disk"],
            prefix=prefix.rstrip("/"),
            is_dry=is_dry,
            rejoins=options["rejoins"],
            wheels=tuple(further_wheel(path) for path in options["wheels"]),
        )
        if options["host_keys"] == "accept-new":
            click.echo("ssh records the keys of unknown hosts (--host-keys strict refuses them)", err=True)
        with _progress() as progress:
            outcomes = apply_all(requests, settings, jobs, progress.report, progress.ended)
    if not print_data(form, {"dry_run": is_dry, "devices": [{**asdict(outcome), "result": outcome.state} for outcome in outcomes]}):
        _print_summary(outcomes, console_for(form), is_dry=is_dry)
    sys.exit(FAILED if any(outcome.state == "failed" for outcome in outcomes) else DONE)


def _requests(folder: FleetFolder, devices: tuple[str, ...], options: dict[str, Any]) -> list[ApplyRequest]:
    login, fleet, selection = (options["user"], options["port"]), read_if_present(folder), options["selection"]
    if options["host"] is not None:
        if len(devices) > 1 or selection is not None:
            raise click.UsageError("--host is one device: give at most one DEVICE with it, and no --on")
        return [of_host(options["host"], devices[0] if devices else None, fleet, *login)]
    if selection is None and not devices:
        raise click.UsageError("give DEVICE..., --on SELECTION or --host HOST")
    selected: list[str] = []
    if selection is not None:
        with open_registry(folder, read_only=True) as registry:
            selected = [device.device for device in select_devices(folder, registry, selection)]
    return of_fleet([*devices, *selected], fleet, *login)


def _password(file: Path | None, *, is_asked: bool) -> str | None:
    if is_asked and file is not None:
        raise click.UsageError("give --ask-sudo-password or --sudo-password-file, not both")
    if is_asked:
        return str(click.prompt("sudo password of the devices", hide_input=True, err=True))
    return None if file is None else read_passphrase(file)


class _ApplyProgress:
    """Shows on standard error a moving line per device on a terminal, else a line per step; called from several threads."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}

    def report(self, kind: Literal["now", "done"], device: str, activity: str) -> None:
        with self._lock:
            if self._bars.disable:
                if kind == "done":
                    self._line(f"{device}: {activity}")
                return
            if device not in self._tasks:
                self._tasks[device] = self._bars.add_task(device, total=None, note=activity)
            self._bars.update(self._tasks[device], note=activity[:100])

    def ended(self, outcome: ApplyOutcome) -> None:
        with self._lock:
            if outcome.device in self._tasks:
                self._bars.remove_task(self._tasks.pop(outcome.device))
            self._line(f"{outcome.device}: {outcome.state}" + (f": {outcome.remedy}" if outcome.remedy else ""))

    def _line(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _progress() -> Iterator[_ApplyProgress]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        yield _ApplyProgress(bars)


def _print_summary(outcomes: Sequence[ApplyOutcome], console: Console, *, is_dry: bool) -> None:
    """Print a row per device, and below the table the remedies for those that failed; outside a terminal no row is folded."""
    table = plain_table()
    for heading in ("device", "result", "would change" if is_dry else "changed", "skipped", "found"):
        table.add_column(heading, overflow="fold", no_wrap=heading in {"device", "result"})
    for outcome in outcomes:
        changed, skipped = (
            ", ".join(step.step for step in outcome.steps if step.state == state) or "-" for state in ("changed", "skipped")
        )
        result = Text("would change" if is_dry and outcome.state == "changed" else outcome.state, style=_STYLE[outcome.state])
        table.add_row(Text(outcome.device), result, *map(Text, (changed, skipped, outcome.found or "-")))
    console.print(table)
    for outcome in outcomes:
        if outcome.remedy is not None:
            print_text(console, f"{outcome.device}: {outcome.remedy}")
