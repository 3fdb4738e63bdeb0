"""Compilers that are separate programs: Google's Edge TPU compiler and NVIDIA's trtexec.

edgetpu_compiler: an int8 LiteRT file becomes one whose operations run on the Edge TPU, as far as
supported. Debian's package `edgetpu-compiler` from Google's repository, x86-64 only:
https://coral.ai/docs/edgetpu/compiler. Its coverage is read from its output with `-s`.
trtexec: an ONNX file becomes a TensorRT engine for the GPU of this machine; it comes with TensorRT,
on a Jetson in /usr/src/tensorrt/bin. An engine runs only on the GPU and version that it was built
with. The int8 form is built from a QDQ file with zero points of 0, so that the engine uses the
ranges measured here.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line
from edgemeter.models.convert.formats import ConversionFacts, MakerInputs

EDGETPU_COMPILER = "edgetpu_compiler"
# The compiler stops by itself after 180 s.
_EDGETPU_LIMIT_S = 600
_MAPPED = "Mapped to Edge TPU"
_EDGETPU_VERSION = re.compile(r"Edge TPU Compiler version\s+(\S+)")
# CONV_2D                        36         Mapped to Edge TPU
_ROW = re.compile(r"^([A-Z][A-Za-z0-9_-]*)\s+(\d+)\s+(\S.*?)\s*$", re.MULTILINE)

TRTEXEC = "trtexec"
JETSON = "/usr/src/tensorrt/bin"
# Tactics are timed one by one; a large detector takes a quarter of an hour on a Jetson Nano.
_TRTEXEC_LIMIT_S = 3600
_TRTEXEC_VERSION = re.compile(r"\[TensorRT v(\d+)\]")
_TRTEXEC_ERROR = re.compile(r"\[E\]\s*(.+)")


def make_edgetpu(base: Path, target: Path, _inputs: MakerInputs) -> ConversionFacts:
    """Write the compiled file; return which part of it runs on the Edge TPU.

    Raises:
        UnavailableError: the compiler is not installed, or exceeds its time limit.
        ConfigError: it refuses the file, or leaves all of it on the CPU.
    """
    program = shutil.which(EDGETPU_COMPILER)
    if program is None:
        raise UnavailableError(
            f"{EDGETPU_COMPILER} is not on the PATH: install Google's package edgetpu-compiler "
            "(x86-64 Debian or Ubuntu, "
            "https://coral.ai/docs/edgetpu/compiler), or compile the int8 file on a "
            "machine that has it"
        )
    remedy = "convert it to int8 with builtin operators"
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        status, output = _run([program, "-s", "-o", folder, str(base)], base, _EDGETPU_LIMIT_S)
        compiled = Path(folder) / f"{base.stem}_edgetpu.tflite"
        if status != 0 or not compiled.is_file():
            raise ConfigError(
                f"{EDGETPU_COMPILER} compiled no {base.name!r} (status {status}): "
                f"{_last_line(output)}; {remedy}"
            )
        facts = read_coverage(output)
        if facts.get("edgetpu_operations") == 0:
            raise ConfigError(
                f"no operation of {base.name!r} runs on the Edge "
                f"TPU ({facts['left_on_cpu']}): {remedy}"
            )
        shutil.copyfile(compiled, target)
    return facts


def read_coverage(output: str) -> ConversionFacts:
    """Return the compiler's version, and how much of the model runs on the Edge TPU.

    That is the number of operations there, as far as the compiler's output has it, and why others
    are not.
    """
    version = _EDGETPU_VERSION.search(output)
    facts: dict[str, str | int | float] = {"edgetpu_compiler": version[1]} if version else {}
    rows = [(row[1], int(row[2]), row[3]) for row in _ROW.finditer(output)]
    if rows:
        on_cpu = [row for row in rows if row[2] != _MAPPED]
        facts["edgetpu_operations"] = sum(count for _, count, status in rows if status == _MAPPED)
        facts["cpu_operations"] = sum(count for _, count, _ in on_cpu)
        if on_cpu:
            facts["left_on_cpu"] = "; ".join(
                f"{count} {name}: {status}" for name, count, status in on_cpu
            )
    return facts


def make_engine_fp16(base: Path, target: Path, _inputs: MakerInputs) -> ConversionFacts:
    """Write a TensorRT engine that computes in fp16 if that is faster."""
    return build_engine(base, target, "--fp16")


def make_engine_int8(base: Path, target: Path, _inputs: MakerInputs) -> ConversionFacts:
    """Write a TensorRT engine from a QDQ file."""
    return build_engine(base, target, "--int8")


def build_engine(base: Path, target: Path, flag: str, jetson: str = JETSON) -> ConversionFacts:
    """Write the engine; return how it was built.

    Raises:
        UnavailableError: trtexec is not installed, finds no GPU, or exceeds its time limit.
        ConfigError: it refuses the file.
    """
    program = shutil.which(TRTEXEC) or shutil.which(TRTEXEC, path=jetson)
    if program is None:
        raise UnavailableError(
            f"{TRTEXEC} is neither on the PATH nor in {jetson}: install TensorRT (on a Jetson: "
            "apt install tensorrt), "
            "and convert on the machine that runs the engine"
        )
    status, output = _run(
        [program, f"--onnx={base}", f"--saveEngine={target}", flag], base, _TRTEXEC_LIMIT_S
    )
    if status != 0 or not target.is_file():
        kind = UnavailableError if "no CUDA-capable device" in output else ConfigError
        match = _TRTEXEC_ERROR.search(output)
        reason = one_line(match[1]) if match else _last_line(output)
        raise kind(f"{TRTEXEC} built no engine of {base.name!r} (status {status}): {reason}")
    version = _TRTEXEC_VERSION.search(output)
    return {
        "tensorrt": _dotted(version[1]) if version else "unknown",
        "command": f"{TRTEXEC} --onnx=... --saveEngine=... {flag}",
    }


def _dotted(number: str) -> str:
    """Return 8502 as 8.5.2 and 100300 as 10.3.0.

    There are two digits each below the major version, from version 10 on.
    """
    digits = int(number)
    if digits >= 100_000:
        return f"{digits // 10_000}.{digits // 100 % 100}.{digits % 100}"
    return f"{digits // 1000}.{digits // 100 % 10}.{digits % 100}"


def _run(command: list[str], source: Path, limit_s: float) -> tuple[int, str]:
    """Return the exit status of a compiler and what it printed."""
    try:
        process = subprocess.run(command, capture_output=True, check=False, timeout=limit_s)
    except OSError as error:
        raise UnavailableError(
            f"cannot run {command[0]!r}: {error.strerror}; install it again"
        ) from error
    except subprocess.TimeoutExpired as error:
        program = Path(command[0]).name
        raise UnavailableError(
            f"{program} did not end within {limit_s:.0f} s on {source.name!r}: use a smaller model"
        ) from error
    return process.returncode, (process.stdout + process.stderr).decode(errors="replace")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "it printed nothing"
