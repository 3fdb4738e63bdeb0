"""The commands `edgemeter fleet doctor`, `logs` and `restart`: small jobs whose answers are shown."""

import sys
import time

import click
from msgspec import structs

from edgemeter.agent.base.errors import DONE, FAILED, ConfigError
from edgemeter.agent.base.options import FiniteRange
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.agent.contract.orders import Doctor, Logs, Restart, Work
from edgemeter.provisioning.cli.jobs import are_done, follow
from edgemeter.provisioning.cli.options import change_options, print_notes, selection_option
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import ServerEntry, open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs.job_view import job_document
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.jobs import NewJob

# A restart waits for the run in progress.
RESTART_TIMEOUT_S = 7200.0

_timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(1, 86_400),
    default=300.0,
    show_default=True,
    help="Seconds to answer, counted from when the device has the order.",
)


@click.command()
@selection_option("examine")
@_timeout_option
@change_options
def doctor(selection: str, folder: FleetFolder, *, timeout_s: float, form: Format) -> None:
    """Run `edgemeter doctor` on devices and print their reports.

    Example: edgemeter fleet doctor --on pi5-01
    """
    from edgemeter.provisioning.identity.fleet_init import broker_warnings

    written = fleet_file.read_if_present(folder)
    print_notes(broker_warnings((written and written.server) or ServerEntry(broker="")))
    _ask(folder, selection, Doctor(), "doctor", timeout_s, form=form)


@click.command()
@selection_option("ask")
@click.option("--lines", type=click.IntRange(1, 2000), default=200, show_default=True, help="Number of lines at most.")
@_timeout_option
@change_options
def logs(selection: str, folder: FleetFolder, *, lines: int, timeout_s: float, form: Format) -> None:
    """Print the last log lines of the agents on devices.

    Example: edgemeter fleet logs --on pi5-01 --lines 50
    """
    _ask(folder, selection, Logs(lines=lines), "logs", timeout_s, form=form)


@click.command()
@selection_option("restart")
@click.option("--reboot", "board", is_flag=True, help="Reboot the board instead of restarting the agent.")
@click.option(
    "--timeout", "timeout_s", type=FiniteRange(1, 86_400), default=RESTART_TIMEOUT_S, show_default=True, help="Time limit, in seconds."
)
@change_options
def restart(selection: str, folder: FleetFolder, *, board: bool, timeout_s: float, form: Format) -> None:
    """Restart the agent of devices, or reboot the boards; never during a run.

    Example: edgemeter fleet restart --on pi5-01 --reboot
    """
    work = Restart(what="board" if board else "agent")
    _ask(folder, selection, work, f"restart {work.what}", timeout_s, form=form)


def _ask(folder: FleetFolder, selection: str, work: Work, title: str, timeout_s: float, *, form: Format) -> None:
    from edgemeter.provisioning.jobs import ordering

    with open_registry(folder) as registry:
        picked = ordering.pick(folder, registry, selection)
        print_notes((*picked.notes, *server_issues(folder, time.time_ns())))
        with registry.transaction() as connection:
            job = jobs.add(connection, NewJob((work,), title, timeout_s), picked.targets, time.time_ns())
        ended = follow(registry, job)
        if not print_data(form, job_document(jobs.find(registry, job), ended, {})):
            for execution in ended:
                click.echo(
                    f"== {execution.device}: {execution.state.replace('_', ' ')}{f': {execution.reason}' if execution.reason else ''}"
                )
                if execution.text:
                    _print_text(execution.text)
    sys.exit(DONE if are_done(ended) else FAILED)


def _print_text(text: str) -> None:
    """Print a doctor's report as `edgemeter doctor` does, other text as it came."""
    from edgemeter.agent.doctor import examination

    try:
        findings = examination.from_json(text)
    except ConfigError:
        click.echo(_harmless(text).rstrip())
        return
    plain = [
        structs.replace(finding, name=_harmless(finding.name), what=_harmless(finding.what), remedy=_harmless(finding.remedy or ""))
        for finding in findings
    ]
    console_for("table").print(examination.render(plain))


def _harmless(text: str) -> str:
    """Return a device's text without control characters."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)
