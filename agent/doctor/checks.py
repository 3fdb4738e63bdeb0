"""Checks of machine and software for `edgemeter doctor`.

The machine is the board, system, clocks, heat and supply; the software is Python, runtimes and
libraries.
"""

import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.plugins import install_command, registered_in
from edgemeter.agent.base.untried import untried_part
from edgemeter.agent.doctor import setups
from edgemeter.agent.machine import board, clock, fingerprint, temperatures, throttling
from edgemeter.agent.machine.attached import accelerators, edge_tpus, is_on_usb_2
from edgemeter.agent.machine.fingerprint import version
from edgemeter.agent.machine.load import read_memory
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.sandbox.bubblewrap import no_sandbox
from edgemeter.agent.verdict.environment_rules import environment_notes
from edgemeter.agent.verdict.words import remedy_of, sentence_of

# bad: nothing can be measured or delivered; warn: figures suffer; absent: optional and not present.
FindingState = Literal["ok", "warn", "bad", "absent"]


class Finding(msgspec.Struct, frozen=True):
    """The result of one check; `remedy` is null if nothing has to be done."""

    area: Literal["machine", "software", "power", "delivery"]
    name: str
    state: FindingState
    what: str
    remedy: str | None = None


_machine = partial(Finding, "machine")
_software = partial(Finding, "software")
# Checks that correspond to rules of the verdict on the machine.
_NOTED = {
    "shared-machine": "virtualisation",
    "swap-in-use": "swap",
    "clock-unknown": "wall clock",
    "governor": "governor",
}
# Boards throttle from 80 C on (Raspberry Pi: soft limit 60 to 80 C by model).
HOT_C = 75.0
LITTLE_MEMORY_MB = 300.0
BUSY_RATIO = 0.25  # Share of the cores; above it runs are disturbed.


def check_machine(machine: Machine) -> Iterator[Finding]:
    notes = {
        note.rule: _machine(_NOTED[note.rule], "warn", sentence_of(note), remedy_of(note))
        for note in environment_notes(machine)
    }
    yield from _identity(machine, notes)
    yield _system(machine)
    yield from _memory(machine, notes)
    yield _clock(machine, notes)
    yield from _speed(machine, notes)
    yield from _heat(machine)
    yield from _supply(machine)
    for accelerator in accelerators(machine):
        if is_on_usb_2(accelerator):
            yield _machine(
                "accelerator",
                "warn",
                f"{accelerator}: slow over USB 2",
                "plug it into a USB 3 port (blue), with a USB 3 cable",
            )
        else:
            yield _machine("accelerator", "ok", accelerator)


def _identity(machine: Machine, notes: Mapping[str, Finding]) -> Iterator[Finding]:
    model, soc = board.model(machine), board.soc(machine)
    if model:
        yield _machine("board", "ok", f"{model} ({soc})" if soc else model)
    else:
        yield _machine("board", "absent", "unknown: it reports no model name")
    cores = board.cores(machine)
    yield _machine(
        "processor",
        "ok",
        f"{board.cpu(machine) or machine.arch}, {cores or 'an unknown number of'} cores",
    )
    if "shared-machine" in notes:
        yield notes["shared-machine"]
    # Source: proc_loadavg(5): the first number is the tasks that ran or waited, averaged over a
    # minute.
    load = re.match(r"\d+\.\d+", machine.line("proc/loadavg") or "")
    if cores and load and float(load[0]) > BUSY_RATIO * cores:
        yield _machine(
            "load",
            "warn",
            f"other processes are busy: load {load[0]} on {cores} cores in the last minute",
            "close them, or wait until they end",
        )


def _system(machine: Machine) -> Finding:
    named = (
        f"{fingerprint.operating_system(machine) or 'unknown system'}, kernel "
        f"{machine.line('proc/sys/kernel/osrelease') or 'unknown'}"
    )
    if fingerprint.is_32_bit() or machine.arch.startswith(("armv6", "armv7")):
        return _machine(
            "system",
            "warn",
            f"{named}, 32-bit: the runtimes publish no wheels for it",
            "install the 64-bit system",
        )
    return _machine("system", "ok", f"{named}, {machine.arch}")


