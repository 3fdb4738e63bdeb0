"""The man page of all commands, with every argument and option; `python -m edgemeter.agent.cli.man_page` prints it for the wheel."""

import inspect
import re
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any

import click

from edgemeter.agent.base.command_group import ModalCommand
from edgemeter.agent.base.errors import EXIT_STATUSES
from edgemeter.agent.base.variables import VARIABLES
from edgemeter.agent.cli.main import cli


def man_page() -> str:
    """Return the man page, in roff."""
    lines = ['.TH EDGEMETER 1 "" "Edgemeter" "User Commands"', ".SH NAME", r"edgemeter \- measure what a model costs on a device"]
    lines += [".SH SYNOPSIS", r"\fBedgemeter\fR COMMAND [OPTIONS]", ".SH COMMANDS"]
    for path, command in commands(cli):
        lines += _man_section(path, command)
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT_STATUSES.items():
        lines += [".TP", str(status), _roff(meaning)]
    lines.append(".SH ENVIRONMENT")
    for group in VARIABLES.values():
        for name, variable in group.items():
            lines += [".TP", rf"\fB{name}\fR", _roff(f"{variable.meaning}. Default: {variable.default}.")]
    return "\n".join(lines) + "\n"


def commands(group: click.Group, path: str = "edgemeter") -> Iterator[tuple[str, click.Command]]:
    """Yield each command below a group with its full name, groups before what is in them."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if command is None:
            continue
        yield f"{path} {name}", command
        if isinstance(command, ModalCommand):
            for flag, address in command.modes.items():
                mode = resolve_name(address)
                yield f"{path} {name} {flag}", mode
                yield from commands(mode, f"{path} {name} {flag}") if isinstance(mode, click.Group) else ()
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def _man_section(path: str, command: click.Command) -> Iterator[str]:
    words, _, example = inspect.cleandoc(command.help or "").partition("Example: ")
    arguments = [_argument(param) for param in command.params if isinstance(param, click.Argument)]
    options = [param for param in command.params if isinstance(param, click.Option)]
    usage = " ".join([*arguments, *(["COMMAND"] if isinstance(command, click.Group) else []), *(["[OPTIONS]"] if options else [])])
    yield f".SS {_roff(path)}"
    for paragraph in re.split(r"\n{2,}", words.strip()):
        as_it_is = paragraph.startswith("\b\n")
        yield ".PP"
        yield from (".nf", *map(_roff, paragraph.splitlines()[1:]), ".fi") if as_it_is else (_roff(" ".join(paragraph.split())),)
    yield from (".PP", rf"Usage: \fB{_roff(path)}\fR {_roff(usage)}".rstrip())
    if example:
        yield from (".PP", f"Example: {_roff(' '.join(example.split()))}")
    for option in options:
        name, meaning = _option(option)
        yield from (".TP", rf"\fB{_roff(name)}\fR", _roff(meaning))


def _roff(text: str) -> str:
    """Return text in which roff reads no command: backslashes, hyphens that are to be copied, and a dot or quote that begins a line."""
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", r"\e").replace("-", r"\-"), flags=re.MULTILINE)


def _argument(argument: click.Argument) -> str:
    name = (argument.metavar or argument.name or "").upper()
    return f"{name if argument.required else f'[{name}]'}{'...' if argument.nargs == -1 else ''}"


def _option(option: click.Option) -> tuple[str, str]:
    names = "/".join([*option.opts, *option.secondary_opts])
    kind = "" if option.is_flag or option.count else f" {option.metavar or _kind(option.type)}"
    default = f" Default: {option.default}." if option.show_default and option.default is not None and not callable(option.default) else ""
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    environment = f" Environment: {', '.join(variables)}." if variables else ""
    required = " Required." if option.required else ""
    return f"{names}{kind}", f"{' '.join((option.help or '').split())}{default}{required}{environment}"


def _kind(kind: Any) -> str:
    if isinstance(kind, click.Choice):
        return "|".join(map(str, kind.choices))
    names = {"integer range": "INTEGER", "float range": "NUMBER", "float": "NUMBER", "filename": "PATH", "directory": "PATH"}
    return names.get(kind.name, str(kind.name).upper())


if __name__ == "__main__":
    click.echo(man_page(), nl=False)
