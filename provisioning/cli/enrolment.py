"""The commands that make a fleet and decide who belongs to it.

They are `fleet init`, `token`, `requests`, `accept` and `revoke`.
"""

import shlex
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.cli.options import FiniteRange, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.console import Table, Text
from edgemeter.agent.base.errors import EdgemeterError, UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.identity import join_file_text
from edgemeter.provisioning.cli.options import FILE, devices_argument, in_folder
from edgemeter.provisioning.identity import admission, broker_files
from edgemeter.provisioning.identity.enforcement import ELSEWHERE, Enforcement, broker_process
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry.certificates import undecided_requests
from edgemeter.provisioning.registry.registry import Registry

# If there are more files, only their names are shown.
MOST_LINES = 3


@click.command()
@in_folder
@click.option(
    "--broker",
    help="Host name or address of the broker, as devices reach it. Required for a new fleet.",
)
@click.option(
    "--broker-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Further name or address for the certificate of broker and service. Repeatable.",
)
@click.option("--fleet", help="Name of the fleet. Default: default.")
@click.option(
    "--port",
    "broker_port",
    metavar="N",
    type=click.IntRange(1, 65535),
    help="The broker's port. Default: 8883.",
)
@click.option(
    "--service",
    help="Host name or address of the service, as devices reach it. Default: that of the broker.",
)
@click.option(
    "--https-port",
    metavar="N",
    type=click.IntRange(1, 65535),
    help="The service's port. Default: 8443.",
)
@click.option(
    "--release-public-key",
    type=FILE,
    help="Public key of a release key on another machine. Default: a new pair here.",
)
@format_option("", "table", "json")
def init(
    folder: FleetFolder,
    fleet: str | None,
    names: tuple[str, ...],
    release_public_key: Path | None,
    *,
    form: Format,
    **server: Any,
) -> None:
    """Create a fleet.

    It gets an authority, certificates, a release key and broker configuration; existing files stay.

    Example: edgemeter fleet init --broker broker.example --broker-name 192.0.2.10
    """
    from edgemeter.provisioning.identity.fleet_init import FleetInit
    from edgemeter.provisioning.identity.fleet_units import install_lines

    work = FleetInit(folder, datetime.now(timezone.utc), fleet, names, release_public_key, server)
    notes = work.run()
    if print_data(
        form,
        {
            "folder": str(folder.path),
            "made": [{"path": str(path), "why": why} for path, why in work.made.items()],
        },
    ):
        pass
    elif not work.made:
        click.echo(f"nothing to make: the fleet in {str(folder.path)!r} is complete")
    elif len(work.made) <= MOST_LINES:
        for path, why in work.made.items():
            click.echo(f"made {path}: {why}")
    else:
        top_names = (
            name
            for path in work.made
            if path.is_relative_to(folder.path)
            for name in path.relative_to(folder.path).parts[:1]
        )
        click.echo(f"made in {folder.path}: {', '.join(dict.fromkeys(top_names))}")
        click.echo("start broker, service and collector, now and with the system:", err=True)
        for line in install_lines(folder):
            click.echo(f"  {line}", err=True)
        click.echo(f"then invite the first device: {folder.command} token DEVICE", err=True)
    for note in notes:
        click.echo(f"edgemeter: {note}", err=True)


