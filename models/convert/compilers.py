"""Compilers that are programs of their own: Google's Edge TPU compiler and NVIDIA's trtexec.

edgetpu_compiler: an int8 LiteRT file becomes one whose operations run on the Edge TPU, as many as it takes. Debian's package
`edgetpu-compiler` from Google's repository, x86-64 only: https://coral.ai/docs/edgetpu/compiler. What it took is read from what it
prints with `-s`.
trtexec: an ONNX file becomes a TensorRT engine for the GPU of this machine; it comes with TensorRT, on a Jetson in
/usr/src/tensorrt/bin. An engine runs only on the GPU and version that it was built with. The int8 form is built from a QDQ file with
zero points of 0, so that the engine uses the ranges measured here.
"""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line

EDGETPU_COMPILER = "edgetpu_compiler"

# The compiler gives up by itself after 180 s.
_EDGETPU_LIMIT_S = 600
_MAPPED = "Mapped to Edge TPU"
# What the compiler prints, and the type of each.
_FACTS: dict[str, tuple[str, type[str] | type[int]]] = {
    "edgetpu_compiler": (r"Edge TPU Compiler version\s+(\S+)", str),
    "on_chip_parameters": (r"On-chip memory used for caching model parameters:\s*(\S+)", str),
    "off_chip_parameters": (r"Off-chip memory used for streaming uncached model parameters:\s*(\S+)", str),
    "edgetpu_operations": (r"Number of operations that will run on Edge TPU:\s*(\d+)", int),
    "cpu_operations": (r"Number of operations that will run on CPU:\s*(\d+)", int),
    "edgetpu_subgraphs": (r"Number of Edge TPU subgraphs:\s*(\d+)", int),
}
# CONV_2D                        36         Mapped to Edge TPU
_ROW = re.compile(r"^([A-Z][A-Za-z0-9_-]*)\s+(\d+)\s+(\S.*?)\s*$", re.MULTILINE)

TRTEXEC = "trtexec"
JETSON = "/usr/src/tensorrt/bin"
# Tactics are timed one by one; a large detector takes a quarter of an hour on a Jetson Nano.
_TRTEXEC_LIMIT_S = 3600
_FLAGS = {"fp16": ["--fp16"], "int8": ["--int8"]}
_VERSION = re.compile(r"\[TensorRT v(\d+)\]")
_ERROR = re.compile(r"\[E\]\s*(.+)")


@dataclass(frozen=True, slots=True)
class EdgeTpuCoverage:
    """The report of the compiler: facts on the operations, and why some of them stay on the CPU."""

    facts: dict[str, str | int]
    on_cpu: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """The number of operations on the Edge TPU and on the CPU."""
        mapped, on_cpu = self.facts.get("edgetpu_operations"), self.facts.get("cpu_operations")
        if mapped is None:
            return "the compiler did not report how many operations run on the Edge TPU"
        why = f" ({'; '.join(self.on_cpu)})" if self.on_cpu else ""
        return f"{mapped} operations on the Edge TPU, {on_cpu or 0} on the CPU{why}"


def compile_for_edgetpu(source: Path, target: Path) -> EdgeTpuCoverage:
    """Write the compiled file, and return which part of it runs on the Edge TPU.

    Raises:
        UnavailableError: the compiler is not installed, or exceeds its time limit.
        ConfigError: it refuses the file.
    """
    program = shutil.which(EDGETPU_COMPILER)
    if program is None:
        raise UnavailableError(
            f"{EDGETPU_COMPILER} is not on the PATH: install Google's package edgetpu-compiler (x86-64 Debian or Ubuntu, "
            "https://coral.ai/docs/edgetpu/compiler), or compile the int8 file on a machine that has it"
        )
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        status, output = _run([program, "-s", "-o", folder, str(source)], source, _EDGETPU_LIMIT_S)
        if status != 0:
            raise ConfigError(f"{EDGETPU_COMPILER} refused {source.name!r} (status {status}): {_last_line(output)}")
        compiled = Path(folder) / f"{source.stem}_edgetpu.tflite"
        if not compiled.is_file():
            raise ConfigError(
                f"{EDGETPU_COMPILER} wrote no file from {source.name!r}: {_last_line(output)}; convert it to int8 with builtin operators"
            )
        shutil.copyfile(compiled, target)
    return read_coverage(output)


def read_coverage(output: str) -> EdgeTpuCoverage:
    """Return the coverage in the compiler's output, as far as it is there."""
    matches = ((name, re.search(pattern, output), kind) for name, (pattern, kind) in _FACTS.items())
    facts: dict[str, str | int] = {name: kind(match[1]) for name, match, kind in matches if match}
    rows = [(row[1], int(row[2]), row[3]) for row in _ROW.finditer(output)]
    if rows and "edgetpu_operations" not in facts:
        facts["edgetpu_operations"] = sum(count for _, count, status in rows if status == _MAPPED)
        facts["cpu_operations"] = sum(count for _, count, status in rows if status != _MAPPED)
    return EdgeTpuCoverage(facts, tuple(f"{count} {name}: {status}" for name, count, status in rows if status != _MAPPED))


def build_engine(source: Path, target: Path, precision: str, jetson: str = JETSON) -> dict[str, str]:
    """Write the engine, and return how it was built.

    Raises:
        UnavailableError: trtexec is not installed, finds no GPU, or exceeds its time limit.
        ConfigError: it refuses the file.
    """
    program = shutil.which(TRTEXEC) or shutil.which(TRTEXEC, path=jetson)
    if program is None:
        raise UnavailableError(
            f"{TRTEXEC} is neither on the PATH nor in {jetson}: install TensorRT (on a Jetson: apt install tensorrt), "
            "and convert on the machine that runs the engine"
        )
    flags = _FLAGS[precision]
    status, output = _run([program, f"--onnx={source}", f"--saveEngine={target}", *flags], source, _TRTEXEC_LIMIT_S)
    if status != 0 or not target.is_file():
        kind = UnavailableError if "no CUDA-capable device" in output else ConfigError
        match = _ERROR.search(output)
        raise kind(f"{TRTEXEC} built no engine of {source.name!r} (status {status}): {one_line(match[1]) if match else _last_line(output)}")
    version = _VERSION.search(output)
    return {
        "tensorrt": _dotted(version[1]) if version else "unknown",
        "command": f"{TRTEXEC} --onnx=... --saveEngine=... {' '.join(flags)}",
    }


def _dotted(number: str) -> str:
    """Return 8502 as 8.5.2 and 100300 as 10.3.0: two digits each below the major version, from version 10 on."""
    digits = int(number)
    if digits >= 100_000:
        return f"{digits // 10_000}.{digits // 100 % 100}.{digits % 100}"
    return f"{digits // 1000}.{digits // 100 % 10}.{digits % 100}"


def _run(command: list[str], source: Path, limit_s: float) -> tuple[int, str]:
    """Return the exit status of a compiler and what it printed."""
    program = Path(command[0]).name
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise UnavailableError(f"cannot run {command[0]!r}: {error.strerror}; install it again") from error
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.wait()
        raise UnavailableError(f"{program} did not end within {limit_s:.0f} s on {source.name!r}: use a smaller model") from error
    return process.returncode, (output + errors).decode(errors="replace")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "it printed nothing"
