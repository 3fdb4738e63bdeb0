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
from collections.abc import Mapping, Sequence
from email.parser import Parser
from importlib import metadata
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.release.boards import ReleaseTarget

# Written by an installer, or derived from the wheel.
NOT_OF_A_WHEEL = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json"}
# The earliest time in a zip; setuptools reads it from the environment.
EPOCH_S, EPOCH = 315_532_800, (1980, 1, 1, 0, 0, 0)
TIMEOUT_S = 1800
PIP = "pip>=23"
_SOURCE_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def make_own_wheel(folder: Path) -> Path:
    """Return edgemeter's wheel, made in `folder`; raises UnavailableError (what was tried) if what is installed does not allow it."""
    # A build leaves `edgemeter.egg-info` beside the source, without its origin.
    origins = [text for distribution in metadata.distributions(name="edgemeter") if (text := distribution.read_text("direct_url.json"))]
    origin = json.loads(origins[0]) if origins else {}
    if not origin.get("dir_info", {}).get("editable"):
        return repack_wheel("edgemeter", folder)
    return _build_wheel(Path(unquote(urlsplit(origin["url"]).path)), folder)


def _build_wheel(source: Path, folder: Path) -> Path:
    with tempfile.TemporaryDirectory(prefix="edgemeter-wheel-") as scratch:
        # In the source a build would leave files of its own, and take those of an earlier one.
        copy = Path(scratch) / "source"
        _copy_source(source, copy)
        options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--wheel-dir", scratch]
        if _has_setuptools():
            options.append("--no-build-isolation")
        epoch_s = os.environ.get("SOURCE_DATE_EPOCH", str(EPOCH_S))
        completed = _python_with_pip("-m", "pip", "wheel", *options, str(copy), SOURCE_DATE_EPOCH=epoch_s)
        wheels = list(Path(scratch).glob("edgemeter-*.whl"))
        if completed.returncode != 0 or not wheels:
            raise UnavailableError(
                f"cannot build edgemeter's wheel from {str(source)!r} ({_reason(completed)}): give one with --wheel FILE"
            )
        return Path(shutil.copy(wheels[0], folder))


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
    _write_wheel(target, f"{info}/RECORD", {name: files[name].read_bytes() for name in sorted(files)})
    return target


def _is_of_a_wheel(file: PurePosixPath) -> bool:
    is_added = file.parent.name.endswith(".dist-info") and file.name in NOT_OF_A_WHEEL
    return not (is_added or ".." in file.parts or file.suffix == ".pyc" or file.is_absolute())


def _write_wheel(target: Path, record: str, contents: Mapping[str, bytes]) -> None:
    listed = io.StringIO()
    rows = csv.writer(listed, lineterminator="\n")
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(content)))
    rows.writerow((record, "", ""))
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in {**contents, record: listed.getvalue().encode()}.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)


def collect_wheels(wheel: Path, extras: Sequence[str], target: ReleaseTarget, folder: Path, further: Sequence[Path] = ()) -> None:
    """Fill `folder` with edgemeter's wheel, those that it needs with the extras, `further` ones with what they need, and pip's.

    Raises:
        ConfigError: there are no such wheels for the target, or an extra is unknown.
        UnavailableError: pip cannot be started.
    """
    for path in further:
        if path.suffix != ".whl" or not zipfile.is_zipfile(path):
            raise ConfigError(f"{str(path)!r} is not a wheel: give a .whl for the board's Python and processor (--with)")
    _refuse_unknown(extras, wheel)
    named = f"edgemeter[{','.join(extras)}]" if extras else "edgemeter"
    requirements = [f"{named} @ {wheel.absolute().as_uri()}", *(str(path) for path in further), PIP]
    completed = _download(requirements, target, folder)
    if completed.returncode != 0:
        raise ConfigError(
            f"no wheels for {target.words}: {_reason(completed)}; choose other extras or another Python, or check pip's configuration"
        )


def _refuse_unknown(extras: Sequence[str], wheel: Path) -> None:
    # Pip only warns, and the board would come without a runtime.
    with zipfile.ZipFile(wheel) as archive:
        name = next(member for member in archive.namelist() if member.endswith(".dist-info/METADATA") and member.count("/") == 1)
        offered = Parser().parsestr(archive.read(name).decode(), headersonly=True).get_all("Provides-Extra") or ()
    if unknown := sorted(set(extras) - set(offered)):
        raise ConfigError(f"edgemeter has no extra {', '.join(unknown)}: it has {', '.join(offered) or 'none'}")


def _download(requirements: Sequence[str], target: ReleaseTarget, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    platforms = [word for tag in target.platforms() for word in ("--platform", tag)]
    version = f"{target.python[0]}{target.python[1]}"
    abis = [word for abi in (f"cp{version}", "abi3", "none") for word in ("--abi", abi)]
    with as_file(files(__package__).joinpath("pip_for_target.py")) as script:
        return _python_with_pip(
            str(script), json.dumps(target.markers()), "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
            "--implementation", "cp", "--python-version", version, *abis, *platforms, "--dest", str(folder), *requirements,
        )  # fmt: skip


def _python_with_pip(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a Python that can import pip; raises UnavailableError if there is neither pip nor uv."""
    command = [sys.executable]
    if find_spec("pip") is None:
        uv = shutil.which("uv")
        if uv is None:
            raise UnavailableError("building a release needs pip or uv: `python3 -m ensurepip`, or install uv")
        command = [uv, "run", "--quiet", "--no-project", "--with", "pip", "python"]
    environment = {**os.environ, **variables}
    try:
        return subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"cannot run pip ({error}): check the installation of {command[0]!r}") from error


def _reason(completed: "subprocess.CompletedProcess[bytes]") -> str:
    lines = [line.strip() for line in completed.stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ") and "Ignored the following" not in line]
    return (errors or lines or [f"pip ended with status {completed.returncode}"])[0][:500]
