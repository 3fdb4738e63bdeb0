"""The wheels that a release needs on a target: edgemeter's own, built or packed from what is installed here, and all others, complete."""

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.release.boards import ReleaseTarget

# Written by an installer, or derived from the wheel.
NOT_OF_A_WHEEL = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json"}
# The earliest time in a zip; setuptools reads it from the environment.
EPOCH_S, EPOCH = 315_532_800, (1980, 1, 1, 0, 0, 0)
BUILD_TIMEOUT_S = 600
TIMEOUT_S = 1800
PIP = "pip>=23"
_SOURCE_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def _python_with_pip() -> list[str]:
    """Return the command of a Python that can import pip; raise UnavailableError if there is neither pip nor uv."""
    if find_spec("pip") is not None:
        return [sys.executable]
    uv = shutil.which("uv")
    if uv is None:
        raise UnavailableError("building a release needs pip or uv: `python3 -m ensurepip`, or install uv")
    return [uv, "run", "--quiet", "--no-project", "--with", "pip", "python"]


def make_own_wheel(folder: Path) -> Path:
    """Return edgemeter's wheel, made in `folder`; raises UnavailableError (what was tried) if what is installed does not allow it."""
    source = _source_folder()
    return repack_wheel("edgemeter", folder) if source is None else _build_wheel(source, folder)


def _build_wheel(source: Path, folder: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="edgemeter-wheel-") as scratch:
        copy = Path(scratch) / "source"
        _copy_source(source, copy)
        command = [*_python_with_pip(), "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check", "--wheel-dir", scratch]
        if _has_setuptools():
            command.append("--no-build-isolation")
        environment = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", str(EPOCH_S))}
        try:
            completed = subprocess.run([*command, str(copy)], env=environment, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise UnavailableError(
                f"cannot build edgemeter's wheel from {str(source)!r}: {error}: give a wheel with --wheel FILE"
            ) from error
        wheels = list(Path(scratch).glob("edgemeter-*.whl"))
        if completed.returncode != 0 or not wheels:
            errors = completed.stderr.decode(errors="replace").strip().splitlines()
            raise UnavailableError(
                f"cannot build edgemeter's wheel from {str(source)!r}: {errors[-1] if errors else 'no wheel'}; give one with --wheel"
            )
        return Path(shutil.copy(wheels[0], folder))


def repack_wheel(name: str, folder: Path) -> Path:
    """Return a wheel of an installed distribution's files, in `folder`; raises UnavailableError if none was installed from a wheel."""
    distribution = next((candidate for candidate in metadata.distributions(name=name) if candidate.read_text("WHEEL")), None)
    if distribution is None:
        raise UnavailableError(f"{name} is not installed from a wheel, so none can be made from it: give one with --wheel FILE")
    files = {str(file): Path(str(file.locate())) for file in distribution.files or () if _is_of_a_wheel(file)}
    info = next(PurePosixPath(file).parent for file in files if file.endswith(".dist-info/WHEEL"))
    tags = [line.partition(": ")[2] for line in files[f"{info}/WHEEL"].read_text().splitlines() if line.startswith("Tag: ")]
    tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*(tag.split("-") for tag in tags), strict=True))
    target = folder / f"{info.name.removesuffix('.dist-info')}-{tag}.whl"
    _write_wheel(target, str(info), files)
    return target


def _is_of_a_wheel(file: PurePosixPath) -> bool:
    is_added = file.parent.name.endswith(".dist-info") and file.name in NOT_OF_A_WHEEL
    return not (is_added or ".." in file.parts or file.suffix == ".pyc" or file.is_absolute())


def _write_wheel(target: Path, info: str, files: dict[str, Path]) -> None:
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            content = files[name].read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow((name, f"sha256={digest}", len(content)))
            _add_to_wheel(archive, name, content)
        rows.writerow((f"{info}/RECORD", "", ""))
        _add_to_wheel(archive, f"{info}/RECORD", record.getvalue().encode())


def _add_to_wheel(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)


def _source_folder() -> Path | None:
    """Return the project's folder where edgemeter was installed in place (`pip install --editable`)."""
    # A build leaves `edgemeter.egg-info` beside the source, without its origin.
    text = next(
        (text for distribution in metadata.distributions(name="edgemeter") if (text := distribution.read_text("direct_url.json"))), None
    )
    origin = json.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def _copy_source(source: Path, target: Path) -> None:
    try:
        target.mkdir()
        setup = msgspec.toml.decode((source / "pyproject.toml").read_bytes())["tool"]["setuptools"]
        for name in _SOURCE_FILES:
            shutil.copy(source / name, target / name)
        for folder in {path.partition("/")[0] for path in setup["package-dir"].values()}:
            shutil.copytree(source / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    except (OSError, shutil.Error, msgspec.MsgspecError, KeyError) as error:
        raise ConfigError(f"cannot read edgemeter's source in {str(source)!r} ({error}): give a wheel with --wheel FILE") from error


def _has_setuptools() -> bool:
    try:
        return int(metadata.version("setuptools").split(".")[0]) >= 77
    except (metadata.PackageNotFoundError, ValueError):
        return False


def collect_wheels(wheel: Path, extras: Sequence[str], target: ReleaseTarget, folder: Path) -> None:
    """Fill `folder` with edgemeter's wheel, those that it needs with the extras, and pip's.

    Raises:
        ConfigError: there are no such wheels for the target, or an extra is unknown.
        UnavailableError: pip or the index cannot be reached.
    """
    own_requirement = f"edgemeter[{','.join(extras)}] @ {wheel.absolute().as_uri()}" if extras else wheel.absolute().as_uri()
    request = {
        "environment": target.markers(),
        "platforms": target.platforms(),
        "folder": str(folder),
        "requirements": [own_requirement, PIP],
    }
    completed = _run_pip("collect", request)
    if completed.returncode != 0:
        raise ConfigError(
            f"no wheels for {target.words}: {_reason(completed)}; choose other extras or another Python, or check pip's configuration"
        )
    check_wheels(extras, target, folder)


def check_wheels(extras: Sequence[str], target: ReleaseTarget, folder: Path) -> None:
    """Check that `folder` has all wheels that edgemeter with these extras needs; raises ConfigError with all that lack."""
    named = f"edgemeter[{','.join(extras)}]" if extras else "edgemeter"
    completed = _run_pip("check", {"environment": target.markers(), "folder": str(folder), "requirements": [named, PIP]})
    if completed.returncode != 0:
        raise UnavailableError(f"cannot check the wheels for {target.words}: {_reason(completed)}")
    lacking = json.loads(completed.stdout)
    if lacking:
        raise ConfigError(f"the wheels are not complete for {target.words}: {'; '.join(lacking)}")


def _run_pip(verb: str, request: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    with as_file(files(__package__).joinpath("pip_for_target.py")) as script:
        command = [*_python_with_pip(), str(script), verb, json.dumps(request)]
        try:
            return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise UnavailableError(f"cannot start pip: {error}") from error


def _reason(completed: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line.strip() for line in completed.stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ") and "Ignored the following" not in line]
    return (errors or lines or [f"pip ended with status {completed.returncode}"])[0][:500]
