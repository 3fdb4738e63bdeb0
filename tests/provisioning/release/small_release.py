"""A small real release for this machine: click, msgspec and pip as installed here, and a stand-in for edgemeter's own wheel."""

import platform
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

from edgemeter.provisioning.release import build, install, manifest, wheels
from edgemeter.provisioning.release.boards import ReleaseTarget
from tests.fixtures.pip_wheel import compiled_pip

COMMAND = """import sys
import click, msgspec
def main():
    sys.stdout.write(msgspec.json.encode("edgemeter, version {version}").decode() + "\\n")
"""


def openssl(*arguments):
    """Run openssl."""
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def keys(folder: Path) -> tuple[Path, Path]:
    """Return a new release key and its public half."""
    key, public = folder / "release.key", folder / "release.pub"
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    openssl("pkey", "-in", key, "-pubout", "-out", public)
    return key, public


def install_command(release: Path, root: Path, public: Path, *options: str) -> list[str]:
    """Return the command by which a device installs a release."""
    return [*map(str, (sys.executable, "-I", install.__file__, "--release", release, "--root", root, "--public-key", public, *options))]


def dead_wheel(folder: Path) -> Path:
    """Write a wheel with an extension module that dies of an illegal instruction when it is imported; needs gcc."""
    source, library = folder / "dead.c", folder / "dead.so"
    source.write_text("void *PyInit_dead(void) { __builtin_trap(); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    wheel = write_wheel(folder, "dead", "1.0", files={"dead_too.py": ""})
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.write(library, "dead.so")
    return wheel


def write_wheel(
    folder: Path, name: str, version: str, needs: tuple[str, ...] = (), files: dict[str, str] | None = None, **told: str
) -> Path:
    """Write a wheel of pure Python; `told` are further lines of its METADATA, with `_` for `-`."""
    info = f"{name}-{version}.dist-info"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"{key.replace('_', '-')}: {text}" for key, text in told.items()),
    ]
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in (files or {f"{name}.py": ""}).items():
            archive.writestr(file.replace("INFO", info), content)
        archive.writestr(f"{info}/METADATA", "\n".join([*lines, *(f"Requires-Dist: {need}" for need in needs)]) + "\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def edgemeter_wheel(folder: Path, version: str) -> Path:
    """Write a stand-in for edgemeter's wheel, whose command needs a native package."""
    files = {
        "edgemeter/standin.py": COMMAND.replace("{version}", version),
        "INFO/entry_points.txt": "[console_scripts]\nedgemeter = edgemeter.standin:main\n",
    }
    return write_wheel(folder, "edgemeter", version, ("click", "msgspec"), files)


@cache
def _packed(folder: Path) -> Path:
    folder.mkdir()
    for name in ("click", "msgspec"):
        wheels.repack_wheel(name, folder)
    shutil.copy2(compiled_pip(), folder)
    return folder


def this_target() -> ReleaseTarget:
    """Return this machine as a target."""
    _, _, minor = platform.libc_ver()[1].partition(".")
    return ReleaseTarget("pc", platform.machine(), sys.version_info[:2], (2, int(minor)))


def make(folder: Path, version: str, key: Path, packed: Path) -> Path:
    """Return the folder of a signed release of that version; `packed` holds the wheels that all of a test session share."""
    release = folder / f"release-{version}"
    (release / "wheels").mkdir(parents=True)
    for wheel in _packed(packed).iterdir():
        (release / "wheels" / wheel.name).hardlink_to(wheel)
    edgemeter_wheel(release / "wheels", version)
    build.add_scripts(release)
    build.seal_release(build.ReleaseRequest(this_target(), (), key), release, "unchecked: a test", version)
    return release


def tar(release: Path) -> Path:
    """Return the release packed."""
    path = release.with_suffix(".tar")
    manifest.pack_release(release, path)
    return path
