"""Facts about what errors name: each `--option` and each command in them exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import click

from edgemeter.agent.base.cli.command_group import ModalCommand
from edgemeter.agent.cli.main import cli
from tests.fixtures.command_lines import every_command

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("agent", "collector", "models", "provisioning")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"`(edgemeter [^`]*)`")
# Options of programs that errors name beside ours, by the words before them; a device's own scripts
# have theirs.
OTHERS = re.compile(
    r"`?\b(pip install|systemctl|git|uv|docker|trtexec|journalctl|apt|perf|nvidia-smi|jtop"
    r"|edgetpu_compiler|tar|install\.py)\b[^`:;]*"
)
OWN_SCRIPTS = {
    "provisioning/release/install.py": {"--public-key", "--allow-downgrade"},
}


@cache
def texts(package: str) -> list[tuple[str, str]]:
    """Return the place and the text of every message that names an option or a command.

    These are the messages that are raised or printed on standard error; {} stands for a value.
    """
    messages = []
    for path in sorted((ROOT / package).rglob("*.py")):
        name, source = path.relative_to(ROOT).as_posix(), path.read_text()
        for node in (
            ast.walk(ast.parse(source)) if OPTION.search(source) or "`edgemeter" in source else ()
        ):
            function = getattr(node, "func", None)
            if isinstance(node, ast.Raise) or getattr(
                function, "attr", getattr(function, "id", None)
            ) in {"echo", "refuse", "warning"}:
                messages += [
                    (f"{name}:{node.lineno}", text)
                    for text in _strings(node)
                    if "--" in text or "`edgemeter" in text
                ]
    return messages


def _strings(node: ast.AST) -> Iterator[str]:
    """Yield each string, a formatted one whole and not its parts."""
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
        children = [part for part in children if not isinstance(part, ast.Constant)]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in children:
        yield from _strings(child)


def options_of(command: click.Command) -> set[str]:
    """Return the options of a command, and those of the commands that its flags choose."""
    options = {
        name for param in command.params for name in (*param.opts, *param.secondary_opts)
    } | {"--help"}
    if isinstance(command, ModalCommand):
        options |= set(command.modes).union(
            *(options_of(resolve_name(address)) for address in command.modes.values())
        )
    return options


COMMANDS = {" ".join(path): command for path, command in every_command()}
EVERY_OPTION = {"--version"}.union(*map(options_of, [cli, *COMMANDS.values()]))


def test_what_an_error_names_exists():
    """An option must belong to the command that the error names, or else to any command."""
    messages = [message for package in PACKAGES for message in texts(package)]
    assert len(messages) > 100
    for location, text in messages:
        check(location, text)


def check(location, text):
    for line in COMMAND.findall(text):
        words = line.split()[1:]
        prefixes = [count for count in range(len(words) + 1) if " ".join(words[:count]) in COMMANDS]
        if not words or words[0].startswith(("{", "-", "COMMAND")):
            continue
        assert prefixes, f"{location}: there is no command {line!r}"
        command = COMMANDS[" ".join(words[: prefixes[-1]])]
        remaining = words[prefixes[-1] :]
        is_group = isinstance(command, click.Group) and not command.invoke_without_command
        assert not (is_group and remaining and re.fullmatch(r"[a-z-]+", remaining[0])), (
            f"{location}: {line!r} names no command of that group"
        )
        assert set(OPTION.findall(line)) <= options_of(command), f"{location}: {line!r}"
    script_options = OWN_SCRIPTS.get(location.partition(":")[0], set())
    named = set(OPTION.findall(OTHERS.sub("", COMMAND.sub("", text))))
    assert named <= EVERY_OPTION | script_options, (
        f"{location}: {sorted(named - EVERY_OPTION - script_options)}"
    )
