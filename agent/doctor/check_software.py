"""What `edgemeter doctor` says of the software: Python, the runtimes, and the libraries that read images and score answers."""

import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from edgemeter.agent.doctor.finding import Finding, State
from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.machine import attached
from edgemeter.agent.machine.fingerprint import version
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.runtimes import edgetpu, edgetpu_library

# A large library on a small board's SD card takes its time.
IMPORT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution, the module that it is used by, the extra that installs it, and what cannot be done without it."""

    distribution: str
    module: str
    extra: str
    without: str = "its models cannot run"


RUNTIMES: Mapping[str, Sequence[Package]] = {
    "litert": (
        Package("ai-edge-litert", "ai_edge_litert.interpreter", "litert"),
        Package("tflite-runtime", "tflite_runtime.interpreter", "tflite"),
    ),
    "onnx": (
        Package("onnxruntime", "onnxruntime", "onnx"),
        Package("onnxruntime-gpu", "onnxruntime", "onnx"),
        Package("onnxruntime-openvino", "onnxruntime", "onnx"),
    ),
    "openvino": (Package("openvino", "openvino", "openvino"),),
    "ncnn": (Package("ncnn", "ncnn", "ncnn"),),
    "pytorch": (Package("torch", "torch", "torch"),),
    "tensorrt": (
        Package("tensorrt", "tensorrt", "tensorrt"),
        Package("tensorrt-cu13", "tensorrt", "tensorrt"),
        Package("tensorrt-cu12", "tensorrt", "tensorrt"),
    ),
}
VISION: Mapping[str, Sequence[Package]] = {
    "images": (Package("pillow", "PIL.Image", "vision", "models are timed on noise only"),),
    "accuracy": (Package("hotcoco", "hotcoco", "vision", "detections are not scored"),),
}


def check() -> Iterator[Finding]:
    """Yield what was found out; what is installed is imported, each in a process of its own, so that a broken build shows."""
    yield _finding("python", "ok", f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}")
    yield _finding("edgemeter", "ok", version("edgemeter") or "run from its source, not installed")
    known = [(name, _installed(packages)) for name, packages in {**RUNTIMES, **VISION}.items()]
    begun = {name: _begin_import(package) for name, package in known if package}
    for name, package in known:
        if package is None:
            yield _absent(name)
        else:
            yield _imported(name, package, _problem(begun[name]))
    yield from _edge_tpu(Machine())
    for entry in entry_points(group="edgemeter.runtimes"):
        yield _finding(entry.name, "ok", f"a runtime of its own: {entry.value}")
    if not any(package for name, package in known if name in RUNTIMES):
        yield _finding("runtimes", "bad", "there is none: no model can run", "`pip install 'edgemeter[litert,onnx]'`")


def _edge_tpu(machine: Machine, shared_library: str = edgetpu.SHARED_LIBRARY) -> Iterator[Finding]:
    """Yield whether a Coral can be used; nothing where neither it nor its library is here."""
    plugged = ", ".join(attached.accelerators(machine))
    try:
        driver = edgetpu_library.load(shared_library, machine.root)
    except UnavailableError as error:
        if plugged:
            yield _finding("edgetpu", "bad", f"{plugged} is here, but {error}", "`sudo apt install libedgetpu1-std` (or -max)")
        return
    named = f"{driver.package or 'libedgetpu'}, {driver.version or 'version unknown'}, clock {driver.clock or 'unknown'}"
    if plugged:
        yield _finding("edgetpu", "ok", f"{named}: {plugged}")
    else:
        yield _finding("edgetpu", "absent", f"{named}: no Edge TPU is plugged in")


def _finding(name: str, state: State, what: str, remedy: str | None = None) -> Finding:
    return Finding(area="software", name=name, state=state, what=what, remedy=remedy)


def _installed(packages: Sequence[Package]) -> Package | None:
    return next((package for package in packages if version(package.distribution)), None)


def _absent(name: str) -> Finding:
    first = {**RUNTIMES, **VISION}[name][0]
    remedy = f"`pip install 'edgemeter[{first.extra}]'`"
    state: State = "absent" if name in RUNTIMES else "warn"
    return _finding(name, state, f"{first.distribution} is not installed: {first.without}", remedy)


def _imported(name: str, package: Package, problem: str | None) -> Finding:
    named = f"{package.distribution} {version(package.distribution)}"
    if problem is None:
        return _finding(name, "ok", named)
    remedy = f"`pip install --force-reinstall {package.distribution}`, or another version of it"
    return _finding(name, "bad", f"{named} is installed but cannot be imported: {problem}", remedy)


def _begin_import(package: Package) -> subprocess.Popen[str]:
    # From a folder without Python files: whatever lies where the user stands must not be imported in its place.
    return subprocess.Popen(
        [sys.executable, "-c", f"import {package.module}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd="/",
    )


def _problem(process: subprocess.Popen[str]) -> str | None:
    """Return the last line that a failed import printed, None for one that went well."""
    try:
        _, said = process.communicate(timeout=IMPORT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"it took more than {IMPORT_TIMEOUT_S:.0f} s"
    if process.returncode == 0:
        return None
    if process.returncode == -signal.SIGILL:
        return "it uses instructions that this processor lacks (SIGILL)"
    if process.returncode < 0:
        return f"it was killed by {signal.Signals(-process.returncode).name}"
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"it ended with status {process.returncode}"
