"""What `edgemeter doctor` says of the software: Python, the runtimes, and the libraries that read images and score answers."""

import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from edgemeter.agent.doctor.finding import Finding, State
from edgemeter.agent.machine import attached
from edgemeter.agent.machine.fingerprint import version
from edgemeter.agent.machine.machine import Machine

LIBEDGETPU = "libedgetpu.so.1"
_EDGE_TPU = """
import sys; from pathlib import Path; from edgemeter.agent.runtimes import edgetpu_library
found = edgetpu_library.load(sys.argv[1], Path(sys.argv[2]))
sys.stdout.write(f"{found.package or 'libedgetpu'}, {found.version or 'version unknown'}, clock {found.clock or 'unknown'}")
"""
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


def _edge_tpu(machine: Machine, shared_library: str = LIBEDGETPU) -> Iterator[Finding]:
    """Yield whether a Coral can be used; nothing where neither it nor its library is here."""
    plugged = ", ".join(attached.accelerators(machine))
    # In a process of its own, which a library that does not fit may end.
    process = _begin([_EDGE_TPU, shared_library, str(machine.root)])
    said, problem = _end(process)
    if problem is not None and plugged:
        words = problem.partition("UnavailableError: ")[2] or problem
        yield _finding("edgetpu", "bad", f"{plugged} is here, but {words}", "`sudo apt install libedgetpu1-std` (or -max)")
    elif problem is None:
        state: State = "ok" if plugged else "absent"
        yield _finding("edgetpu", state, f"{said.strip()}: {plugged or 'no Edge TPU is plugged in'}")


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
    return _begin([f"import {package.module}"])


def _begin(code: Sequence[str]) -> subprocess.Popen[str]:
    # From a folder without Python files: whatever lies where the user stands must not be imported in its place.
    return subprocess.Popen(
        [sys.executable, "-c", *code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", cwd="/"
    )


def _problem(process: subprocess.Popen[str]) -> str | None:
    """Return the last line that a failed import printed, None for one that went well."""
    return _end(process)[1]


def _end(process: subprocess.Popen[str]) -> tuple[str, str | None]:
    """Return what a process printed, and the last line of its complaints; None for one that went well."""
    try:
        said, complained = process.communicate(timeout=IMPORT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "", f"it took more than {IMPORT_TIMEOUT_S:.0f} s"
    if process.returncode == 0:
        return said, None
    if process.returncode == -signal.SIGILL:
        return said, "it uses instructions that this processor lacks (SIGILL)"
    if process.returncode < 0:
        return said, f"it was killed by {signal.Signals(-process.returncode).name}"
    lines = [line for line in complained.splitlines() if line.strip()]
    return said, lines[-1].strip() if lines else f"it ended with status {process.returncode}"
