"""Edge TPU: TensorFlow Lite models compiled for a Coral (`*_edgetpu.tflite`).

- Library: `pip install 'edgemeter[coral]'` and [a libedgetpu that fits it](../install.md).
- Backend: `usb`, `pci`, `usb:N`, `pci:N` or `:N`. Default: any Edge TPU. The record adds the clock:
  `usb:0,std`.
- Setting: `performance` is the clock of a USB Coral: `low`, `medium`, `high` or `max`. With the std
  library, `max` means `high`.
- Timed: `invoke`.

Tested with: ai-edge-litert 2.3.0 and a delegate library that the test compiles. A model without a
compiled operator is refused. The record has the version and package of libedgetpu, the device, and
how many operators run on the Edge TPU and on the CPU. A compiled operator stands for many of the
original model. `invoke` returns when the results are in memory.
"""

import ctypes
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line
from edgemeter.agent.machine.attached import edge_tpus
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.runtimes import Loaded, Options
from edgemeter.agent.runtimes.adapter import check_options, chosen_setting, load_library
from edgemeter.agent.runtimes.litert import CANDIDATES, EDGE_TPU, LiteRt, open_interpreter
from edgemeter.agent.runtimes.tflite_file import read_tflite

EdgeTpuClock = Literal["std", "max"]

_PACKAGES: dict[str, EdgeTpuClock] = {"libedgetpu1-std": "std", "libedgetpu1-max": "max"}
# Texts in builds for each clock.
_TEXTS: dict[bytes, EdgeTpuClock] = {
    b"EdgeTpu is throttled.": "std",
    b"Performance expectation: ": "max",
}
_ENTRY = "tflite_plugin_create_delegate"
SHARED_LIBRARY = "libedgetpu.so.1"
_DEVICE = re.compile(r"(usb|pci)?(:\d{1,2})?")
_PERFORMANCES = ("low", "medium", "high", "max")


@dataclass(frozen=True, slots=True)
class EdgeTpuLibrary:
    """The loaded library.

    `clock` is None if it is unknown, `package` if no Debian package holds the file.
    """

    clock: EdgeTpuClock | None
    package: str | None
    version: str | None


def load_edgetpu_library(name: str, root: Path) -> EdgeTpuLibrary:
    """Load the library into this process and return its description.

    `root` is the folder that holds var/lib/dpkg.

    Raises:
        UnavailableError: it is not installed, cannot be loaded, or is not an Edge TPU library.
    """
    try:
        handle = ctypes.CDLL(name)
    except OSError as error:
        raise UnavailableError(
            f"{name} cannot be loaded: {one_line(error)}; install Coral's package "
            "libedgetpu1-std, or libedgetpu1-max for the full clock: "
            "`edgemeter doctor` shows which one and how"
        ) from error
    if not hasattr(handle, _ENTRY):
        raise UnavailableError(
            f"{name} is not an Edge TPU library: it lacks {_ENTRY}; install Coral's package "
            "libedgetpu1-std"
        )
    version = None
    if hasattr(handle, "edgetpu_version"):
        handle.edgetpu_version.restype = ctypes.c_char_p
        version = (handle.edgetpu_version() or b"").decode(errors="replace") or None
    # The memory map of this process shows which file the loader took; links are followed.
    stem, maps = (
        Path(name).name.partition(".so")[0],
        Path("/proc/self/maps").read_text(errors="replace").splitlines(),
    )
    paths = [
        Path("/") / line.partition("/")[2]
        for line in maps
        if Path(line.partition("/")[2]).name.startswith(f"{stem}.so")
    ]
    package = _package(paths[0], Machine(root)) if paths else None
    clock = _PACKAGES[package] if package else _clock(paths[0]) if paths else None
    return EdgeTpuLibrary(clock, _with_version(package, Machine(root)), version)


def _package(path: Path, machine: Machine) -> str | None:
    for name in _PACKAGES:
        for listing in machine.find(f"var/lib/dpkg/info/{name}*.list"):
            if any(
                Path(line).name == path.name and Path(line).resolve() == path
                for line in (machine.text(listing) or "").splitlines()
            ):
                return name
    return None