def _memory(machine: Machine, notes: Mapping[str, Finding]) -> Iterator[Finding]:
    memory = read_memory(machine)
    unknown = "unknown: the kernel does not report it"
    if memory.total_mb is None or memory.available_mb is None:
        yield _machine("memory", "absent", unknown)
    else:
        is_little = memory.available_mb < LITTLE_MEMORY_MB
        yield _machine(
            "memory",
            "warn" if is_little else "ok",
            f"{memory.available_mb / 1000:.1f} GB of {memory.total_mb / 1000:.1f} GB are available",
            "close other programs, or boot without a desktop" if is_little else None,
        )
    if "swap-in-use" in notes:
        yield notes["swap-in-use"]
    elif memory.swap_total_mb:
        yield _machine("swap", "ok", f"{memory.swap_total_mb:.0f} MB, unused")
    else:
        yield _machine("swap", "ok", unknown if memory.swap_total_mb is None else "none")


def _clock(machine: Machine, notes: Mapping[str, Finding]) -> Finding:
    state = clock.synchronised(machine)
    if state is None:
        return _machine("wall clock", "absent", "unknown whether it is synchronised")
    if state:
        return _machine("wall clock", "ok", "synchronised")
    return notes["clock-unknown"]


def _speed(machine: Machine, notes: Mapping[str, Finding]) -> Iterator[Finding]:
    governor = throttling.governor(machine)
    if governor is None:
        yield _machine("governor", "absent", "the kernel reports no CPU clock")
    elif governor == "performance":
        yield _machine("governor", "ok", "performance")
    else:
        yield notes["governor"]
    mode = board.power_mode(machine)
    if mode:
        yield _machine("power mode", "ok", mode)
    elif board.is_jetson(machine):
        yield _machine(
            "power mode",
            "absent",
            "nvpmodel does not answer",
            "check `sudo nvpmodel -q`, and run edgemeter as a user that may call it",
        )


def _heat(machine: Machine) -> Iterator[Finding]:
    temperatures_c = temperatures.read(machine)
    if not temperatures_c:
        yield _machine("temperature", "absent", "no temperature sensor can be read")
        return
    hottest = max(temperatures_c, key=lambda name: temperatures_c[name])
    is_hot = temperatures_c[hottest] >= HOT_C
    yield _machine(
        "temperature",
        "warn" if is_hot else "ok",
        f"{temperatures_c[hottest]:.0f} C at {hottest}, the hottest of {len(temperatures_c)}",
        "let it cool, or add a fan" if is_hot else None,
    )


def _supply(machine: Machine) -> Iterator[Finding]:
    state = throttling.read(machine)
    yield _flag(
        "throttling",
        state.throttled_now,
        state.throttled_since_boot,
        "the processor is throttled",
        "cool the board, then reboot to clear the flag",
    )
    if state.under_voltage_now is not None or state.under_voltage_since_boot is not None:
        yield _flag(
            "supply",
            state.under_voltage_now,
            state.under_voltage_since_boot,
            "the supply voltage is too low",
            "use the manufacturer's power supply and a short cable",
        )


def _flag(
    name: str,
    now: bool | None,  # noqa: FBT001 - three-valued
    since_boot: bool | None,  # noqa: FBT001 - three-valued
    text: str,
    remedy: str,
) -> Finding:
    if now is None and since_boot is None:
        return _machine(name, "absent", "unknown: the machine does not report it")
    if now:
        return _machine(name, "bad", f"{text} now", remedy)
    if since_boot:
        return _machine(name, "warn", f"not now, but it happened since boot: {text}", remedy)
    return _machine(name, "ok", "none")


LIBEDGETPU = "libedgetpu.so.1"
_EDGE_TPU = """
import sys; from pathlib import Path; \
from edgemeter.agent.runtimes.edgetpu import load_edgetpu_library
found = load_edgetpu_library(sys.argv[1], Path(sys.argv[2]))
sys.stdout.write(f"{found.package or 'libedgetpu'}, {found.version or 'version unknown'}, \
clock {found.clock or 'unknown'}")
"""

# A large library takes long to read from a small board's SD card.
IMPORT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class RuntimePackage:
    """A distribution, its module, the extra that installs it, and the feature that needs it."""

    distribution: str
    module: str
    extra: str
    without: str = "its models cannot run"


