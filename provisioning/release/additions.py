"""Additions to a release: a vendor's wheels and files; and the devices that it can run on then."""

import re
import zipfile
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import install
from edgemeter.provisioning.release.boards import ReleaseTarget

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