def _with_version(package: str | None, machine: Machine) -> str | None:
    for stanza in (machine.text("var/lib/dpkg/status") or "").split("\n\n"):
        fields = dict(
            line.partition(": ")[::2] for line in stanza.splitlines() if not line.startswith(" ")
        )
        if package and fields.get("Package") == package and "Version" in fields:
            return f"{package} {fields['Version']}"
    return package


def _clock(path: Path) -> EdgeTpuClock | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return next((clock for text, clock in _TEXTS.items() if text in content), None)


class EdgeTpu(LiteRt):
    """Runs a compiled .tflite model on an Edge TPU.

    Operators that were not compiled run on the CPU, in `threads` threads.
    """

    def __init__(self, root: Path = Path("/"), shared_library: str | None = None) -> None:
        super().__init__()
        self._root = root
        self._shared_library = shared_library or SHARED_LIBRARY

    def check(self, model: Path, options: Options) -> None:
        check_options("edgetpu", options, extra=("performance",))
        chosen_setting("edgetpu", options, "performance", _PERFORMANCES)
        if not _DEVICE.fullmatch(options.backend or "") or options.backend == "":
            raise ConfigError(
                f"runtime 'edgetpu' has no backend {options.backend!r}: choose usb, pci, usb:N, "
                "pci:N or :N, or none for any Edge TPU"
            )
        if EDGE_TPU not in read_tflite(model).custom_uses:
            raise ConfigError(
                f"{str(model)!r} has no operator for the Edge TPU (custom op {EDGE_TPU}): "
                "compile it with edgetpu_compiler, "
                "or run it with the runtime litert"
            )

    def load(self, model: Path, options: Options) -> Loaded:
        self.check(model, options)
        library, plugged = load_library(CANDIDATES, "coral"), edge_tpus(Machine(self._root))
        device, performance = options.backend or "", options.extra.get("performance")
        if performance:
            # libedgetpu reads its other options only where the device carries a number.
            device = device if ":" in device else f"{device}:0"
        started_ns = time.monotonic_ns()
        driver = load_edgetpu_library(self._shared_library, self._root)
        try:
            settings = {"device": device} | (
                {"Performance": performance.capitalize()} if performance else {}
            )
            delegate = library.module.load_delegate(
                self._shared_library, settings if device else {}
            )
        except (ValueError, OSError) as error:
            attached = (
                f"this machine shows {'; '.join(plugged)}"
                if plugged
                else "this machine shows none on USB or PCIe"
            )
            do = (
                "end what else uses it, or join the group plugdev (USB) or apex (PCIe)"
                if plugged
                else "plug one in"
            )
            which = f" as {device!r}" if device else ""
            raise UnavailableError(
                f"{self._shared_library} opened no Edge TPU{which}: {attached}; {do}"
            ) from error
        try:
            interpreter = open_interpreter(
                library, options.threads, model_path=str(model), experimental_delegates=[delegate]
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                f"{library.package} {library.version} with libedgetpu "
                f"{driver.package or driver.version or 'of unknown version'} "
                f"cannot run {str(model)!r}: {one_line(error)}; install the libedgetpu that "
                "belongs to this interpreter, "
                "or compile the model for an older one (edgetpu_compiler --min_runtime_version)"
            ) from error
        load_ns, file = time.monotonic_ns() - started_ns, read_tflite(model)
        # The requested device, or else its kind if only one kind is plugged in.
        kinds = {"usb" if " USB " in name else "pci" for name in plugged}
        kind = kinds.pop() if len(kinds) == 1 else "any"
        opened = (
            f"{kind}{options.backend}"
            if (options.backend or "").startswith(":") and kind != "any"
            else options.backend or kind
        )
        clock = "max" if opened.startswith("pci") else driver.clock
        facts = {
            "edgetpu_operators": str(file.custom_uses[EDGE_TPU]),
            "cpu_operators": str(
                file.builtin_uses + sum(file.custom_uses.values()) - file.custom_uses[EDGE_TPU]
            ),
            "edgetpu_clock": clock,
            "libedgetpu": driver.version,
            "libedgetpu_package": driver.package,
            "accelerators": "; ".join(plugged),
        }

        return self._take(
            interpreter,
            file,
            library,
            ",".join(filter(None, (opened, clock, performance))),
            load_ns,
            {name: text for name, text in facts.items() if text},
        )
