"""The environment of a run: board, system and software, to show what differs between two runs."""

import os
import platform
import struct
from importlib import metadata

from edgemeter.agent.contract.record_conditions import Environment
from edgemeter.agent.machine import board, clock
from edgemeter.agent.machine.attached import attached
from edgemeter.agent.machine.board import detect_virtualisation
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.machine.throttling import governor

# Distributions whose version may change a figure: the runtimes, and libraries that prepare inputs
# and score outputs.
LIBRARIES = (
    "ai-edge-litert", "tflite-runtime", "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino",
    "onnxruntime-qnn", "torch", "executorch", "openvino", "ncnn", "tensorrt", "hailort", "numpy",
    "pillow", "opencv-python", "opencv-python-headless",
)  # fmt: skip
# Some distributions have only the second.
OS_RELEASE = ("etc/os-release", "usr/lib/os-release")


def read(machine: Machine = THIS_MACHINE) -> Environment:
    """Return the environment; unknown values are None.

    On a Pi or Jetson it runs one or two commands.
    """
    return Environment(
        board=board.model(machine),
        arch=machine.arch,
        cpu=" ".join(filter(None, (board.soc(machine), board.cpu(machine)))) or None,
        cores=board.cores(machine) or os.cpu_count() or 1,
        os=operating_system(machine),
        kernel=machine.line("proc/sys/kernel/osrelease") or platform.release(),
        firmware=board.firmware(machine),
        governor=governor(machine),
        power_mode=board.power_mode(machine),
        cache_mb=board.cache_mb(machine),
        agent=version("edgemeter") or "unknown",
        boot_id=clock.boot_id(machine),
        libraries=libraries(),
        attached=attached(machine),
        virtualisation=detect_virtualisation(machine),
    )


def operating_system(machine: Machine) -> str | None:
    for path in OS_RELEASE:
        for line in (machine.text(path) or "").splitlines():
            if line.startswith("PRETTY_NAME="):
                return line.partition("=")[2].strip("\"' ") or None
    return None


def is_32_bit() -> bool:
    """Return whether this Python is a 32-bit program, for which most runtimes have no wheels."""
    return struct.calcsize("P") == 4


def python() -> str:
    """Return the version of this Python, and whether it is a 32-bit program."""
    return platform.python_version() + (" (32-bit)" if is_32_bit() else "")


def libraries() -> dict[str, str]:
    """Return the versions of Python and of the installed LIBRARIES, without importing them."""
    return {"python": python()} | {
        name: installed for name in LIBRARIES if (installed := version(name))
    }


def version(distribution: str) -> str | None:
    """Return the version of an installed distribution.

    None if it is absent or its metadata is damaged.
    """
    try:
        return metadata.version(distribution) or None
    except metadata.PackageNotFoundError:
        return None
