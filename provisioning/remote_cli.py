"""The commands `edgemeter fleet doctor`, `logs` and `restart`: small jobs whose answer is shown."""

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from edgemeter.agent.finite_range import FiniteRange
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.folder_option import folder_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgemeter.agent.jobs.contract import Work
    from edgemeter.provisioning.jobs.executions import Execution

TIMEOUT_S = 300.0
# A restart waits for the run in progress.
RESTART_TIMEOUT_S = 7200.0


@click.command()
@click.argument("devices", nargs=-1, required=True)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(1, 86_400),
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds to answer, from when it has the order; one that is away is waited for.",
)
@click.option("--dry-run", is_flag=True, help="Say who would be asked, and ask nobody.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def doctor(devices: tuple[str, ...], folder: FleetFolder, *, timeout_s: float, dry_run: bool, as_json: bool) -> None:
    """Let devices examine themselves and print what they find; a device or a selection each.

    Example: edgemeter fleet doctor pi5-01
    """
    from edgemeter.agent.jobs.contract import Doctor

    _ask(folder, devices, Doctor(), "doctor", timeout_s, as_json=as_json, is_rehearsal=dry_run)


@click.command()
@click.argument("devices", nargs=-1, required=True)
@click.option("--lines", type=click.IntRange(1, 2000), default=200, show_default=True, help="How many lines at most.")
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(1, 86_400),
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds to answer, from when it has the order; one that is away is waited for.",
)
@click.option("--dry-run", is_flag=True, help="Say who would be asked, and ask nobody.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def logs(devices: tuple[str, ...], folder: FleetFolder, *, lines: int, timeout_s: float, dry_run: bool, as_json: bool) -> None:
    """Print the last lines that the agents of devices logged.

    Example: edgemeter fleet logs pi5-01 --lines 50
    """
    from edgemeter.agent.jobs.contract import Logs

    _ask(folder, devices, Logs(lines=lines), "logs", timeout_s, as_json=as_json, is_rehearsal=dry_run)


@click.command()
@click.argument("devices", nargs=-1, required=True)
@click.option("--board", is_flag=True, help="Start the whole board anew, not only the agent.")
@click.option(
    "--timeout", "timeout_s", type=FiniteRange(1, 86_400), default=RESTART_TIMEOUT_S, show_default=True, help="Seconds it may take."
)
@click.option("--dry-run", is_flag=True, help="Say what would be started anew, and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@folder_option
def restart(devices: tuple[str, ...], folder: FleetFolder, *, board: bool, timeout_s: float, dry_run: bool, as_json: bool) -> None:
    """Start the agent of devices anew, or with --board the boards; never during a run.

    Example: edgemeter fleet restart pi5-01 --board
    """
    from edgemeter.agent.jobs.contract import Restart

    work = Restart(what="board" if board else "agent")
    _ask(folder, devices, work, f"restart {work.what}", timeout_s, as_json=as_json, is_rehearsal=dry_run)


def _ask(
    folder: FleetFolder, devices: "Sequence[str]", work: "Work", title: str, timeout_s: float, *, as_json: bool, is_rehearsal: bool
) -> None:
    from contextlib import closing

    from rich.console import Console

    from edgemeter.provisioning.jobs import following, jobs, ordering, shown
    from edgemeter.provisioning.jobs.jobs import NewJob
    from edgemeter.provisioning.registry.registry import Registry

    with closing(Registry(folder.registry, "read" if is_rehearsal else "write")) as registry:
        picked = ordering.pick(folder, registry, " | ".join(_selection(one) for one in devices))
        for note in picked.notes:
            click.echo(f"edgemeter: {note}", err=True)
        if is_rehearsal and as_json:
            click.echo(json.dumps({"order": title, "devices": [one.device for one in picked.devices], "dry_run": True}))
            return
        if is_rehearsal:
            for device in picked.devices:
                click.echo(f"would order {device.device}: {title}")
            return
        with registry.transaction() as connection:
            job = jobs.add(connection, NewJob(work, title, timeout_s), picked.targets, time.time_ns())
        try:
            ended = following.follow(folder, registry, job, Console(stderr=True))
        except KeyboardInterrupt:
            click.echo(f"edgemeter: {job} goes on: `edgemeter fleet jobs {job} --text` shows the answers", err=True)
            raise
        if as_json:
            click.echo(json.dumps(shown.document(jobs.named(registry, job), ended, {}), indent=2))
        else:
            _print(ended)
    sys.exit(0 if all(one.state == "done" for one in ended) else 1)


def _selection(said: str) -> str:
    """Return a device or a selection so that it can stand beside others; a device's name may hold a space."""
    is_name = " " in said.strip() and not any(mark in said for mark in "&|!()=\"'")
    return f'"{said}"' if is_name else f"({said})"


def _print(ended: "Sequence[Execution]") -> None:
    for one in ended:
        reason = f": {one.reason}" if one.reason else ""
        click.echo(f"== {one.device}: {one.state.replace('_', ' ')}{reason}")
        if one.text:
            _print_text(one.text)


def _print_text(text: str) -> None:
    """Print a doctor's report as `edgemeter doctor` does, everything else as it came."""
    from msgspec import structs
    from rich.console import Console

    from edgemeter.agent.doctor import examination
    from edgemeter.agent.errors import ConfigError

    try:
        findings = examination.from_json(text)
    except ConfigError:
        click.echo(_harmless(text).rstrip())
    else:
        said = [
            structs.replace(one, name=_harmless(one.name), what=_harmless(one.what), remedy=_harmless(one.remedy or "")) for one in findings
        ]
        Console().print(examination.render(said))


def _harmless(text: str) -> str:
    """Return a device's text, which is no terminal's command."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)
