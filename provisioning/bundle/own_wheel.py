"""The wheel of what is installed here: edgemeter's own, from its source where it was installed in place, else packed of its files."""

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import msgspec

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.provisioning.bundle.pip_command import pip_command

# Written by an installer and not by a wheel, or made of what the wheel says.
NOT_OF_A_WHEEL = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json"}
# The earliest that a zip can say; setuptools reads it from the environment.
EPOCH_S, EPOCH = 315_532_800, (1980, 1, 1, 0, 0, 0)
TIMEOUT_S = 600
_SOURCE_FILES = ("pyproject.toml", "README.md", "LICENSE")


def make(folder: Path) -> Path:
    """Return edgemeter's wheel, made in `folder`.

    Raises:
        UnavailableError: it cannot be made of what is here; the message says what was tried.
    """
    source = _source_folder()
    return repack("edgemeter", folder) if source is None else build(source, folder)


def build(source: Path, folder: Path) -> Path:
    """Return the wheel of the project in `source`, which stays as it is.

    Raises:
        UnavailableError: setuptools or pip refuse.
    """
    with tempfile.TemporaryDirectory(prefix="edgemeter-wheel-") as made:
        copy = Path(made) / "source"
        _copy_source(source, copy)
        command = [*pip_command(), "wheel", "--quiet", "--no-deps", "--disable-pip-version-check", "--wheel-dir", made]
        if _has_setuptools():
            command.append("--no-build-isolation")
        own = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", str(EPOCH_S))}
        try:
            done = subprocess.run([*command, str(copy)], env=own, capture_output=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            message = f"cannot build edgemeter's wheel from {str(source)!r}: {error}: give a wheel with --wheel FILE"
            raise UnavailableError(message) from error
        wheels = list(Path(made).glob("edgemeter-*.whl"))
        if done.returncode != 0 or not wheels:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            message = f"cannot build edgemeter's wheel from {str(source)!r}: {said[-1] if said else 'pip made none'}: give one with --wheel"
            raise UnavailableError(message)
        return Path(shutil.copy(wheels[0], folder))


def repack(name: str, folder: Path) -> Path:
    """Return a wheel of the files of an installed distribution, written to `folder`.

    Raises:
        UnavailableError: it is not installed, or not from a wheel.
    """
    found = next((one for one in metadata.distributions(name=name) if one.read_text("WHEEL")), None)
    if found is None:
        message = f"{name} is not installed here from a wheel, so that none can be made of it: give one with --wheel FILE"
        raise UnavailableError(message)
    files = {str(file): Path(str(file.locate())) for file in found.files or () if _is_of_a_wheel(file)}
    info = next(PurePosixPath(file).parent for file in files if file.endswith(".dist-info/WHEEL"))
    tags = [line.partition(": ")[2] for line in files[f"{info}/WHEEL"].read_text().splitlines() if line.startswith("Tag: ")]
    target = folder / f"{info.name.removesuffix('.dist-info')}-{_one_tag(tags)}.whl"
    _write_wheel(target, str(info), files)
    return target


def _is_of_a_wheel(file: PurePosixPath) -> bool:
    is_told = file.parent.name.endswith(".dist-info") and file.name in NOT_OF_A_WHEEL
    return not (is_told or ".." in file.parts or file.suffix == ".pyc" or file.is_absolute())


def _one_tag(tags: list[str]) -> str:
    parts = [tag.split("-") for tag in tags]
    return "-".join(".".join(dict.fromkeys(tag[place] for tag in parts)) for place in range(3))


def _write_wheel(target: Path, info: str, files: dict[str, Path]) -> None:
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            content = files[name].read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow((name, f"sha256={digest}", len(content)))
            _add(archive, name, content)
        rows.writerow((f"{info}/RECORD", "", ""))
        _add(archive, f"{info}/RECORD", record.getvalue().encode())


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)


def _source_folder() -> Path | None:
    """Return the project's folder where edgemeter was installed in place (`pip install --editable`)."""
    # A build leaves `edgemeter.egg-info` beside the source, which says nothing of where it came from.
    told = next((text for one in metadata.distributions(name="edgemeter") if (text := one.read_text("direct_url.json"))), None)
    said = json.loads(told) if told else {}
    if not said.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(said["url"]).path))


def _copy_source(source: Path, target: Path) -> None:
    try:
        target.mkdir()
        for name in _SOURCE_FILES:
            shutil.copy(source / name, target)
        project = msgspec.toml.decode((source / "pyproject.toml").read_bytes())
        for folder in project["tool"]["setuptools"]["package-dir"].values():
            shutil.copytree(source / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    except (OSError, shutil.Error, msgspec.MsgspecError, KeyError) as error:
        message = f"cannot read edgemeter's source in {str(source)!r}: {error}: give a wheel with --wheel FILE"
        raise ConfigError(message) from error


def _has_setuptools() -> bool:
    try:
        return int(metadata.version("setuptools").split(".")[0]) >= 77
    except (metadata.PackageNotFoundError, ValueError):
        return False
