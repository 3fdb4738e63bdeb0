"""The commands `edgemeter fleet doctor`, `logs` and `restart`.

They are small jobs whose answers are shown.
"""

import time

import click

from edgemeter.agent.base.cli.tables import Format
from edgemeter.agent.contract.orders import Doctor, Logs, Restart, Work
from edgemeter.provisioning.cli.jobs import order, timeout_option
from edgemeter.provisioning.cli.options import change_options, print_notes, selection_option
from edgemeter.provisioning.health.server_status import server_issues
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import select_accepted
from edgemeter.provisioning.registry.jobs import NewJob, Target

ANSWER_TIMEOUT_S = 300.0
# A restart waits for the run in progress.
RESTART_TIMEOUT_S = 7200.0


@click.command()
@selection_option("examine")
@timeout_option(default=ANSWER_TIMEOUT_S)
@change_options
def doctor(selection: str, folder: FleetFolder, *, timeout_s: float, form: Format) -> None:
    """Run `edgemeter doctor` on devices.

    Example: edgemeter fleet doctor --on pi5-01
    """
    _ask(folder, selection, Doctor(), "doctor", timeout_s, form=form)


@click.command()
@selection_option("ask")
@click.option(
    "--lines",
    metavar="N",
    type=click.IntRange(1, 2000),
    default=200,
    show_default=True,
    help="Number of lines at most.",
)
@timeout_option(default=ANSWER_TIMEOUT_S)
@change_options
def logs(
    selection: str, folder: FleetFolder, *, lines: int, timeout_s: float, form: Format
) -> None:
    """Print the last log lines of agents.

    Example: edgemeter fleet logs --on pi5-01 --lines 50
    """
    _ask(folder, selection, Logs(lines=lines), "logs", timeout_s, form=form)


@click.command()
@selection_option("restart")
@click.option(
    "--reboot", "board", is_flag=True, help="Reboot the board instead of restarting the agent."
)
@timeout_option(default=RESTART_TIMEOUT_S)
@change_options
def restart(
    selection: str, folder: FleetFolder, *, board: bool, timeout_s: float, form: Format
) -> None:
    """Restart agents, or reboot boards. This never happens during a run.

    Example: edgemeter fleet restart --on pi5-01 --reboot
    """
    work = Restart(what="board" if board else "agent")
    _ask(folder, selection, work, f"restart {work.what}", timeout_s, form=form)


def _ask(
    folder: FleetFolder, selection: str, work: Work, title: str, timeout_s: float, *, form: Format
) -> None:
    with open_registry(folder) as registry:
        accepted, notes = select_accepted(folder, registry, selection)
        print_notes((*notes, *server_issues(folder, time.time_ns())))
        targets = [Target(device.device, device.fleet) for device in accepted]
        order(registry, NewJob((work,), title, timeout_s), targets, form=form, with_text=True)
