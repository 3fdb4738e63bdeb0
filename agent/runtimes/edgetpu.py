"""Edge TPU: TensorFlow Lite models compiled for it (`*_edgetpu.tflite`), by Coral's libedgetpu as a delegate of LiteRT.

Library: `pip install 'edgemeter[coral]'` and Coral's package libedgetpu1-std or libedgetpu1-max. Where Google's own `pycoral` is (it is not
the `pycoral` of PyPI), its delegate and the tflite-runtime that belongs to it are taken, else ai-edge-litert, else tflite-runtime.
libedgetpu has to fit the interpreter: version 16.0 of 2021 belongs to tflite-runtime 2.5 and fails in new ones, at the first inference.
Backend: `usb`, `pci`, `usb:N`, `pci:N` or `:N`; any Edge TPU when none is given. The record names it with its clock: `usb:0,std`.
Setting: `performance` is `low`, `medium`, `high` or `max`: the clock of a USB Coral; the std library makes `high` of `max`.
Recorded: clock, version and package of libedgetpu, what is plugged in (a USB Coral is 1a6e:089a until its first inference, which loads its
firmware, then 18d1:9302), and how many operators of the file run on the Edge TPU and how many on the CPU. One
stands for many before compilation.
What is timed is `Interpreter.invoke`, which returns when the results are in memory. A model without compiled operators is refused.
Tested with ai-edge-litert 2.3.0 and a delegate library that the test compiles; not run on a Coral here.
"""

import ctypes
import logging
import re
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line
from edgemeter.agent.machine.attached import edge_tpus
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.runtimes import Loaded, Options, tflite_file
from edgemeter.agent.runtimes.adapter import LibraryCandidate, RuntimeLibrary, check_options, chosen_setting, load_library
from edgemeter.agent.runtimes.litert import CANDIDATES, EDGE_TPU, LiteRt, open_interpreter
from edgemeter.agent.runtimes.tflite_file import TfliteFile

EdgeTpuClock = Literal["std", "max"]

_PACKAGES: dict[str, EdgeTpuClock] = {"libedgetpu1-std": "std", "libedgetpu1-max": "max"}
_FOLDERS: dict[str, EdgeTpuClock] = {"throttled": "std", "direct": "max"}
_THROTTLED = b"EdgeTpu is throttled."
# A build with its log texts holds this one at either clock; without it, the absence of the other proves nothing.
_LOGS = b"Performance expectation: "
_ENTRY = "tflite_plugin_create_delegate"
logger = logging.getLogger(__name__)
SHARED_LIBRARY = "libedgetpu.so.1"
_DEVICE = re.compile(r"(usb|pci)?(:\d{1,2})?")
_PERFORMANCES = ("low", "medium", "high", "max")
_PYCORAL = LibraryCandidate("pycoral.utils.edgetpu", ("pycoral",))


@dataclass(frozen=True, slots=True)
class EdgeTpuLibrary:
    """The loaded library. `clock` is None if it is unknown, `package` if no Debian package holds the file."""

    clock: EdgeTpuClock | None
    package: str | None
    version: str | None


def load_edgetpu_library(name: str, root: Path) -> EdgeTpuLibrary:
    """Load the library into this process and return its description; `root` is the folder that holds var/lib/dpkg.

    Raises:
        UnavailableError: it is not installed, cannot be loaded, or is not an Edge TPU library.
    """
    try:
        handle = ctypes.CDLL(name)
    except OSError as error:
        raise UnavailableError(
            f"{name} cannot be loaded: {one_line(error)}; install Coral's package libedgetpu1-std, or libedgetpu1-max for the full clock: "
            "`edgemeter doctor` shows which one and how"
        ) from error
    if not hasattr(handle, _ENTRY):
        raise UnavailableError(f"{name} is not an Edge TPU library: it lacks {_ENTRY}; install Coral's package libedgetpu1-std")
    path = _path(name)
    package = _package(path, root) if path else None
    return EdgeTpuLibrary(_clock(path, package), _with_version(package, root), _version(handle))


def _version(handle: ctypes.CDLL) -> str | None:
    """Return the build as the library reports it, such as `BuildLabel(N/A), RuntimeVersion(14)`."""
    if not hasattr(handle, "edgetpu_version"):
        return None
    handle.edgetpu_version.restype = ctypes.c_char_p
    build = handle.edgetpu_version()
    return build.decode(errors="replace") if build else None


def _path(name: str) -> Path | None:
    """Return the file that the loader took, links followed; only the process's own memory map shows which of several it is."""
    stem = Path(name).name.partition(".so")[0]
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        mapped = line.partition("/")[2]
        if Path(mapped).name.startswith(f"{stem}.so"):
            return Path("/") / mapped
    return None


def _package(path: Path, root: Path) -> str | None:
    for name in _PACKAGES:
        for listing in sorted((root / "var/lib/dpkg/info").glob(f"{name}*.list")):
            if any(Path(line).name == path.name and Path(line).resolve() == path for line in _text(listing).splitlines()):
                return name
    return None


def _with_version(package: str | None, root: Path) -> str | None:
    if package is None:
        return None
    for stanza in _text(root / "var/lib/dpkg/status").split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in stanza.splitlines() if not line.startswith(" "))
        if fields.get("Package") == package and "Version" in fields:
            return f"{package} {fields['Version']}"
    return package


