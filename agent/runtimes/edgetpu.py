"""Edge TPU: TensorFlow Lite models compiled for it (`*_edgetpu.tflite`), by Coral's libedgetpu as a delegate of LiteRT.

Library: `pip install 'edgemeter[coral]'` and Coral's package libedgetpu1-std or libedgetpu1-max. Where Google's own `pycoral` is (it is not
the `pycoral` of PyPI), its delegate and the tflite-runtime that belongs to it are taken, else ai-edge-litert, else tflite-runtime.
libedgetpu has to fit the interpreter: version 16.0 of 2021 belongs to tflite-runtime 2.5 and fails in new ones, at the first inference.
Backend: `usb`, `pci`, `usb:N`, `pci:N` or `:N`; any Edge TPU when none is given. The record names it with its clock: `usb:0,std`.
Setting: `performance` is `low`, `medium`, `high` or `max`: the clock of a USB Coral; the std library makes `high` of `max`.
Recorded: clock, version and package of libedgetpu, what is plugged in (a USB Coral is 1a6e:089a until its first inference, which loads its
firmware, then 18d1:9302), and how many operators of the file run on the Edge TPU and how many on the CPU. One that was compiled
stands for many of the model before it was compiled.
What is timed is `Interpreter.invoke`, which returns when the results are in memory. A model without compiled operators is refused.
Tested with ai-edge-litert 2.3.0 and a delegate library that the test compiles; not run on a Coral here.
"""

import logging
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.machine import attached
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.runtimes import Loaded, Options, edgetpu_library, library, request, tflite_file
from edgemeter.agent.runtimes.edgetpu_library import EdgeTpuLibrary
from edgemeter.agent.runtimes.library import Candidate, Library
from edgemeter.agent.runtimes.litert import CANDIDATES, EDGE_TPU, LiteRt, Opened, open_interpreter
from edgemeter.agent.runtimes.tflite_file import TfliteFile

logger = logging.getLogger(__name__)

SHARED_LIBRARY = "libedgetpu.so.1"
_DEVICE = re.compile(r"(usb|pci)?(:\d{1,2})?")
_PERFORMANCES = ("low", "medium", "high", "max")
_PYCORAL = Candidate("pycoral.utils.edgetpu", ("pycoral",))


class EdgeTpu(LiteRt):
    """Runs a compiled .tflite model on an Edge TPU; what was not compiled runs on the CPU, in `threads` threads."""

    def __init__(self, root: Path = Path("/"), shared_library: str | None = None) -> None:
        super().__init__()
        self._root = root
        self._shared_library = shared_library or SHARED_LIBRARY

    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library, open the Edge TPU, load the model; see `Runtime.load`."""
        request.check_options("edgetpu", options, extra=("performance",))
        settings = _device_settings(options)
        file = tflite_file.read(model)
        if EDGE_TPU not in file.custom_uses:
            message = (
                f"{str(model)!r} has no operator for the Edge TPU (custom op {EDGE_TPU}): compile it with edgetpu_compiler, "
                "or run it with the runtime litert"
            )
            raise ConfigError(message)
        google = _google_pycoral()
        found = library.load(CANDIDATES[::-1] if google else CANDIDATES, "coral")
        plugged = attached.accelerators(Machine(self._root))
        started_ns = time.monotonic_ns()
        driver = edgetpu_library.load(self._shared_library, self._root)
        delegate = _delegate(google, found, self._shared_library, settings, plugged)
        opened = _open(model, options.threads, found, delegate, driver)
        load_ns = time.monotonic_ns() - started_ns
        device = _device(options.backend, plugged)
        clock = "max" if device.startswith("pci") else driver.clock
        backend = ",".join(filter(None, (device, clock, options.extra.get("performance"))))
        return self._take(opened, file, found, backend, load_ns, _facts(file, driver, clock, plugged, google))


def _device_settings(options: Options) -> dict[str, str]:
    """Return the settings as libedgetpu takes them."""
    device = options.backend or ""
    if not _DEVICE.fullmatch(device) or (options.backend is not None and not device):
        message = f"runtime 'edgetpu' has no backend {device!r}: choose usb, pci, usb:N, pci:N or :N, or none for any Edge TPU"
        raise ConfigError(message)
    performance = options.extra.get("performance")
    if performance is None:
        return {"device": device} if device else {}
    if performance not in _PERFORMANCES:
        message = f"runtime 'edgetpu' has no performance {performance!r}: choose one of {', '.join(_PERFORMANCES)}"
        raise ConfigError(message)
    # libedgetpu reads its other options only where the device carries a number.
    return {"device": device if ":" in device else f"{device}:0", "Performance": performance.capitalize()}


def _google_pycoral() -> Library | None:
    """Return Google's pycoral where it is installed; what is only called so is not imported."""
    spec = find_spec("pycoral")
    places = (spec.submodule_search_locations or []) if spec else []
    if not any((Path(place) / "utils" / "edgetpu.py").is_file() for place in places):
        return None
    try:
        found = library.load((_PYCORAL,), "coral")
    except UnavailableError as error:
        logger.info("pycoral is not used: %s", error)
        return None
    is_google = all(hasattr(found.module, name) for name in ("make_interpreter", "list_edge_tpus", "load_edgetpu_delegate"))
    return found if is_google else None


def _delegate(google: Library | None, found: Library, name: str, settings: dict[str, str], plugged: tuple[str, ...]) -> Any:
    """Return the delegate that has opened the Edge TPU."""
    try:
        return google.module.load_edgetpu_delegate(settings) if google else found.module.load_delegate(name, settings)
    except (ValueError, OSError) as error:
        device = settings.get("device")
        seen = f"this machine shows {'; '.join(plugged)}" if plugged else "this machine shows none on USB or PCIe"
        do = "end what else uses it, or join the group plugdev (USB) or apex (PCIe)" if plugged else "plug one in"
        message = f"{name} opened no Edge TPU{f' as {device!r}' if device else ''}: {seen}; {do}"
        raise UnavailableError(message) from error


def _open(model: Path, threads: int, found: Library, delegate: Any, driver: EdgeTpuLibrary) -> Opened:
    try:
        return open_interpreter(model, threads, found, experimental_delegates=[delegate])
    except (ValueError, RuntimeError) as error:
        message = (
            f"{found.package} {found.version} with libedgetpu {driver.package or driver.version or 'of unknown version'} cannot run "
            f"{str(model)!r}: {library.one_line(error)}; install the libedgetpu that belongs to this interpreter, "
            "or compile the model for an older one (edgetpu_compiler --min_runtime_version)"
        )
        raise ConfigError(message) from error


def _device(asked: str | None, plugged: tuple[str, ...]) -> str:
    """Return the device in words: what was asked for, else its kind where there is but one."""
    kinds = {"usb" if " USB " in name else "pci" for name in plugged}
    kind = kinds.pop() if len(kinds) == 1 else "any"
    return f"{kind}{asked}" if asked and asked.startswith(":") and kind != "any" else asked or kind


def _facts(file: TfliteFile, driver: EdgeTpuLibrary, clock: str | None, plugged: tuple[str, ...], google: Library | None) -> dict[str, str]:
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
