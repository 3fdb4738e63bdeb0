"""NVIDIA's trtexec: an ONNX file becomes a TensorRT engine for the GPU of this very machine.

It comes with TensorRT; on a Jetson it lies in /usr/src/tensorrt/bin. An engine runs only on the GPU and version that it was built with.
The int8 form is built from a QDQ file with zero points of 0, so that the engine uses the ranges measured here.
"""

import re
import shutil
import subprocess
from pathlib import Path

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes.library import one_line

PROGRAM = "trtexec"
JETSON = "/usr/src/tensorrt/bin"
# Tactics are timed one by one; a large detector takes a quarter of an hour on a Jetson Nano.
_LIMIT_S = 3600
_FLAGS = {"fp16": ["--fp16"], "int8": ["--int8"]}
_VERSION = re.compile(r"\[TensorRT v(\d+)\]")
_ERROR = re.compile(r"\[E\]\s*(.+)")


def build(source: Path, target: Path, precision: str, jetson: str = JETSON) -> dict[str, str]:
    """Write the engine, and return how it was built.

    Raises:
        UnavailableError: trtexec is not installed, finds no GPU to build for, or does not end.
        ConfigError: it refuses the file.
    """
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=jetson)
    if program is None:
        message = (
            f"{PROGRAM} is neither on the PATH nor in {jetson}: install TensorRT (on a Jetson: apt install tensorrt), "
            "and convert on the very machine that is to run the engine"
        )
        raise UnavailableError(message)
    command = [program, f"--onnx={source}", f"--saveEngine={target}", *_FLAGS[precision]]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        message = f"{PROGRAM} did not end within {_LIMIT_S} s on {source.name!r}: build a smaller model"
        raise UnavailableError(message) from error
    except OSError as error:
        message = f"cannot run {program!r}: {error.strerror}; install it again"
        raise UnavailableError(message) from error
    said = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode != 0 or not target.is_file():
        kind = UnavailableError if "no CUDA-capable device" in said else ConfigError
        message = f"{PROGRAM} built no engine of {source.name!r} (status {done.returncode}): {_reason(said)}"
        raise kind(message)
    version = _VERSION.search(said)
    flags = " ".join(_FLAGS[precision])
    return {"tensorrt": _dotted(version[1]) if version else "unknown", "command": f"{PROGRAM} --onnx=... --saveEngine=... {flags}"}


def _dotted(number: str) -> str:
    """Return 8502 as 8.5.2 and 100300 as 10.3.0: two digits each below the major version, from version 10 on."""
    digits = int(number)
    if digits >= 100_000:
        return f"{digits // 10_000}.{digits // 100 % 100}.{digits % 100}"
    return f"{digits // 1000}.{digits // 100 % 10}.{digits % 100}"


def _reason(said: str) -> str:
    """Return its first error, else its last words."""
    if found := _ERROR.search(said):
        return one_line(found[1])
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "it said nothing"
