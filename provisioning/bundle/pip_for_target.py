"""Runs pip as if on another machine; started by `wheels.py` as a script: `python pip_for_target.py collect|check JSON`.

`pip download --platform ...` chooses wheels by the target's tags and reads the requirements' markers by this machine's Python and
system (pypa/pip #11664): a requirement for `python_version < '3.12'` is then met for the wrong side. Here markers are read as the
target has them, and what was collected is checked again, requirement by requirement, whoever collected it.
"""

import json
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib import import_module
from pathlib import Path
from typing import Any

# Pip's own copies of `packaging`: nothing else has to be installed.
_markers: Any = import_module("pip._vendor.packaging.markers")
_requirements: Any = import_module("pip._vendor.packaging.requirements")
_specifiers: Any = import_module("pip._vendor.packaging.specifiers")
_names: Any = import_module("pip._vendor.packaging.utils")


def become(environment: dict[str, str]) -> None:
    """Read markers as a machine with this environment does.

    Raises:
        SystemExit: this pip does not let itself be told.
    """
    _markers.default_environment = lambda: dict(environment)
    told = _markers.Marker(
        f"python_version == '{environment['python_version']}' and platform_machine == '{environment['platform_machine']}'"
    )
    if not told.evaluate():
        sys.exit("this pip cannot be told for which machine it works: install another version of pip")


def collect(said: dict[str, Any]) -> int:
    """Download the wheels that `requirements` need to `folder`; return pip's exit status."""
    main: Any = import_module("pip._internal.cli.main").main
    platforms = [option for tag in said["platforms"] for option in ("--platform", tag)]
    version = said["environment"]["python_version"].replace(".", "")
    abis = [option for abi in (f"cp{version}", "abi3", "none") for option in ("--abi", abi)]
    status: int = main(
        ["download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--implementation", "cp", "--python-version",
         version, *abis, *platforms, "--dest", said["folder"], *said["requirements"]]
    )  # fmt: skip
    return status


def unmet(said: dict[str, Any]) -> Iterator[str]:
    """Yield what the wheels in `folder` lack for `requirements` on the target, in words."""
    wheels = {_names.canonicalize_name(told["Name"]): told for told in map(_metadata, sorted(Path(said["folder"]).glob("*.whl")))}
    version = said["environment"]["python_full_version"]
    waiting = [(_requirements.Requirement(text), "the bundle") for text in said["requirements"]]
    seen: set[str] = set()
    while waiting:
        requirement, by = waiting.pop()
        if f"{requirement}" in seen:
            continue
        seen.add(f"{requirement}")
        told = wheels.get(_names.canonicalize_name(requirement.name))
        if told is None:
            yield f"{requirement} (of {by}) is missing"
        elif not requirement.specifier.contains(told["Version"], prereleases=True):
            yield f"{requirement} (of {by}) is not met by {told['Name']} {told['Version']}"
        elif absent := sorted(set(requirement.extras) - set(told.get_all("Provides-Extra") or ())):
            yield f"{told['Name']} has no extra {', '.join(absent)}"
        elif not _specifiers.SpecifierSet(told["Requires-Python"] or "").contains(version, prereleases=True):
            yield f"{told['Name']} {told['Version']} wants Python {told['Requires-Python']}"
        else:
            waiting += [(one, told["Name"]) for one in _needed(told, requirement.extras)]


def _needed(told: Message, extras: set[str]) -> Iterator[Any]:
    for text in told.get_all("Requires-Dist") or ():
        requirement = _requirements.Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            requirement.marker = None
            yield requirement


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA") and one.count("/") == 1)
        return Parser().parsestr(archive.read(name).decode(), headersonly=True)


def main(verb: str, text: str) -> int:
    """Do what the first argument says with the JSON of the second; return the exit status."""
    said = json.loads(text)
    become(said["environment"])
    if verb == "collect":
        return collect(said)
    sys.stdout.write(json.dumps(sorted(unmet(said))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
