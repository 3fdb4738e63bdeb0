"""Import every native package of a release as its board would: under qemu-user as the board's core, or on this machine if it fits.

This finds wheels with instructions that the board lacks. It needs no rights and changes nothing: in a user namespace of its own, with an
arm64 system in a folder as its root, `qemu-aarch64-static` runs that system's Python. /proc/cpuinfo and /sys show four of the board's
cores, because onnxruntime reads them: 1.31.1 crashes on this machine's, 1.21.0 without any.
"""

import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.machine.board import CPU_PARTS
from edgemeter.provisioning.release import install

QEMU = "qemu-aarch64-static"
ROOT_VARIABLE = "EDGEMETER_ARM64"
IMPORT_S = 900
ENTER = Path(__file__).with_name("enter_root.sh")
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "--", "sh", "-eu", str(ENTER))


@dataclass(frozen=True, slots=True)
class ImportCheck:
    """The result of importing: the imported wheels, the failed ones with the reason, or why nothing was tried."""

    how: str
    imported: tuple[str, ...] = ()
    dead: tuple[tuple[str, str], ...] = ()
    unchecked: str | None = None

    @property
    def words(self) -> str:
        """The text for the manifest."""
        if self.unchecked is not None:
            return f"unchecked: {self.unchecked}"[:500]
        return f"{len(self.imported)} native packages imported {self.how}"


@dataclass(frozen=True, slots=True)
class _Python:
    """A Python that starts by `command` and finds packages at `packages`; `how` describes it."""

    command: tuple[str, ...]
    packages: str
    how: str
    core: str = ""


class _NoneError(Exception):
    """There is no Python to try it with; the message states why."""


def check_imports(wheels: Path, arch: str, python: str, core: str | None, root: Path | None) -> ImportCheck:
    """Import every extension module of these wheels, a process a wheel; raises ConfigError if the arm64 system `root` is unreadable."""
    native = {wheel: modules for wheel in sorted(wheels.glob("*.whl")) if (modules := install.extension_modules(wheel))}
    try:
        with tempfile.TemporaryDirectory(prefix="edgemeter-smoke-") as name, _python(arch, python, core, root, Path(name)) as interpreter:
            if (why := _import(interpreter, [])) is not None:
                return ImportCheck("", unchecked=f"nothing starts {interpreter.how}: {why}")
            for wheel in wheels.glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(name)  # noqa: S202 - zipfile keeps to the folder
            failed = [(wheel.name, why) for wheel, modules in native.items() if (why := _import(interpreter, modules))]
    except _NoneError as error:
        return ImportCheck("", unchecked=str(error))
    names = tuple(wheel.name for wheel in native)
    return ImportCheck(interpreter.how, tuple(name for name in names if name not in dict(failed)), tuple(failed))


def refuse_dead(checked: ImportCheck) -> None:
    """Raise ConfigError if a package could not be imported."""
    if checked.dead:
        failed = "; ".join(f"{name} {why}" for name, why in checked.dead)
        remedy = "pin another version, or omit the extra that needs it"
        if "cannot open shared object file" in failed:
            library = f"install the library in the system named by --root or {ROOT_VARIABLE}, and on the board (--package FILE.deb)"
            remedy = f"{library}; or {remedy}"
        raise ConfigError(f"the release does not run on this board: {failed} ({checked.how}): {remedy}")


def default_root() -> Path | None:
    """Return the arm64 system below $EDGEMETER_ARM64, if there is one."""
    folder_text = os.environ.get(ROOT_VARIABLE)
    places = [Path(folder_text).expanduser() / name for name in ("root", "root.tar")] if folder_text else []
    return next((path for path in places if path.exists()), None)


@contextmanager
def _python(arch: str, python: str, core: str | None, root: Path | None, packages: Path) -> Iterator[_Python]:
    if arch == platform.machine():
        local_python = shutil.which(f"python{python}")
        if local_python is None:
            raise _NoneError(f"Python {python} is not installed here")
        yield _Python((local_python,), str(packages), f"by Python {python} on this machine ({arch})")
        return
    qemu = shutil.which(QEMU)
    if arch != "aarch64" or core is None or qemu is None:
        raise _NoneError(f"{QEMU} is not installed (package qemu-user-static)" if arch == "aarch64" else f"no {arch} here")
    if root is None:
        raise _NoneError(f"no arm64 system to import in: give --root DIR|TAR, or set {ROOT_VARIABLE}")
    with _folder(root) as folder:
        program = folder / f"usr/bin/python{python}"
        if not program.exists():
            raise _NoneError(f"the arm64 system in {str(root)!r} has no Python {python}")
        part = next(f"{part:#05x}" for (_, part), name in CPU_PARTS.items() if name.lower() == core)
        command = (*NAMESPACE, str(folder), qemu, str(packages), part, f"/usr/bin/python{python}")
        yield _Python(command, "/mnt/packages", f"under qemu-user as {core}, Python {python}", core)


@contextmanager
def _folder(root: Path) -> Iterator[Path]:
    """Yield the root as a folder; of a tar, Python and its libraries are unpacked temporarily."""
    if root.is_dir():
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="edgemeter-root-") as scratch:
        try:
            with tarfile.open(root) as tar:
                members = (
                    member for member in tar if member.name.removeprefix("./").startswith(("usr/lib/", "usr/bin/python", "lib", "etc/ld"))
                )
                tar.extractall(scratch, members=members, filter="tar")
        except (OSError, tarfile.TarError) as error:
            raise ConfigError(f"cannot read the arm64 system {str(root)!r}: {error}: make it again") from error
        yield Path(scratch)


def _import(python: _Python, modules: list[str]) -> str | None:
    environment = {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": python.packages}
    environment.update({"QEMU_CPU": python.core} if python.core else {})
    command = [*python.command, "-B", "-s", "-c", install.IMPORT, *modules]
    try:
        completed = subprocess.run(
            command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=IMPORT_S, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return f"is not imported after {IMPORT_S} s"
    except OSError as error:
        return f"cannot be tried: {error}"
    if completed.returncode == 0:
        return None
    errors = [line.strip() for line in completed.stderr.decode(errors="replace").splitlines() if line.strip()]
    return install.how_it_ended(completed.returncode) + (f": {errors[-1][:300]}" if errors else "")
