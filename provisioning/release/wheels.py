"""The wheels of a release for a target: edgemeter's own, and all others, complete.

Edgemeter's own is built from the source of its installation.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from importlib import metadata
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.release.boards import ReleaseTarget

# The earliest time in a zip; setuptools reads it from the environment.
EPOCH_S = 315_532_800
TIMEOUT_S = 1800
PIP = "pip>=23"
GIVE_WHEEL = "give a wheel to `edgemeter fleet release build --wheel FILE`"


def make_own_wheel(folder: Path) -> Path:
    """Return the wheel of the local edgemeter, built in `folder`.

    It is built from the source of edgemeter's installation.

    Raises:
        ConfigError: its source cannot be read.
        UnavailableError: pip cannot make it.
    """
    # A build leaves `edgemeter.egg-info` next to the source, without its origin.
    origins = [
        text
        for distribution in metadata.distributions(name="edgemeter")
        if (text := distribution.read_text("direct_url.json"))
    ]
    origin = json.loads(origins[0]) if origins else {}
    with tempfile.TemporaryDirectory(prefix="edgemeter-wheel-") as scratch:
        if "dir_info" in origin:
            requirement = str(
                _copy_source(Path(unquote(urlsplit(origin["url"]).path)), Path(scratch) / "source")
            )
        elif commit := origin.get("vcs_info"):
            requirement = f"edgemeter @ {commit['vcs']}+{origin['url']}@{commit['commit_id']}"
        elif origin:
            requirement = f"edgemeter @ {origin['url']}"
        else:
            requirement = f"edgemeter=={metadata.version('edgemeter')}"
        options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--wheel-dir", scratch]
        if _has_setuptools():
            options.append("--no-build-isolation")
        epoch_s = os.environ.get("SOURCE_DATE_EPOCH", str(EPOCH_S))
        completed = _python_with_pip(
            "-m", "pip", "wheel", *options, requirement, SOURCE_DATE_EPOCH=epoch_s
        )
        wheels = list(Path(scratch).glob("edgemeter-*.whl"))
        if completed.returncode != 0 or not wheels:
            raise UnavailableError(
                f"cannot make edgemeter's wheel of {requirement!r} ({_reason(completed)}): "
                f"{GIVE_WHEEL}"
            )
        return Path(shutil.copy(wheels[0], folder))


def _copy_source(source: Path, target: Path) -> Path:
    """Return a copy of the source.

    A build would leave files in the source, and use those of an earlier one.
    """
    try:
        target.mkdir()
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(source / name, target / name)
        # The links in it are followed.
        shutil.copytree(
            source / "src", target / "src", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    except (OSError, shutil.Error) as error:
        raise ConfigError(
            f"cannot read edgemeter's source in {str(source)!r} ({error}): {GIVE_WHEEL}"
        ) from error
    return target


def _has_setuptools() -> bool:
    try:
        return int(metadata.version("setuptools").split(".")[0]) >= 77
    except (metadata.PackageNotFoundError, ValueError):
        return False


def collect_wheels(
    wheel: Path,
    extras: Sequence[str],
    target: ReleaseTarget,
    folder: Path,
    further: Sequence[Path] = (),
) -> None:
    """Fill `folder` with the wheels of a release.

    They are edgemeter's, its dependencies with the extras, `further` ones with theirs, and pip's.

    Raises:
        ConfigError: there are no such wheels for the target, or an extra is unknown.
        UnavailableError: pip cannot be started.
    """
    for path in further:
        if path.suffix != ".whl" or not zipfile.is_zipfile(path):
            raise ConfigError(
                f"{str(path)!r} is not a wheel: give a .whl for the board's Python "
                "and processor (--with)"
            )
    # pip only warns of an unknown extra, and the board would have no runtime.
    with zipfile.ZipFile(wheel) as archive:
        name = next(
            member
            for member in archive.namelist()
            if member.endswith(".dist-info/METADATA") and member.count("/") == 1
        )
        offered = (
            Parser()
            .parsestr(archive.read(name).decode(), headersonly=True)
            .get_all("Provides-Extra")
            or ()
        )
    if unknown := sorted(set(extras) - set(offered)):
        raise ConfigError(
            f"edgemeter has no extra {', '.join(unknown)}: it has {', '.join(offered) or 'none'}"
        )
    named = f"edgemeter[{','.join(extras)}]" if extras else "edgemeter"
    requirements = [f"{named} @ {wheel.absolute().as_uri()}", *(str(path) for path in further), PIP]
    completed = _download(requirements, target, folder)
    if completed.returncode != 0:
        raise ConfigError(
            f"no wheels for {target.words}: {_reason(completed)}; choose other extras or another "
            "Python, or check pip's configuration"
        )


def _download(
    requirements: Sequence[str], target: ReleaseTarget, folder: Path
) -> "subprocess.CompletedProcess[bytes]":
    platforms = [word for tag in target.platforms() for word in ("--platform", tag)]
    version = f"{target.python[0]}{target.python[1]}"
    abis = [word for abi in (f"cp{version}", "abi3", "none") for word in ("--abi", abi)]
    with as_file(files(__package__).joinpath("pip_for_target.py")) as script:
        return _python_with_pip(
            str(script), json.dumps(target.markers()), "download", "--quiet",
            "--disable-pip-version-check", "--only-binary=:all:", "--implementation", "cp",
            "--python-version", version, *abis, *platforms, "--dest", str(folder), *requirements,
        )  # fmt: skip


def _python_with_pip(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a Python that can import pip; raises UnavailableError if there is neither pip nor uv."""
    command = [sys.executable]
    if find_spec("pip") is None:
        uv = shutil.which("uv")
        if uv is None:
            raise UnavailableError(
                "building a release needs pip or uv: `python3 -m ensurepip`, or install uv"
            )
        command = [uv, "run", "--quiet", "--no-project", "--with", "pip", "python"]
    environment = {**os.environ, **variables}
    try:
        return subprocess.run(
            [*command, *arguments],
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(
            f"cannot run pip ({error}): check the installation of {command[0]!r}"
        ) from error


def _reason(completed: "subprocess.CompletedProcess[bytes]") -> str:
    lines = [
        line.strip()
        for line in completed.stderr.decode(errors="replace").splitlines()
        if line.strip()
    ]
    errors = [
        line.removeprefix("ERROR: ")
        for line in lines
        if line.startswith("ERROR: ") and "Ignored the following" not in line
    ]
    return (errors or lines or [f"pip ended with status {completed.returncode}"])[0][:500]
