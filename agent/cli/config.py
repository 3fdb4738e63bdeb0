"""The group `edgemeter config`: its commands are imported when they are called; `schema` is here."""

import click

from edgemeter.agent.base.command_group import CommandGroup, Sections
from edgemeter.agent.base.documents import print_json

COMMANDS: Sections = {
    "Settings": {
        "show": ("edgemeter.agent.cli.settings:show", "Show every setting with its value and where it comes from."),
        "path": ("edgemeter.agent.cli.settings:path", "Show which configuration files are looked for and read."),
        "sample": ("edgemeter.agent.cli.settings:sample", "Print a complete sample of a file."),
        "check": ("edgemeter.agent.cli.settings:check", "Show all mistakes in a file at once."),
        "variables": ("edgemeter.agent.cli.settings:variables", "List every environment variable that is read."),
    },
    "What results mean": {
        "rules": ("edgemeter.collector.cli.rules:rules", "List the rules of verdicts and comparisons."),
        "schema": ("edgemeter.agent.cli.config:schema", "Print the JSON Schema of a record."),
    },
}


@click.group(cls=CommandGroup, sections=COMMANDS)
def config() -> None:
    """Show, sample and check the settings, the rules of the verdict and the schema of a record.

    Example: edgemeter config show
    """


@click.command()
def schema() -> None:
    """Print the JSON Schema of a run record.

    Example: edgemeter config schema > record.schema.json
    """
    from edgemeter.agent.contract.record import json_schema

    print_json(json_schema())
