"""Writes a package with a plug-in: its project file, one module, a fixture, and a test that runs the contract of its kind."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from edgemeter.agent import datasets, power, runtimes, tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision import decoders

TEMPLATES = Path(__file__).with_name("templates")
NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class PluginKind:
    """The differences between the kinds: the entry point group, the names taken, our extra that it needs, and its fixture.

    `fixture` is the path of the fixture below `tests/fixture`, in which `$name` stands for the name; its content is KIND_fixture.in.
    """

    group: str
    names: Callable[[], Sequence[str]]
    fixture: str
    extra: str = ""


KINDS: Mapping[str, PluginKind] = {
    "runtime": PluginKind(runtimes.ENTRY_POINTS, runtimes.names, "model.$name"),
    "sensor": PluginKind(power.ENTRY_POINTS, power.names, "sys/class/$name/power_uw"),
    "task": PluginKind(tasks.ENTRY_POINTS, tasks.names, "truth.csv", "[vision]"),
    "decoder": PluginKind(decoders.ENTRY_POINTS, decoders.names, "outputs.json"),
    "reader": PluginKind(datasets.ENTRY_POINTS, datasets.names, "data.$name"),
}


def write_package(kind: str, name: str, folder: Path) -> Path:
    """Write `edgemeter-NAME` into `folder` and return where it is.

    Raises:
        ConfigError: the name is none that a plug-in can have, or is taken; or there is something of that name already.
    """
    about = KINDS[kind]
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a {kind}: use lower-case letters and digits, with - or _ between words")
    if name in about.names():
        raise ConfigError(f"a {kind} {name!r} is already installed: choose another name")
    plain = re.sub("[-_]", "-", name)
    words = {
        "kind": kind,
        "name": name,
        "package": f"edgemeter-{plain}",
        "module": f"edgemeter_{plain.replace('-', '_')}",
        "class_name": "".join(word.capitalize() for word in plain.split("-")) + kind.capitalize(),
        "group": about.group,
        "extra": about.extra,
    }
    # The template of each file of the package.
    templates = {
        "pyproject.toml": "pyproject.in",
        "README.md": "readme.in",
        f"{words['module']}.py": f"{kind}.in",
        f"tests/test_{words['module']}.py": f"{kind}_test.in",
        f"tests/fixture/{Template(about.fixture).substitute(words)}": f"{kind}_fixture.in",
    }
    package = folder / words["package"]
    try:
        package.mkdir(parents=True)
        for path, template in templates.items():
            target = package / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    except FileExistsError as error:
        raise ConfigError(f"{str(package)!r} exists already: choose another name or another folder") from error
    except OSError as error:
        raise ConfigError(f"cannot write {str(package)!r}: {error.strerror}; choose another folder") from error
    return package
