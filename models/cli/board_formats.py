"""One model in every format that it can be converted to here, each in a sandbox of its own: a converter that dies ends no other."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.plugins import install_command
from edgemeter.agent.contract.model_formats import READERS, runtime_for
from edgemeter.agent.engine.confinement import model_files
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from edgemeter.models.cli.confined import confined
from edgemeter.models.convert import formats
from edgemeter.models.convert.formats import FORMATS, ModelFormat

# Made only for what is compiled from it.
INTERMEDIATE = "onnx-int8-symmetric"
_FROM_PYTORCH = "made from a PyTorch model only (.pt2 or TorchScript): give that"
# What converts to the formats of a runtime, where not PyTorch.
_LIBRARIES = {"onnx": "onnx", "litert": "ai_edge_quantizer"}


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """The model, the folder for the files, and the images to measure int8 ranges on, at most `calibration_images`; see also `confined`."""

    source: Path
    out: Path
    calibration: Path | None
    calibration_images: int
    is_trusted: bool = False


@dataclass(slots=True)
class BoardFormats:
    """The files by their formats, in the order of the table, and why the others are none."""

    written: dict[str, Path] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def candidates(self, source: Path) -> list[tuple[Path, str]]:
        """Return the source and the files, each with every runtime that reads it."""
        files = {None: source} | {FORMATS[name]: path for name, path in self.written.items()}
        return [(path, runtime) for form, path in files.items() for runtime in _readers(form, path)]


def convert_all(request: FormatRequest, report: Callable[[str], None]) -> BoardFormats:
    """Convert to each format in turn; what is not written has a reason.

    Raises:
        ConfigError: nothing is converted from files of this kind, or the folder for the files is not allowed.
    """
    runtime = runtime_for(request.source)
    form = formats.TORCH if runtime == "pytorch" else f"{runtime}-fp32"
    # The source is measured as it is, and not made from itself once more.
    further_formats = [goal for goal in FORMATS.values() if goal.name not in (INTERMEDIATE, form)]
    goals = [goal for goal in further_formats if formats.steps_to(form, goal.name)]
    if not goals:
        raise ConfigError(f"nothing is converted from {request.source.name!r} ({runtime}): give a PyTorch, ONNX or LiteRT file in fp32")
    converted_files = BoardFormats(reasons={goal.name: _FROM_PYTORCH for goal in further_formats if goal not in goals})
    for number, goal in enumerate(goals, 1):
        if reason := _why_not(goal, request, converted_files):
            converted_files.reasons[goal.name] = reason
            continue
        report(f"[{number}/{len(goals)}] converting {request.source.name} to {goal.name}")
        try:
            # From the file of the format below, which was made before, so that a step is made once.
            brings = goal.is_calibrated and _brings_images(request)
            base = request.source if brings else converted_files.written.get(goal.base, request.source)
            converted_files.written[goal.name] = _convert(base, goal, request)
        except UnavailableError as error:
            converted_files.reasons[goal.name] = str(error)
    return converted_files


def _readers(form: ModelFormat | None, path: Path) -> list[str]:
    """Return the runtimes that read a file, its own first; an Edge TPU runs what was compiled for it."""
    runtime = form.runtime if form else runtime_for(path)
    further_runtimes = READERS.get(path.suffix.lower(), set()) - {runtime, "edgetpu"}
    return [runtime] if runtime == "edgetpu" else [runtime, *sorted(further_runtimes)]


def _brings_images(request: FormatRequest) -> bool:
    """Return whether the images for the ranges ship with the model."""
    return request.calibration is None and request.source.parent == SHIPPED_FOLDER


def _why_not(goal: ModelFormat, request: FormatRequest, converted_files: BoardFormats) -> str:
    if goal.program and not which(goal.program):
        return f"needs the program {goal.program}, which is not installed"
    if reason := _lacking_extra(goal):
        return reason
    if goal.is_calibrated and request.calibration is None and not _brings_images(request):
        return "needs images to measure ranges on: --calibration FOLDER"
    return f"{goal.base}, which it is made from, could not be made" if goal.base in converted_files.reasons else ""


def _lacking_extra(goal: ModelFormat) -> str:
    """Return which extra makes the format and is not installed, with the command; empty if its library can be imported."""
    library = "torch" if goal.base == formats.TORCH else _LIBRARIES.get(goal.runtime)
    if goal.program or library is None or find_spec(library) is not None:
        return ""
    return f"needs the extra `convert`: {install_command('convert')}"


def _convert(base: Path, goal: ModelFormat, request: FormatRequest) -> Path:
    words = ["models", "convert", str(base), "--to", goal.name, "--output", str(request.out), "--format", "json"]
    if request.calibration is not None:
        words += ["--calibration", str(request.calibration), "--calibration-images", str(request.calibration_images)]
    read = (*model_files(base), request.calibration)
    pipe = subprocess.PIPE
    with confined(words, read, request.out, is_trusted=request.is_trusted, stdout=pipe, stderr=pipe) as process:
        document, errors = process.communicate()
    outcome = _outcome(document)
    for row in outcome.get("conversions", ()):
        if row["verdict"] == "ruined":
            raise UnavailableError(f"ruined: {row['reason']}")
        return Path(row["file"])
    lines = [*outcome.get("errors", ()), *reversed(errors.decode(errors="replace").splitlines())]
    died = f"the converter died (signal {-process.status}): is there too little memory?" if process.status < 0 else "it failed"
    raise UnavailableError(next((line.removeprefix("edgemeter: ") for line in lines if line.strip()), died))


def _outcome(document: bytes) -> dict[str, Any]:
    try:
        return decode_json(document, dict[str, Any])
    except msgspec.DecodeError:
        return {}