RUNTIMES: Mapping[str, Sequence[RuntimePackage]] = {
    "litert": (
        RuntimePackage("ai-edge-litert", "ai_edge_litert.interpreter", "litert"),
        RuntimePackage("tflite-runtime", "tflite_runtime.interpreter", "tflite"),
    ),
    "onnx": (
        RuntimePackage("onnxruntime", "onnxruntime", "onnx"),
        RuntimePackage("onnxruntime-gpu", "onnxruntime", "onnx"),
        RuntimePackage("onnxruntime-openvino", "onnxruntime", "onnx"),
    ),
    "openvino": (RuntimePackage("openvino", "openvino", "openvino"),),
    "ncnn": (RuntimePackage("ncnn", "ncnn", "ncnn"),),
    "llama": (RuntimePackage("xllamacpp", "xllamacpp", "llama"),),
    "executorch": (
        RuntimePackage("executorch", "executorch.extension.pybindings._C", "executorch"),
    ),
    "pytorch": (RuntimePackage("torch", "torch", "torch"),),
    "hailo": (RuntimePackage("hailort", "hailo_platform", "vision"),),
    "tensorrt": (
        RuntimePackage("tensorrt", "tensorrt", "tensorrt"),
        RuntimePackage("tensorrt-cu13", "tensorrt", "tensorrt"),
        RuntimePackage("tensorrt-cu12", "tensorrt", "tensorrt"),
    ),
}
# The plug-in families, as their entry point groups are named.
PLUGIN_FAMILIES = ("runtimes", "generators", "power", "decoders", "tasks", "readers")
VISION: Mapping[str, Sequence[RuntimePackage]] = {
    "images": (
        RuntimePackage("pillow", "PIL.Image", "vision", "models are timed on random inputs only"),
    ),
}


def check_software(import_timeout_s: float | None = IMPORT_TIMEOUT_S) -> Iterator[Finding]:
    """Yield the findings about the software.

    Installed libraries are imported, each in its own process, so that a broken build shows.
    """
    yield _software(
        "python",
        "ok",
        f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}",
    )
    yield _software("edgemeter", "ok", version("edgemeter") or "run from its source, not installed")
    yield _sandbox()
    installed = {
        name: next((package for package in packages if version(package.distribution)), None)
        for name, packages in {**RUNTIMES, **VISION}.items()
    }
    imports = {
        name: _begin([f"import {package.module}"]) for name, package in installed.items() if package
    }
    for name, package in installed.items():
        if package is not None:
            yield library_finding(name, package, _end(imports[name], import_timeout_s)[1])
        elif name != "tensorrt" or not board.is_jetson(Machine()):
            # A Jetson's TensorRT does not come from the package index.
            yield _absent(name)
    yield from _edge_tpu(Machine())
    yield from _gpu(Machine())
    for family in PLUGIN_FAMILIES:
        for entry in registered_in(f"edgemeter.{family}"):
            yield _software(
                entry.name, "ok", f"of another package, in edgemeter.{family}: {entry.value}"
            )
    if not any(installed[name] for name in RUNTIMES):
        yield _software(
            "runtimes",
            "bad",
            "none is installed: no model can run",
            "`pip install 'edgemeter[litert,onnx]'`",
        )


def _sandbox() -> Finding:
    gap = no_sandbox()
    if gap is None:
        return _software("sandbox", "ok", "models run under bubblewrap")
    return _software(
        "sandbox",
        "warn",
        f"none, because {gap.reason}: a model can read and change all your files, and a fleet's "
        "orders are refused unless you allow them",
        gap.remedy,
    )


def _edge_tpu(machine: Machine, shared_library: str = LIBEDGETPU) -> Iterator[Finding]:
    plugged = ", ".join(edge_tpus(machine))
    # In a separate process, which an incompatible library may crash.
    output, problem = _end(_begin([_EDGE_TPU, shared_library, str(machine.root)]))
    state: FindingState
    if problem is not None and plugged:
        words = problem.partition("UnavailableError: ")[2] or problem
        yield _software(
            "edgetpu", "bad", f"{plugged} is attached, but {words}", _set_up(machine, "Coral")
        )
    elif problem is None:
        package = output.partition(",")[0].strip()
        if problem_of_pair := _mismatch(package.partition(" ")[2]):
            state, words = problem_of_pair
            yield _software("edgetpu", state, f"{package} {words}", _set_up(machine, "Coral"))
            return
        state = "ok" if plugged else "absent"
        yield _software(
            "edgetpu",
            state,
            f"{output.strip()}: {plugged or 'no Edge TPU is attached'}{untried_part('edgetpu')}",
        )
    else:
        yield _software(
            "edgetpu", "absent", "no Edge TPU (Coral) is attached, and libedgetpu is not installed"
        )


