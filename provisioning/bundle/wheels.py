"""Collects the wheels that a release needs on a target, and makes sure that they are all of them."""

import json
import subprocess
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.provisioning.bundle.boards import Target
from edgemeter.provisioning.bundle.pip_command import python_with_pip

TIMEOUT_S = 1800
PIP = "pip>=23"


def collect(wheel: Path, extras: Sequence[str], target: Target, folder: Path) -> None:
    """Fill `folder` with edgemeter's wheel, all that it needs with the extras, and pip's.

    Raises:
        ConfigError: there is no such set for the target, or an extra is unknown.
        UnavailableError: pip or the index cannot be reached.
    """
    own = f"edgemeter[{','.join(extras)}] @ {wheel.absolute().as_uri()}" if extras else wheel.absolute().as_uri()
    asked = {"environment": target.markers(), "platforms": target.platforms(), "folder": str(folder)}
    done = _run("collect", {**asked, "requirements": [own, PIP]})
    if done.returncode != 0:
        message = f"no wheels for {target.words}: {_reason(done)}; choose other extras, another Python, or look at pip's configuration"
        raise ConfigError(message)
    check(extras, target, folder)


def check(extras: Sequence[str], target: Target, folder: Path) -> None:
    """Make sure that the wheels in `folder` are all that edgemeter with the extras needs on the target, and of the right versions.

    Raises:
        ConfigError: one is missing or does not fit; the message names all.
        UnavailableError: pip cannot be started.
    """
    named = f"edgemeter[{','.join(extras)}]" if extras else "edgemeter"
    asked = {"environment": target.markers(), "folder": str(folder), "requirements": [named, PIP]}
    done = _run("check", asked)
    if done.returncode != 0:
        message = f"cannot check the wheels for {target.words}: {_reason(done)}"
        raise UnavailableError(message)
    lacking = json.loads(done.stdout)
    if lacking:
        message = f"the wheels do not make a release for {target.words}: {'; '.join(lacking)}"
        raise ConfigError(message)


def _run(verb: str, asked: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    with as_file(files(__package__).joinpath("pip_for_target.py")) as script:
        command = [*python_with_pip(), str(script), verb, json.dumps(asked)]
        try:
            return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            message = f"cannot start pip: {error}"
            raise UnavailableError(message) from error


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ") and "Ignored the following" not in line]
    return (told or lines or [f"pip ended with status {done.returncode}"])[0][:500]