@click.command()
@devices_argument
@in_folder
@click.option(
    "--hours",
    default=24.0,
    show_default=True,
    type=FiniteRange(0.01, 24 * 365),
    help="Validity, in hours.",
)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    help="Folder for the join files. Default: the current one.",
)
@format_option("", "table", "json")
def token(
    devices: tuple[str, ...], folder: FleetFolder, hours: float, out: Path, *, form: Format
) -> None:
    """Create a one-time token and join file for each device. Earlier tokens of the device end.

    Example: edgemeter fleet token pi5-01 pi5-02 --hours 48 --output cards
    """
    inventory = fleet_file.read(folder.fleet_file)
    documents: list[dict[str, object]] = []
    lines: list[str] = []
    failed: dict[str, EdgemeterError] = {}
    with open_registry(folder) as registry:
        for device in devices:
            admission.check_device_name(device, registry)
        for device in dict.fromkeys(devices):
            path = out / f"{device}.join.toml"
            try:
                with registry.transaction() as statements:
                    join, expires_ns = admission.invite(
                        folder, registry, statements, inventory, device, hours, time.time_ns()
                    )
                    durable_file.write(path, join_file_text(join).encode())
            except EdgemeterError as error:
                # This device keeps its previous token; the others continue.
                failed[device] = error
                documents.append({"device": device, "error": str(error)})
                lines.append(f"{device}: no token: {error}")
            else:
                until = datetime.fromtimestamp(expires_ns / NS_PER_S).astimezone()
                documents.append(
                    {"device": device, "join_file": str(path), "expires_ns": expires_ns}
                )
                lines.append(f"{device}: {path}, valid until {until:%Y-%m-%d %H:%M %Z}")
    if len(failed) == len(lines):
        raise failed[devices[0]]
    if not print_data(form, documents):
        click.echo("\n".join(lines))
    if failed:
        raise UnavailableError(
            f"no token for {len(failed)} of {len(lines)} devices, the others have theirs: repeat "
            f"it for {shlex.join(failed)}"
        )


@click.command()
@in_folder
@format_option()
def requests(folder: FleetFolder, *, form: Format) -> None:
    """List the certificate requests that wait for approval.

    Example: edgemeter fleet requests
    """
    with open_registry(folder, read_only=True) as registry:
        waiting = undecided_requests(registry)
    names = ("request", "device", "fleet", "serial", "serial_source", "board", "why", "asked_ns")
    if print_data(form, [{name: getattr(request, name) for name in names} for request in waiting]):
        return
    if not waiting:
        click.echo("no pending requests", err=True)
        return
    table = Table("request", "device", "serial", "board", "why")
    for request in waiting:
        serial = f"{request.serial} ({request.serial_source})"
        table.add_row(
            *map(
                Text,
                (request.request[:12], request.device, serial, request.board or "-", request.why),
            )
        )
    console_for(form).print(table)


@click.command()
@devices_argument
@in_folder
@click.option(
    "--as", "name", metavar="NAME", help="Name for the board. Required for a copied card."
)
@format_option("", "table", "json")
def accept(
    devices: tuple[str, ...], folder: FleetFolder, name: str | None, *, form: Format
) -> None:
    """Approve pending requests. This also re-admits revoked devices and ends bans.

    Example: edgemeter fleet accept pi5-01
    """
    if name is not None and len(devices) > 1:
        raise click.UsageError("--as names one board: accept one at a time")
    _decide_each(
        folder,
        devices,
        lambda registry, statements, device: admission.accept(registry, statements, device, name),
        form=form,
    )


@click.command()
@devices_argument
@in_folder
@click.option(
    "--reason",
    default="revoked by hand",
    show_default=True,
    help="Reason, stored with the certificates.",
)
@format_option("", "table", "json")
def revoke(devices: tuple[str, ...], folder: FleetFolder, reason: str, *, form: Format) -> None:
    """Revoke devices, or reject pending requests. Certificates and tokens of the devices end now.

    Example: edgemeter fleet revoke pi5-01 --reason stolen
    """
    fleet = fleet_file.read(folder.fleet_file).fleet
    _decide_each(
        folder,
        devices,
        lambda registry, statements, device: admission.revoke(
            registry, statements, device, reason, fleet
        ),
        form=form,
    )


def _decide_each(
    folder: FleetFolder,
    names: tuple[str, ...],
    decide: Callable[[Registry, Statements, str], str],
    *,
    form: Format,
) -> None:
    signing = broker_files.authority(folder)
    outcomes: dict[str, str] = {}
    with open_registry(folder) as registry:
        for name in dict.fromkeys(names):
            with registry.transaction() as statements:
                outcomes[name] = decide(registry, statements, name)
            if form != "json":
                click.echo(f"{name}: {outcomes[name]}")
        if Enforcement(folder, registry, signing).enforce(datetime.now(timezone.utc)):
            click.echo(
                "the broker does not answer: `edgemeter fleet serve` disconnects them when it does",
                err=True,
            )
        elif broker_process(folder) is None:
            click.echo(ELSEWHERE, err=True)
    print_data(form, [{"device": name, "done": outcome} for name, outcome in outcomes.items()])
