"""The group `edgemeter models`: its commands are imported when they are called."""

import click

from edgemeter.agent.base.cli.command_group import CommandGroup, Sections

COMMANDS: Sections = {
    "Find models": {
        "list": (
            "edgemeter.models.cli.catalogue:list_models",
            "List the shipped models, and those that you can fetch or make.",
        ),
        "show": (
            "edgemeter.models.cli.catalogue:show",
            "Show the card of a model file, or a catalogue entry.",
        ),
        "sample": (
            "edgemeter.models.cli.catalogue:sample",
            "Write a folder with models, photographs and annotations to try commands on.",
        ),
        "add": ("edgemeter.models.cli.catalogue:add", "Add your own model file to your catalogue."),
    },
    "Fetch and convert": {
        "fetch": (
            "edgemeter.models.cli.fetch:fetch",
            "Fetch models of the catalogue and verify them.",
        ),
        "convert": (
            "edgemeter.models.cli.convert:convert",
            "Convert a model to other formats and precisions.",
        ),
        "verify": (
            "edgemeter.models.cli.fetch:verify",
            "Compare the hashes of model files with the catalogue.",
        ),
        "cache": (
            "edgemeter.models.cli.fetch:cache",
            "List and clear the cache of fetched models.",
        ),
    },
    "Look into models": {
        "profile": (
            "edgemeter.agent.cli.profile:profile_command",
            "Show the slowest operators of a model.",
        ),
    },
}


@click.group(cls=CommandGroup, sections=COMMANDS)
def models() -> None:
    """List, fetch, add, convert and verify models.

    Example: edgemeter models list
    """
