"""Additions to a release: a vendor's wheels and files, Debian packages and hooks; and the devices that it can run on then.

A board installs a release with no network, so a dependency that neither the board's system nor the release has fails there at each boot. It
is found here: apt resolves the packages against a system such as the board's, without starting it, and fetches what that system lacks.
"""

import contextlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.doctor import setups
from edgemeter.provisioning.release import install
from edgemeter.provisioning.release.boards import ReleaseTarget
from edgemeter.provisioning.release.install import DEPENDENCY

# Files by which a wheel shows what its library runs on besides the CPU.
_ACCELERATED: tuple[tuple[str, str], ...] = (
    (r"onnxruntime/capi/libonnxruntime_providers_cuda\.so", "CUDA (ONNX Runtime)"),
    (r"onnxruntime/capi/libonnxruntime_providers_tensorrt\.so", "TensorRT (ONNX Runtime)"),
    (r"torch/lib/libtorch_cuda\.so", "CUDA (PyTorch)"),
    (r"tensorrt\w*/tensorrt[^/]*\.so", "TensorRT"),
    (r"openvino/libs/libopenvino_intel_gpu_plugin\.so", "Intel GPU (OpenVINO)"),
    (r"ncnn/ncnn[^/]*\.so", "Vulkan (ncnn, if the board has a driver)"),
)
# A version and no range: what is in a release is chosen by who builds it.
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+")
# Folders that wheels bring by mistake, and nothing imports.
_BY_MISTAKE = {"tests", "test", "docs", "examples"}
LIBEDGETPU = "libedgetpu1-"
APT_S = 600
STATUS = "var/lib/dpkg/status"


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file to put into a release: a path or an https URL, and the SHA-256 that it has to have; or a wheel of the index, NAME==VERSION."""

    place: str
    sha256: str | None

    @property
    def name(self) -> str:
        """The file's name."""
        return PurePosixPath(urlsplit(self.place).path if self.is_remote else self.place).name

    @property
    def is_remote(self) -> bool:
        """Whether it has to be fetched."""
        return self.place.startswith("https://")

    @property
    def is_requirement(self) -> bool:
        """Whether the index is to choose the file."""
        return _PINNED.fullmatch(self.place) is not None

    @property
    def project(self) -> str:
        """The name of a wheel's project."""
        return self.place.partition("==")[0] if self.is_requirement else self.name.split("-")[0]

    def local(self) -> Path:
        """Return the file, verified; raises ConfigError if it does not exist, or is not what the hash says."""
        path = Path(self.place)
        if not path.is_file():
            raise ConfigError(f"there is no file {self.place!r}: give a file of this machine, or for a wheel https://...#sha256=HEX")
        if self.sha256 is not None and (actual := install.sha256(path)) != self.sha256:
            raise ConfigError(f"{self.place!r} has the SHA-256 {actual}, not {self.sha256}: fetch it again, or correct the hash")
        return path

    def requirement(self) -> str:
        """Return it as pip takes it, which verifies a fetched wheel; raises ConfigError as `local`."""
        if self.is_requirement:
            return self.place
        return f"{self.place}#sha256={self.sha256}" if self.is_remote else self.local().absolute().as_uri()


def parse_added_file(text: str) -> AddedFile:
    """Return `FILE`, `FILE#sha256=HEX`, `https://...#sha256=HEX` or `NAME==VERSION`; raises ConfigError for a wrong or missing hash."""
    location, mark, sha256 = text.partition("#sha256=")
    if mark and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ConfigError(f"{text!r} ends in no SHA-256: write {location}#sha256= and 64 hexadecimal digits")
    if re.match(r"[a-z]+://", location) and not location.startswith("https://"):
        raise ConfigError(f"{location!r} cannot be fetched safely: give a file, or https://...#sha256=HEX")
    if location.startswith("https://") and not mark:
        raise ConfigError(f"{location!r} has no hash: add #sha256= and the 64 digits that its publisher gives")
    return AddedFile(location, sha256.lower() or None)


def check_wheel_name(name: str, target: ReleaseTarget) -> None:
    """Check a wheel's name; raises ConfigError if it is none, or of a wheel for another Python or platform than the target's."""
    parts = name.removesuffix(".whl").split("-")
    if not name.endswith(".whl") or len(parts) not in {5, 6}:
        raise ConfigError(f"{name!r} is not the name of a wheel (NAME-VERSION-PYTHON-ABI-PLATFORM.whl): give it its original name")
    pythons, abis, platforms = (part.split(".") for part in parts[-3:])
    if not any(_python_fits(python, abi, target.python) for python in pythons for abi in abis):
        raise ConfigError(f"{name} is for {'.'.join(pythons)}, not for Python {target.python_text} of {target.words}: fetch the one for it")
    if not {"any", *target.platforms()} & set(platforms):
        raise ConfigError(f"{name} is for {'.'.join(platforms)}, which does not run on {target.words}: fetch the one for it")


def _python_fits(python: str, abi: str, target_version: tuple[int, int]) -> bool:
    match = re.fullmatch(r"(cp|py)(\d)(\d*)", python)
    if match is None or int(match[2]) != target_version[0]:
        return False
    minor = int(match[3] or 0)
    if match[1] == "cp" and abi in {f"cp{target_version[0]}{target_version[1]}", "none"}:
        return minor == target_version[1]
    return minor <= target_version[1] and (match[1], abi) in {("cp", "abi3"), ("py", "none")}


def refuse_clashes(wheels: Path) -> None:
    """Raise ConfigError if two wheels bring different files of one name, as onnxruntime and onnxruntime_gpu do: the last one would win."""
    contents = {wheel.name: _modules(wheel) for wheel in sorted(wheels.glob("*.whl"))}
    for (first, first_files), (second, other) in combinations(contents.items(), 2):
        clash = next((path for path in sorted(first_files.keys() & other.keys()) if first_files[path] != other[path]), None)
        if clash is not None:
            raise ConfigError(f"{first} and {second} both bring {clash}: omit the extra or the --wheel that needs one of them")


def _modules(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        parts = ((member, PurePosixPath(member.filename)) for member in archive.infolist())
        return {member.filename: member.CRC for member, path in parts if path.suffix in {".py", ".so"} and path.parts[0] not in _BY_MISTAKE}


def accelerators(folder: Path) -> tuple[str, ...]:
    """Return what the runtimes in the folder of a release use besides the CPU, as their files show it."""
    names = [name for wheel in sorted(folder.glob("wheels/*.whl")) for name in zipfile.ZipFile(wheel).namelist()]
    accelerator_names = [words for pattern, words in _ACCELERATED if any(re.fullmatch(pattern, name) for name in names)]
    if any(path.name.startswith("libedgetpu1-") for path in folder.glob("packages/*.deb")):
        accelerator_names.append("Edge TPU (LiteRT with libedgetpu)")
    return tuple(accelerator_names)


_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*\.(?:deb|sh)")
_INTERPRETERS = {"ai-edge-litert", "tflite-runtime"}
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
