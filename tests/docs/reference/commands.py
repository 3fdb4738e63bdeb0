"""Every command with its sentence."""

import inspect
import re

import click

from edgemeter.agent.base.command_group import ModalCommand
from edgemeter.agent.base.errors import EXIT_STATUSES
from tests.fixtures.command_lines import every_command

HEAD = """# Commands

`edgemeter COMMAND --help` shows the options of a command.
"""
FOOT = f"""
## Exit status

{"".join(f"- {status}: {meaning}{chr(10)}" for status, meaning in EXIT_STATUSES.items())}
Results go to standard output, everything else to standard error. `--format json` prints for machines.
"""


def page() -> str:
    """Return the page: each command with its sentence, those of the first level with their example."""
    lines = [HEAD]
    for (name, *inner), command in every_command():
        sentence, example = _sentence_and_example(command)
        if not inner:
            lines.append(f"\n## {name}\n\n{sentence}" + ("\n\n" if _subcommands(command) else f" `{example}`\n"))
        else:
            lines.append(f"- `{' '.join(inner)}`: {_first_clause(sentence)}\n")
    return "".join(lines) + FOOT


def _subcommands(command: click.Command) -> bool:
    return isinstance(command, (click.Group, ModalCommand))


def _first_clause(sentence: str) -> str:
    """Return a sentence up to what only explains it: a colon, a semicolon or a full stop outside brackets, after four words or more."""
    clause = re.match(r"(?:[^\s(]+ ){3,}?(?:\([^)]*\)|[^:;(])*?(?=[:;] |\. |\.?$)", sentence)
    return f"{clause[0]}." if clause else sentence


def _sentence_and_example(command: click.Command) -> tuple[str, str]:
    words, _, example = inspect.cleandoc(command.help or "").partition("Example: ")
    return " ".join(words.split("\n\n")[0].split()), " ".join(example.split())
