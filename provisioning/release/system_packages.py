"""Debian packages and hooks of a release: they fit the target, and what they depend on comes with them.

A board installs a release with no network, so a dependency that neither the board's system nor the release has fails there at each boot. It
is found here: apt resolves the packages against a system such as the board's, without starting it, and fetches what that system lacks.
"""

import contextlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.doctor import setups
from edgemeter.provisioning.release.additions import AddedFile
from edgemeter.provisioning.release.boards import ReleaseTarget
from edgemeter.provisioning.release.install import DEPENDENCY

LIBEDGETPU = "libedgetpu1-"
APT_S = 600
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*\.(?:deb|sh)")
_INTERPRETERS = {"ai-edge-litert", "tflite-runtime"}
STATUS = "var/lib/dpkg/status"
# What apt reads of a system: what is installed, where packages come from, and the keys that sign them.
_OF_APT = (STATUS, "etc/apt/sources.list", "etc/apt/sources.list.d/", "etc/apt/trusted.gpg.d/", "etc/apt/keyrings/", "usr/share/keyrings/")
_SIGNED_BY = re.compile(r"(signed-by\s*[=:]\s*)/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """A Debian package of a release, by its own control file."""

    path: Path
    name: str
    version: str
    architecture: str
    depends: str


def add_packages(packages: Sequence[AddedFile], target: ReleaseTarget, folder: Path, root: Path | None) -> tuple[DebianPackage, ...]:
    """Copy Debian packages with their dependencies, and hooks, into the folder of a release; return the packages.

    `root` is a system such as the board's, a folder or tar; the files of dpkg and apt in it are enough.

    Raises:
        ConfigError: one does not fit the target or is not what its hash says, or a dependency is neither in the system nor to be had.
        UnavailableError: dpkg-deb or apt-get is missing, or a source of packages cannot be reached.
    """
    copies = [_copy(package, folder / "packages") for package in packages]
    debian = tuple(_described(path, target) for path in copies if path.suffix == ".deb")
    if any(package.depends for package in debian):
        _add_dependencies(debian, target, folder / "packages", root)
    return debian


def interpreter_for(packages: Sequence[DebianPackage], projects: Sequence[str]) -> str | None:
    """Return the interpreter's requirement for the release's libedgetpu, as unlike pairs crash; raises ConfigError if it has no known one.

    None if there is no libedgetpu, or the user chose the interpreter's wheel.
    """
    library = next((package for package in packages if package.name.startswith(LIBEDGETPU)), None)
    if library is None or {project.replace("_", "-") for project in projects} & _INTERPRETERS:
        return None
    pair = setups.interpreter_of(library.version)
    if pair is None:
        pairs = ", ".join(f"{version} with {interpreter}" for version, interpreter in setups.interpreters().items())
        raise ConfigError(
            f"no interpreter is known to belong to {library.name} {library.version}, and pairs that do not match crash: "
            f"take a known pair ({pairs}), or give the interpreter's wheel too (--wheel ai-edge-litert==VERSION)"
        )
    return pair


def _copy(package: AddedFile, folder: Path) -> Path:
    if package.is_remote or package.is_requirement:
        raise ConfigError(f"{package.place!r} is not fetched: download it, check it, and give the file")
    if not _FILE_NAME.fullmatch(package.name) or package.name.startswith(DEPENDENCY):
        raise ConfigError(f"{package.name!r} is neither a Debian package (.deb) nor a hook (.sh) with letters, digits and ._+- in its name")
    source = package.local()
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(source, folder / package.name))


def _described(path: Path, target: ReleaseTarget) -> DebianPackage:
    try:
        control = subprocess.run(["dpkg-deb", "--field", path], capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"cannot read {path.name}: dpkg-deb: {error}: install dpkg (package dpkg) on this machine") from error
    if control.returncode != 0:
        raise ConfigError(f"{path.name} is not a Debian package: {control.stderr.strip().splitlines()[-1][:200]}: download it again")
    unfolded = control.stdout.replace("\n ", " ")
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in unfolded.splitlines())}
    if fields.get("Architecture") not in {"all", _ARCHITECTURES[target.arch]}:
        raise ConfigError(f"{path.name} is for {fields.get('Architecture')}: {target.words} needs one for {_ARCHITECTURES[target.arch]}")
    depends = ", ".join(fields[name] for name in ("Pre-Depends", "Depends") if fields.get(name))
    return DebianPackage(path, fields.get("Package", ""), fields.get("Version", ""), fields["Architecture"], depends)


def _add_dependencies(packages: Sequence[DebianPackage], target: ReleaseTarget, folder: Path, root: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="edgemeter-apt-") as scratch:
        state = Path(scratch)
        _read_system(root, state / "system")
        status = state / "system" / STATUS
        if not status.is_file():
            named = "; ".join(f"{package.path.name} depends on {package.depends}" for package in packages if package.depends)
            where = "nothing says" if root is None else f"{str(root)!r} does not say"
            raise ConfigError(
                f"{named}, and {where} which of these the board has: give --root FILE.tar, made by "
                "`ssh BOARD tar -cf - /var/lib/dpkg/status /etc/apt /usr/share/keyrings > FILE.tar`"
            )
        _check_system(status, target, root)
        for lists in ("lists/partial", "archives/partial"):
            (state / lists).mkdir(parents=True)
        if any((state / "system/etc/apt").rglob("sources.list*")):
            _apt(state, target, "update")
        _apt(state, target, "install", *(str(package.path) for package in packages))
        for fetched in (state / "archives").glob("*.deb"):
            # An epoch's colon (%3a) and a tilde are in no file's name of a release.
            shutil.move(fetched, folder / re.sub(r"%3a|[^A-Za-z0-9._+-]", ".", f"{DEPENDENCY}{fetched.name}"))


def _read_system(root: Path | None, folder: Path) -> None:
    """Copy what apt reads of the system into `folder`; its keys are named where they lie then."""
    if root is None:
        return
    try:
        if root.is_dir():
            for name in _OF_APT:
                source = root / name
                if source.is_dir():
                    shutil.copytree(source, folder / name, ignore_dangling_symlinks=True)
                elif source.is_file():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, folder / name)
        else:
            with tarfile.open(root) as tar:
                members = [member for member in tar if member.name.removeprefix("./").startswith(_OF_APT)]
                tar.extractall(folder, members, filter=_inside)  # noqa: S202 - filtered
        for sources in (folder / "etc/apt").rglob("*"):
            if sources.suffix in {".list", ".sources"}:
                # Packages of a local mirror are used in its place by apt unless it copies them.
                sources.write_text(_SIGNED_BY.sub(rf"\g<1>{folder}/", sources.read_text()).replace("file:/", "copy:/"))
    except (OSError, tarfile.TarError) as error:
        raise ConfigError(f"cannot read the system {str(root)!r}: {error}: make it again") from error


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Leave out links that lead out of the system: no key or source that apt needs is one."""
    with contextlib.suppress(tarfile.FilterError):
        return tarfile.data_filter(member, folder)
    return None


def _check_system(status: Path, target: ReleaseTarget, root: Path | None) -> None:
    """Refuse a system with another C library than the target's: its packages are others."""
    glibc = re.search(r"^Package: libc6\n(?:.+\n)*?Version: (\d+\.\d+)", status.read_text(errors="replace"), re.MULTILINE)
    if glibc is not None and glibc[1] != target.glibc_text:
        raise ConfigError(f"{str(root)!r} is a system with glibc {glibc[1]}, not {target.words}: give --root of a board's own system")


def _apt(state: Path, target: ReleaseTarget, verb: str, *packages: str) -> None:
    system, architecture = state / "system", _ARCHITECTURES[target.arch]
    settings = {
        "APT::Architecture": architecture, "APT::Architectures": architecture, "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any", "Acquire::Languages": "none", "Debug::NoLocking": "1",
        "Dir::State": state, "Dir::State::lists": state / "lists", "Dir::State::status": system / STATUS, "Dir::Cache": state,
        "Dir::Cache::archives": state / "archives", "Dir::Etc": system / "etc/apt",
    }  # fmt: skip
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    fixed = ["--no-install-recommends", "--no-remove", "--download-only"] if verb == "install" else []
    command = ["apt-get", "-q", "-y", *options, *fixed, verb, *packages]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=APT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"cannot resolve what the packages depend on: apt-get: {error}: build on a system with apt") from error
    lines = [" ".join(line.split()) for line in (completed.stdout + completed.stderr).splitlines()]
    if completed.returncode == 0:
        return
    if verb == "update":
        errors = [line for line in lines if line.startswith("E: ")]
        raise UnavailableError(f"cannot read the sources of packages of --root: {(errors or lines or ['apt-get failed'])[0][:300]}")
    unmet = [line for line in lines if "Depends:" in line] or [line for line in lines if line.startswith("E: ")]
    raise ConfigError(
        f"the board could not install the packages: {'; '.join(unmet)[:500]}: add what is missing (--package FILE.deb), "
        "or the board's /etc/apt to --root, from which apt fetches it"
    )
