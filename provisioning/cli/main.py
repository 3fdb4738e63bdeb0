"""The command `edgemeter fleet`: its commands are imported when they are called."""

from pathlib import Path

import click

from edgemeter.agent.base.cli.command_group import CommandGroup, Sections

COMMANDS: Sections = {
    "Set up a fleet": {
        "init": (
            "edgemeter.provisioning.cli.enrolment:init",
            "Create a fleet: authority, certificates, release key, broker configuration.",
        ),
        "serve": (
            "edgemeter.provisioning.cli.serve:serve",
            "Run the fleet's service: enrolment, jobs, updates, content, health.",
        ),
    },
    "Let devices join": {
        "token": (
            "edgemeter.provisioning.cli.enrolment:token",
            "Create enrolment tokens and join files for devices.",
        ),
        "card": (
            "edgemeter.provisioning.cli.card:card",
            "Prepare an image or card, so that its board joins at its first boot.",
        ),
        "apply": (
            "edgemeter.provisioning.cli.apply:apply",
            "Install the agent on running boards over SSH.",
        ),
        "requests": (
            "edgemeter.provisioning.cli.enrolment:requests",
            "List the certificate requests that wait for approval.",
        ),
        "accept": (
            "edgemeter.provisioning.cli.enrolment:accept",
            "Approve requests, re-admit revoked devices, end bans.",
        ),
        "revoke": (
            "edgemeter.provisioning.cli.enrolment:revoke",
            "Revoke devices, or reject their requests.",
        ),
    },
    "Manage devices": {
        "list": (
            "edgemeter.provisioning.cli.devices:list_devices",
            "List the devices and what needs attention, the most urgent first.",
        ),
        "show": ("edgemeter.provisioning.cli.devices:show", "Show everything about a device."),
        "doctor": (
            "edgemeter.provisioning.cli.remote:doctor",
            "Run `edgemeter doctor` on devices.",
        ),
        "logs": ("edgemeter.provisioning.cli.remote:logs", "Print the last log lines of agents."),
        "restart": (
            "edgemeter.provisioning.cli.remote:restart",
            "Restart agents or reboot boards, never during a run.",
        ),
        "release": (
            "edgemeter.provisioning.cli.release:release",
            "Build, sign and add releases of the agent.",
        ),
        "update": (
            "edgemeter.provisioning.cli.jobs:update",
            "Update devices to a release, in waves and with rollback.",
        ),
    },
    "Measure": {
        "run": (
            "edgemeter.provisioning.cli.jobs:run",
            "Measure a suite on selected devices, once or repeatedly.",
        ),
        "jobs": (
            "edgemeter.provisioning.cli.jobs:jobs",
            "Show, follow, pause, resume and cancel jobs.",
        ),
    },
}


@click.group(cls=CommandGroup, sections=COMMANDS)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the fleet. Default: $EDGEMETER_FLEET_FOLDER, else `fleet` in "
    "edgemeter's data folder.",
)
@click.pass_context
def fleet(context: click.Context, /, folder: Path | None) -> None:
    """Provision, update and control devices, and order measurements.

    Example: edgemeter fleet init --broker broker.example
    """
    if folder is not None:
        from edgemeter.provisioning.inventory import fleet_folder

        context.obj = fleet_folder.at(folder)