def _clock(path: Path | None, package: str | None) -> EdgeTpuClock | None:
    if package is not None:
        return _PACKAGES[package]
    if path is None:
        return None
    folder = next((part for part in reversed(path.parts[:-1]) if part in _FOLDERS), None)
    if folder is not None:
        return _FOLDERS[folder]
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if _THROTTLED in content:
        return "std"
    return "max" if _LOGS in content else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


class EdgeTpu(LiteRt):
    """Runs a compiled .tflite model on an Edge TPU; what was not compiled runs on the CPU, in `threads` threads."""

    def __init__(self, root: Path = Path("/"), shared_library: str | None = None) -> None:
        super().__init__()
        self._root = root
        self._shared_library = shared_library or SHARED_LIBRARY

    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library, open the Edge TPU, load the model; see `Runtime.load`."""
        check_options("edgetpu", options, extra=("performance",))
        settings = _device_settings(options)
        file = tflite_file.read_tflite(model)
        if EDGE_TPU not in file.custom_uses:
            raise ConfigError(
                f"{str(model)!r} has no operator for the Edge TPU (custom op {EDGE_TPU}): compile it with edgetpu_compiler, "
                "or run it with the runtime litert"
            )
        google = _google_pycoral()
        library = load_library(CANDIDATES[::-1] if google else CANDIDATES, "coral")
        plugged = edge_tpus(Machine(self._root))
        started_ns = time.monotonic_ns()
        driver = load_edgetpu_library(self._shared_library, self._root)
        delegate = _delegate(google, library, self._shared_library, settings, plugged)
        interpreter = _open(model, options.threads, library, delegate, driver)
        load_ns = time.monotonic_ns() - started_ns
        device = _device(options.backend, plugged)
        clock = "max" if device.startswith("pci") else driver.clock
        backend = ",".join(filter(None, (device, clock, options.extra.get("performance"))))
        return self._take(interpreter, file, library, backend, load_ns, _facts(file, driver, clock, plugged, google))


def _device_settings(options: Options) -> dict[str, str]:
    device = options.backend or ""
    if not _DEVICE.fullmatch(device) or (options.backend is not None and not device):
        raise ConfigError(f"runtime 'edgetpu' has no backend {device!r}: choose usb, pci, usb:N, pci:N or :N, or none for any Edge TPU")
    performance = chosen_setting("edgetpu", options, "performance", _PERFORMANCES)
    if performance is None:
        return {"device": device} if device else {}
    # libedgetpu reads its other options only where the device carries a number.
    return {"device": device if ":" in device else f"{device}:0", "Performance": performance.capitalize()}


def _google_pycoral() -> RuntimeLibrary | None:
    """Return Google's pycoral where it is installed; what is only called so is not imported."""
    spec = find_spec("pycoral")
    places = (spec.submodule_search_locations or []) if spec else []
    if not any((Path(folder) / "utils" / "edgetpu.py").is_file() for folder in places):
        return None
    try:
        library = load_library((_PYCORAL,), "coral")
    except UnavailableError as error:
        logger.info("pycoral is not used: %s", error)
        return None
    is_google = all(hasattr(library.module, name) for name in ("make_interpreter", "list_edge_tpus", "load_edgetpu_delegate"))
    return library if is_google else None


def _delegate(google: RuntimeLibrary | None, library: RuntimeLibrary, name: str, settings: dict[str, str], plugged: tuple[str, ...]) -> Any:
    try:
        return google.module.load_edgetpu_delegate(settings) if google else library.module.load_delegate(name, settings)
    except (ValueError, OSError) as error:
        device = settings.get("device")
        attached = f"this machine shows {'; '.join(plugged)}" if plugged else "this machine shows none on USB or PCIe"
        do = "end what else uses it, or join the group plugdev (USB) or apex (PCIe)" if plugged else "plug one in"
        raise UnavailableError(f"{name} opened no Edge TPU{f' as {device!r}' if device else ''}: {attached}; {do}") from error


def _open(model: Path, threads: int, library: RuntimeLibrary, delegate: Any, driver: EdgeTpuLibrary) -> Any:
    try:
        return open_interpreter(model, threads, library, experimental_delegates=[delegate])
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{library.package} {library.version} with libedgetpu {driver.package or driver.version or 'of unknown version'} cannot run "
            f"{str(model)!r}: {one_line(error)}; install the libedgetpu that belongs to this interpreter, "
            "or compile the model for an older one (edgetpu_compiler --min_runtime_version)"
        ) from error


def _device(backend: str | None, plugged: tuple[str, ...]) -> str:
    """Return the device in words: what was asked for, else its kind where there is but one."""
    kinds = {"usb" if " USB " in name else "pci" for name in plugged}
    kind = kinds.pop() if len(kinds) == 1 else "any"
    return f"{kind}{backend}" if backend and backend.startswith(":") and kind != "any" else backend or kind


def _facts(
    file: TfliteFile, driver: EdgeTpuLibrary, clock: str | None, plugged: tuple[str, ...], google: RuntimeLibrary | None
) -> dict[str, str]:
    cpu = file.builtin_uses + sum(file.custom_uses.values()) - file.custom_uses[EDGE_TPU]
    facts = {
        "edgetpu_operators": str(file.custom_uses[EDGE_TPU]),
        "cpu_operators": str(cpu),
        "edgetpu_clock": clock,
        "libedgetpu": driver.version,
        "libedgetpu_package": driver.package,
        "accelerators": "; ".join(plugged),
        "pycoral": google.version if google else None,
    }
    return {name: value for name, value in facts.items() if value}
