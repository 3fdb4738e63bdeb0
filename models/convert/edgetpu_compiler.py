"""Google's Edge TPU compiler: an int8 LiteRT file becomes one whose operations run on the Edge TPU, as many as it takes.

Installed by Debian's package `edgetpu-compiler` from Google's repository, x86-64 only: https://coral.ai/docs/edgetpu/compiler.
What it took is read from what it prints with `-s`.
"""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes.library import one_line

PROGRAM = "edgetpu_compiler"
# The compiler gives up by itself after 180 s; what hangs beyond that is killed.
_LIMIT_S = 600
_MAPPED = "Mapped to Edge TPU"
_NUMBERS = {
    "edgetpu_operations": r"Number of operations that will run on Edge TPU:\s*(\d+)",
    "cpu_operations": r"Number of operations that will run on CPU:\s*(\d+)",
    "edgetpu_subgraphs": r"Number of Edge TPU subgraphs:\s*(\d+)",
}
_TEXTS = {
    "edgetpu_compiler": r"Edge TPU Compiler version\s+(\S+)",
    "on_chip_parameters": r"On-chip memory used for caching model parameters:\s*(\S+)",
    "off_chip_parameters": r"Off-chip memory used for streaming uncached model parameters:\s*(\S+)",
}
# CONV_2D                        36         Mapped to Edge TPU
_ROW = re.compile(r"^([A-Z][A-Za-z0-9_-]*)\s+(\d+)\s+(\S.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the compiler said: operations on the Edge TPU and on the CPU (None where it did not say), and why each of the latter."""

    facts: dict[str, str | int]
    on_cpu: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """How many operations run where."""
        mapped, left = self.facts.get("edgetpu_operations"), self.facts.get("cpu_operations")
        if mapped is None:
            return "the compiler did not say how many operations run on the Edge TPU"
        why = f" ({'; '.join(self.on_cpu)})" if self.on_cpu else ""
        return f"{mapped} operations on the Edge TPU, {left or 0} on the CPU{why}"


def compile_file(source: Path, target: Path) -> Coverage:
    """Write the compiled file, and return what of it runs on the Edge TPU.

    Raises:
        UnavailableError: the compiler is not installed, or does not end.
        ConfigError: it refuses the file.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        message = (
            f"{PROGRAM} is not on the PATH: install Google's package edgetpu-compiler (x86-64 Debian or Ubuntu, "
            "https://coral.ai/docs/edgetpu/compiler), or compile the int8 file on a machine that has it"
        )
        raise UnavailableError(message)
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        said = _run([program, "-s", "-o", folder, str(source)])
        made = Path(folder) / f"{source.stem}_edgetpu.tflite"
        if not made.is_file():
            message = f"{PROGRAM} made nothing of {source.name!r}: {_last_line(said)}; convert it to int8 with builtin operators only"
            raise ConfigError(message)
        shutil.copyfile(made, target)
    return read(said)


def read(said: str) -> Coverage:
    """Return what the compiler's output says of operations; what it does not say is left out."""
    facts: dict[str, str | int] = {}
    for name, pattern in _TEXTS.items():
        if found := re.search(pattern, said):
            facts[name] = found[1]
    for name, pattern in _NUMBERS.items():
        if found := re.search(pattern, said):
            facts[name] = int(found[1])
    rows = [(row[1], int(row[2]), row[3]) for row in _ROW.finditer(said)]
    if rows and "edgetpu_operations" not in facts:
        facts["edgetpu_operations"] = sum(count for _, count, status in rows if status == _MAPPED)
        facts["cpu_operations"] = sum(count for _, count, status in rows if status != _MAPPED)
    return Coverage(facts, tuple(f"{count} {name}: {status}" for name, count, status in rows if status != _MAPPED))


def _run(command: list[str]) -> str:
    """Return what the compiler printed."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        message = f"{PROGRAM} did not end within {_LIMIT_S} s: compile a smaller model"
        raise UnavailableError(message) from error
    except OSError as error:
        message = f"cannot run {command[0]!r}: {error.strerror}; install it again"
        raise UnavailableError(message) from error
    said = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode != 0:
        message = f"{PROGRAM} refused {Path(command[-1]).name!r} (status {done.returncode}): {_last_line(said)}"
        raise ConfigError(message)
    return said


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "it said nothing"
