"""Every command with its sentence."""

import inspect

import click

from edgemeter.agent.base.cli.command_group import ModalCommand
from edgemeter.agent.base.errors import EXIT_STATUSES
from tests.fixtures.command_lines import every_command

HEAD = """# Commands

`edgemeter COMMAND --help` shows the options of a command. `run` and `compare` have more options,
which `--help-all` shows.
"""
FOOT = f"""
## Exit status

{"".join(f"- {status}: {meaning}{chr(10)}" for status, meaning in EXIT_STATUSES.items())}
Results go to standard output, everything else to standard error. With `--format json` a command
prints JSON.
"""


def page() -> str:
    lines = [HEAD]
    for (name, *inner), command in every_command():
        summary = _summary(command)
        if inner:
            lines.append(f"- `{' '.join(inner)}`: {summary}\n")
        elif isinstance(command, click.Group | ModalCommand):
            lines.append(f"\n## {name}\n\n{summary}\n\n")
        else:
            lines.append(f"\n## {name}\n\n{summary}\n")
    return "".join(lines) + FOOT


def _summary(command: click.Command) -> str:
    """Return the first sentence of the help."""
    paragraph = " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())
    return f"{paragraph.partition('. ')[0].rstrip('.')}."
