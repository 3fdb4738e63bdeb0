"""Every command of `edgemeter fleet` that changes something can be rehearsed."""

import click
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.cli.main import fleet
from tests.fixtures.rows import table_row
from tests.provisioning import folder_bytes

# A command that is not here has `--dry-run`.
READING = {
    "boards": "prints a table that ships with edgemeter",
    "release check": "verifies a file that is there",
    "campaign list": "prints what the registry holds",
    "campaign status": "prints what the registry holds",
    "jobs": "prints what the registry holds",
    "list": "prints what the registry holds",
    "release list": "prints what the registry holds",
    "requests": "prints what the registry holds",
    "sample": "prints a text that ships with edgemeter",
    "serve": "is the service itself: it does what others ordered until it is stopped",
    "show": "prints what the registry holds",
}
# What each is called with, so that it gets as far as the registry.
REHEARSED = {
    "cancel": ["some-job"],
    "update": ["1.0", "--on", "device=pi-1"],
    "campaign cancel": ["autumn"],
    "campaign pause": ["autumn"],
    "campaign resume": ["autumn"],
    "clear": ["pi-1"],
    "doctor": ["pi-1"],
    "logs": ["pi-1"],
    "restart": ["pi-1"],
}


def commands(command, *path):
    """Yield the words and the object of every command that does something by itself."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), *path, name)
    if path and (not isinstance(command, click.Group) or command.invoke_without_command):
        yield " ".join(path), command


COMMANDS = dict(commands(fleet))


def test_a_command_that_changes_something_has_a_dry_run():
    """A flag with a help text that says what it does; a command that only reads has none."""
    for name in sorted(COMMANDS):
        with table_row(name):
            options = [param for param in COMMANDS[name].params if "--dry-run" in param.opts]
            assert bool(options) == (name not in READING), f"add --dry-run to `edgemeter fleet {name}`, or say here why it changes nothing"
            for option in options:
                assert option.is_flag
                assert option.help
                assert option.help.endswith(".")


def test_the_reading_commands_are_commands():
    """A name that is gone, or was mistyped, would excuse nothing."""
    assert set(READING) | set(REHEARSED) <= set(COMMANDS)
    assert {"release build", "update", "card"} <= set(COMMANDS) - set(READING)


def test_a_rehearsal_where_there_is_no_fleet_makes_none(tmp_path):
    """One line, and the folder stays empty: not even a registry is made."""
    for name, arguments in sorted(REHEARSED.items()):
        with table_row(name):
            result = CliRunner().invoke(fleet, [*name.split(), *arguments, "--dry-run", "--folder", str(tmp_path)])
            assert isinstance(result.exception, ConfigError)
            assert folder_bytes.read(tmp_path) == {}
            assert not list(tmp_path.iterdir())