def _mismatch(library: str) -> tuple[FindingState, str] | None:
    """Return how a version of libedgetpu does not match the installed interpreter, and why.

    None if it matches, or if one is unknown.
    """
    interpreter = next((name for name in setups.INTERPRETERS if version(name)), None)
    if not library or interpreter is None:
        return None
    installed, pair = f"{interpreter}=={version(interpreter)}", setups.interpreter_of(library)
    if pair == installed:
        return None
    if "tf" not in library:
        return "bad", f"is Google's build of 2021: it ends {installed} at the first inference"
    known_pair = f"is known with {pair}" if pair else "has no known interpreter"
    return (
        "warn",
        (
            f"{known_pair}, not with {installed}: a pair that does not match ends the process at "
            "the first inference"
        ),
    )


def _gpu(machine: Machine) -> Iterator[Finding]:
    """Yield whether a runtime here can use the GPU of a Jetson; nothing elsewhere."""
    if not board.is_jetson(machine):
        return
    runtimes = [name for name in ("tensorrt", "onnxruntime-gpu") if version(name)]
    if runtimes:
        yield _software("gpu", "ok", f"for the Jetson's GPU: {', '.join(runtimes)}")
    else:
        yield _software(
            "gpu",
            "absent",
            "no runtime here uses the Jetson's GPU: models run on the CPU",
            _set_up(machine, "Jetson GPU"),
        )


def _set_up(machine: Machine, accelerator: str) -> str:
    python = ".".join(platform.python_version_tuple()[:2])
    model, system = board.model(machine), fingerprint.operating_system(machine)
    fitting = [
        setup
        for setup in setups.all_setups()
        if setup.accelerator == accelerator and setup.fits(model, system, machine.arch, python)
    ]
    setup = next((setup for setup in fitting if setup.install), None)
    if setup is None:
        return next(
            (setup.note for setup in fitting if setup.note),
            f"no set-up is known for this system with Python {python}",
        )
    sources = "; ".join(
        f"{package.file or package.name} from {package.source}"
        for package in setup.packages
        if package.source != "PyPI"
    )
    commands = "; ".join(f"`{command}`" for command in setup.install)
    return f"{commands} ({f'{sources}; ' if sources else ''}untried on a board of ours)"


def _absent(name: str) -> Finding:
    first = {**RUNTIMES, **VISION}[name][0]
    command, separator, hint = install_command(first.extra).partition(" (")
    remedy = f"`{command}`{separator}{hint}" if command.startswith("pip") else command
    state: FindingState = "absent" if name in RUNTIMES else "warn"
    return _software(name, state, f"{first.distribution} is not installed: {first.without}", remedy)


def library_finding(name: str, package: RuntimePackage, problem: str | None) -> Finding:
    """Return the finding about an installed library; `problem` is its import error."""
    named = f"{package.distribution} {version(package.distribution)}"
    if problem is None:
        return _software(name, "ok", f"{named}{untried_part(name)}")
    return _software(
        name,
        "bad",
        f"{named} is installed but cannot be imported: {problem}",
        f"`pip install --force-reinstall {package.distribution}`, or install another version",
    )


def _begin(code: Sequence[str]) -> interrupts.OwnedProcess[str]:
    # From a folder without Python files: a file in the current folder must not be imported instead.
    return interrupts.OwnedProcess(
        [sys.executable, "-c", *code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd="/",
    )


def _end(
    process: interrupts.OwnedProcess[str], timeout_s: float | None = IMPORT_TIMEOUT_S
) -> tuple[str, str | None]:
    """Return a process's output, and the last line of its errors; None if it succeeded."""
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return "", f"it took more than {timeout_s:.0f} s"
    finally:
        process.end()
    if process.returncode == 0:
        return output, None
    if process.returncode == -signal.SIGILL:
        return output, "it uses instructions that this processor lacks (SIGILL)"
    if process.returncode < 0:
        return output, f"it was killed by {signal.Signals(-process.returncode).name}"
    lines = [line for line in errors.splitlines() if line.strip()]
    return output, lines[-1].strip() if lines else f"it ended with status {process.returncode}"
