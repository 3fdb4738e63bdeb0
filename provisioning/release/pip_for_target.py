"""Run pip as if on another machine; started by `wheels.py` as a script: `python pip_for_target.py collect|check JSON`.

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
    """Read markers as a machine with this environment does; raises SystemExit if this pip ignores the environment."""
    _markers.default_environment = lambda: dict(environment)
    marker = _markers.Marker(
        f"python_version == '{environment['python_version']}' and platform_machine == '{environment['platform_machine']}'"
    )
    if not marker.evaluate():
        sys.exit("this pip does not accept another machine's environment: install another version of pip")


def collect(request: dict[str, Any]) -> int:
    """Download the wheels that `requirements` need to `folder`; return pip's exit status."""
    main: Any = import_module("pip._internal.cli.main").main
    platforms = [option for tag in request["platforms"] for option in ("--platform", tag)]
    version = request["environment"]["python_version"].replace(".", "")
    abis = [option for abi in (f"cp{version}", "abi3", "none") for option in ("--abi", abi)]
    status: int = main(
        ["download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--implementation", "cp", "--python-version",
         version, *abis, *platforms, "--dest", request["folder"], *request["requirements"]]
    )  # fmt: skip
    return status


def unmet(request: dict[str, Any]) -> Iterator[str]:
    """Yield what the wheels in `folder` lack for `requirements` on the target, as text."""
    wheels = {_names.canonicalize_name(fields["Name"]): fields for fields in map(_metadata, sorted(Path(request["folder"]).glob("*.whl")))}
    version = request["environment"]["python_full_version"]
    waiting = [(_requirements.Requirement(text), "the release") for text in request["requirements"]]
    checked: set[str] = set()
    while waiting:
        requirement, by = waiting.pop()
        if f"{requirement}" in checked:
            continue
        checked.add(f"{requirement}")
        fields = wheels.get(_names.canonicalize_name(requirement.name))
        if fields is None:
            yield f"{requirement} (of {by}) is missing"
        elif not requirement.specifier.contains(fields["Version"], prereleases=True):
            yield f"{requirement} (of {by}) is not met by {fields['Name']} {fields['Version']}"
        elif absent := sorted(set(requirement.extras) - set(fields.get_all("Provides-Extra") or ())):
            yield f"{fields['Name']} has no extra {', '.join(absent)}"
        elif not _specifiers.SpecifierSet(fields["Requires-Python"] or "").contains(version, prereleases=True):
            yield f"{fields['Name']} {fields['Version']} needs Python {fields['Requires-Python']}"
        else:
            waiting += [(dependency, fields["Name"]) for dependency in _needed(fields, requirement.extras)]


def _needed(wheel: Message, extras: set[str]) -> Iterator[Any]:
    for text in wheel.get_all("Requires-Dist") or ():
        requirement = _requirements.Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            requirement.marker = None
            yield requirement


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(member for member in archive.namelist() if member.endswith(".dist-info/METADATA") and member.count("/") == 1)
        return Parser().parsestr(archive.read(name).decode(), headersonly=True)


def main(verb: str, text: str) -> int:
    """Do `verb` with a request in JSON; return the exit status."""
    request = json.loads(text)
    become(request["environment"])
    if verb == "collect":
        return collect(request)
    sys.stdout.write(json.dumps(sorted(unmet(request))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
