"""Every command with its arguments and options."""

import inspect
import re
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any

import click

from edgemeter.agent.base.command_group import ModalCommand
from edgemeter.agent.cli.main import cli
from tests.docs.reference.tables import table

HEAD = """# Commands

`edgemeter COMMAND --help` prints the same. Results go to standard output, everything else to standard error; `--json` is for machines.
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Environment variables stand below the options that they replace; see
[configuration](configuration.md).
"""


def page() -> str:
    """Return the page."""
    sections = "".join(f"\n{'#' * min(2 + path.count(' ') - 1, 4)} {path}\n\n{_command(path, command)}" for path, command in commands(cli))
    return f"{HEAD}{sections}"


def commands(group: click.Group, path: str = "edgemeter") -> Iterator[tuple[str, click.Command]]:
    """Yield each command below a group with its full name, groups before what is in them."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if command is None:
            continue
        yield f"{path} {name}", command
        if isinstance(command, ModalCommand):
            yield from ((f"{path} {name} {flag}", resolve_name(address)) for flag, address in command.modes.items())
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def _command(path: str, command: click.Command) -> str:
    words, _, example = inspect.cleandoc(command.help or "").partition("Example: ")
    arguments = [_argument(param) for param in command.params if isinstance(param, click.Argument)]
    usage = " ".join([path, *arguments, *(["COMMAND"] if isinstance(command, click.Group) else [])])
    options = [_option(param) for param in command.params if isinstance(param, click.Option)]
    text = f"{_prose(words)}\n\n```text\n{usage}{' [OPTIONS]' if options else ''}\n```\n"
    text += f"\nExample: `{' '.join(example.split())}`\n" if example else ""
    return text + (f"\n{table(['option', 'meaning'], options)}" if options else "")


def _prose(words: str) -> str:
    """Return help without click's mark for text that is not to be wrapped."""
    return re.sub(r"^\b\n", "", words.replace("\b\n", ""), flags=re.MULTILINE).strip()


def _argument(argument: click.Argument) -> str:
    name = (argument.metavar or argument.name or "").upper()
    return f"{name if argument.required else f'[{name}]'}{'...' if argument.nargs == -1 else ''}"


def _option(option: click.Option) -> tuple[str, str]:
    names = "/".join([*option.opts, *option.secondary_opts])
    kind = "" if option.is_flag or option.count else f" {option.metavar or _kind(option.type)}"
    default = f" Default: {option.default}." if option.show_default and option.default is not None and not callable(option.default) else ""
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    environment = f" Environment: {', '.join(f'`{name}`' for name in variables)}." if variables else ""
    required = " Required." if option.required else ""
    return f"`{names}{kind}`", f"{(option.help or '').strip()}{default}{required}{environment}".replace("<", "&lt;")


def _kind(kind: Any) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    names = {"integer range": "INTEGER", "float range": "NUMBER", "float": "NUMBER", "filename": "PATH", "directory": "PATH"}
    return names.get(kind.name, str(kind.name).upper())
