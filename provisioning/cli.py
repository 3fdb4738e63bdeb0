"""The command `edgemeter fleet`: its commands are imported when they are called."""

from importlib import import_module

import click

# By name: where the command stands, and what it does. A room adds its line here.
COMMANDS: dict[str, tuple[str, str]] = {
    "accept": ("edgemeter.provisioning.accept_cli:accept", "Say yes to a board that asks for a certificate."),
    "pending": ("edgemeter.provisioning.accept_cli:pending", "List the boards that ask for a certificate and need a yes."),
    "reject": ("edgemeter.provisioning.accept_cli:reject", "Say no to a board that asks for a certificate."),
    "revoke": ("edgemeter.provisioning.accept_cli:revoke", "Put devices out of the fleet and out of the running broker."),
    "token": ("edgemeter.provisioning.token_cli:token", "Make tokens with which devices join, and their join files."),
    "image": ("edgemeter.provisioning.image_cli:image", "Prepare an image or card, so that its board joins by itself."),
    "init": ("edgemeter.provisioning.init_cli:init", "Make a fleet: authority, certificates, release key, broker configuration."),
    "apply": ("edgemeter.provisioning.apply_cli:apply", "Put the agent on boards that already run, over SSH."),
    "campaign": ("edgemeter.provisioning.campaign_cli:campaign", "Measure models x devices x modes, group by group."),
    "schedule": ("edgemeter.provisioning.schedule_cli:schedule", "Let devices measure a suite by themselves, at times in cron's syntax."),
    "run": ("edgemeter.provisioning.run_cli:run", "Measure a suite on devices that a selection picks."),
    "jobs": ("edgemeter.provisioning.jobs_cli:jobs", "Show jobs: which device is how far, what came of them."),
    "cancel": ("edgemeter.provisioning.jobs_cli:cancel", "End what is left of a job."),
    "boards": ("edgemeter.provisioning.bundle_cli:boards", "Show the boards that bundles are built for, and how the agent gets onto them."),
    "bundle": ("edgemeter.provisioning.bundle_cli:bundle", "Build a signed bundle for a board, or check one."),
    "write": ("edgemeter.provisioning.write_cli:write", "Write an image to a card: refuses disks in use, reads everything back."),
    "list": ("edgemeter.provisioning.list_cli:list_devices", "List the devices and how they stand, the most urgent first."),
    "show": ("edgemeter.provisioning.show_cli:show", "Show all that is known of a device."),
    "clear": ("edgemeter.provisioning.show_cli:clear", "Say that suspect devices are good again, or need no hand any more."),
    "doctor": ("edgemeter.provisioning.remote_cli:doctor", "Let devices examine themselves, and print what they find."),
    "logs": ("edgemeter.provisioning.remote_cli:logs", "Print the last lines that the agents of devices logged."),
    "restart": ("edgemeter.provisioning.remote_cli:restart", "Start agents or boards anew, never during a run."),
    "release": ("edgemeter.provisioning.update_cli:release", "Keep the signed bundles that devices can go to."),
    "update": ("edgemeter.provisioning.update_cli:update", "Let devices go to a release, a few first; back from one that does not work."),
    "power": ("edgemeter.provisioning.power_cli:power", "Switch the power of a device, cut it for a moment, or ask its switch."),
    "serve": ("edgemeter.provisioning.serve_cli:serve", "Serve the fleet: enrolment, jobs, updates, content, health."),
}


class _Group(click.Group):
    """A group whose commands are imported by name when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=_Group)
def fleet() -> None:
    """Put the agent on devices, give each an identity, keep it current, tell it what to measure.

    Example: edgemeter fleet init --broker broker.example
    """
