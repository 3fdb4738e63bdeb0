"""One model in every format that it can be converted to here.

Each conversion has its own sandbox, so a crash of a converter ends no other.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import msgspec

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.plugins import install_command
from edgemeter.agent.contract.model_formats import READERS, runtime_for
from edgemeter.agent.sandbox.run_grant import data_files, model_files
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from edgemeter.models.cli.confined import confined
from edgemeter.models.convert import formats
from edgemeter.models.convert.formats import FORMATS, ModelFormat

# Only an intermediate step for compiled formats.
INTERMEDIATE = "onnx-int8-symmetric"
# The converter of a runtime's formats, if it is not PyTorch.
_LIBRARIES = {"onnx": "onnx", "litert": "ai_edge_quantizer"}


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """The model, the folder for the files, and the images to measure int8 ranges on.

    At most `calibration_images` are used. See also `confined`.
    """

    source: Path
    out: Path
    calibration: Path | None
    calibration_images: int
    is_trusted: bool = False

    @property
    def brings_images(self) -> bool:
        """Whether the images for the ranges ship with the model."""
        return self.calibration is None and self.source.parent == SHIPPED_FOLDER


@dataclass(slots=True)
class BoardFormats:
    """The files by their formats, in the order of the table, and the reasons for missing ones."""

    written: dict[str, Path] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def candidates(self, source: Path) -> dict[str, tuple[Path, str]]:
        """Return the source and the files by their names in the table.

        Each has every runtime that reads it.
        """
        rows = {}
        for name, path in {source.name: source, **self.written}.items():
            runtime = FORMATS[name].runtime if name in FORMATS else runtime_for(path)
            # An Edge TPU runs only files compiled for it.
            other_runtimes = (
                set()
                if runtime == "edgetpu"
                else READERS.get(path.suffix.lower(), set()) - {runtime, "edgetpu"}
            )
            rows[name] = (path, runtime)
            rows |= {f"{name}, {other}": (path, other) for other in sorted(other_runtimes)}
        return rows


def convert_all(request: FormatRequest, report: Callable[[str], None]) -> BoardFormats:
    """Convert to each format in turn; a missing one has a reason.

    Raises:
        ConfigError: files of this kind cannot be converted, or the folder for the files is not
            allowed.
    """
    runtime = runtime_for(request.source)
    form = formats.TORCH if runtime == "pytorch" else f"{runtime}-fp32"
    # The source is measured as it is, not converted to itself.
    other_formats = [goal for goal in FORMATS.values() if goal.name not in (INTERMEDIATE, form)]
    goals = [goal for goal in other_formats if formats.steps_to(form, goal.name)]
    if not goals:
        raise ConfigError(
            f"cannot convert {request.source.name!r} ({runtime}): give a PyTorch, ONNX or LiteRT "
            "file in fp32"
        )
    reason = "made from a PyTorch model only (.pt2 or TorchScript): give that"
    board_formats = BoardFormats(
        reasons={goal.name: reason for goal in other_formats if goal not in goals}
    )
    for number, goal in enumerate(goals, 1):
        try:
            _require(goal, request, board_formats)
            report(f"[{number}/{len(goals)}] converting {request.source.name} to {goal.name}")
            # From the file of the previous format, so that each step is done once.
            brings = goal.is_calibrated and request.brings_images
            base = (
                request.source if brings else board_formats.written.get(goal.base, request.source)
            )
            board_formats.written[goal.name] = _convert(base, goal, request)
        except UnavailableError as error:
            board_formats.reasons[goal.name] = str(error)
    return board_formats


def _require(goal: ModelFormat, request: FormatRequest, board_formats: BoardFormats) -> None:
    """Raise UnavailableError if something that the conversion needs is missing.

    That is a program, an extra, images or the file to start from.
    """
    library = "torch" if goal.base == formats.TORCH else _LIBRARIES.get(goal.runtime)
    if goal.program and not which(goal.program):
        raise UnavailableError(f"needs the program {goal.program}, which is not installed")
    if goal.program is None and library is not None and find_spec(library) is None:
        raise UnavailableError(f"needs the extra `convert`: {install_command('convert')}")
    if goal.is_calibrated and request.calibration is None and not request.brings_images:
        raise UnavailableError("needs images to measure ranges on: --calibration FOLDER")
    if goal.base in board_formats.reasons:
        raise UnavailableError(f"{goal.base}, which it is made from, could not be made")


def _convert(base: Path, goal: ModelFormat, request: FormatRequest) -> Path:
    words = [
        "models",
        "convert",
        str(base),
        "--to",
        goal.name,
        "--output",
        str(request.out),
        "--format",
        "json",
    ]
    if request.calibration is not None:
        words += [
            "--calibration",
            str(request.calibration),
            "--calibration-images",
            str(request.calibration_images),
        ]
    read = (
        *model_files(base),
        *(data_files(request.calibration, None) if request.calibration else ()),
    )
    pipe = subprocess.PIPE
    with confined(
        words, read, request.out, is_trusted=request.is_trusted, stdout=pipe, stderr=pipe
    ) as process:
        output, errors = interrupts.communicate(process)
    try:
        document = decode_json(output, dict[str, Any])
    except msgspec.DecodeError:
        document = {}
    for row in document.get("conversions", ()):
        if row["verdict"] == "ruined":
            raise UnavailableError(f"ruined: {row['reason']}")
        return Path(row["file"])
    lines = [*document.get("errors", ()), *reversed(errors.decode(errors="replace").splitlines())]
    died = (
        f"the converter died (signal {-process.status}): is there too little memory?"
        if process.status < 0
        else "it failed"
    )
    raise UnavailableError(
        next((line.removeprefix("edgemeter: ") for line in lines if line.strip()), died)
    )
