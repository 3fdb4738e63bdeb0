"""One trained detector in every format and precision. Importing this module imports PyTorch."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from edgemeter.models import export, training
from edgemeter.models.convert import litert_files, onnx_files
from edgemeter.models.detector import parameters
from edgemeter.models.progress import Tell
from edgemeter.models.quiet import quiet
from edgemeter.models.recipe import NAME, Recipe
from edgemeter.models.scene import SIZE_PX, Stream, draw

CALIBRATION_SCENES = 200
Facts = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class _Step:
    """One file to write: how, and the packages that do it."""

    file: Path
    write: Callable[[Path], object]
    packages: tuple[str, ...]


def train_and_convert(folder: Path, recipe: Recipe, tell: Tell) -> dict[Path, Facts]:
    """Train a detector, write it to `folder` five times, and return how each file was made, for its card."""
    model = export.fold(training.train(recipe.seed, recipe.steps, tell, threads=recipe.threads))
    shared: Facts = {
        "by": "edgemeter models build",
        "seed": recipe.seed,
        "steps": recipe.steps,
        "threads": recipe.threads,
        "parameters": parameters(model),
    }
    steps = _plan(folder, model, recipe.seed)
    made: dict[Path, Facts] = {}
    for place, step in enumerate(steps, 1):
        tell(f"writing {step.file.name}", place, len(steps))
        with quiet():
            step.write(step.file)
        calibrated: Facts = {"calibration_scenes": CALIBRATION_SCENES} if "int8" in step.file.stem else {}
        made[step.file] = {**shared, **calibrated, "with": ", ".join(f"{package} {version(package)}" for package in step.packages)}
    return made


def _plan(folder: Path, model: nn.Module, seed: int) -> list[_Step]:
    """Return the files in the order of writing: an int8 file is made from the fp32 file before it."""
    onnx, litert = folder / f"{NAME}_fp32.onnx", folder / f"{NAME}_fp32.tflite"
    example = torch.zeros(1, 3, SIZE_PX, SIZE_PX)
    return [
        _Step(folder / f"{NAME}_fp32.torchscript", partial(export.to_torchscript, model, example), ("torch",)),
        _Step(onnx, lambda path: export.to_onnx(model, example, path, ("boxes", "scores")), ("torch", "onnxscript", "onnx")),
        _Step(
            folder / f"{NAME}_int8.onnx",
            lambda path: onnx_files.int8(onnx, path, (_by_channel(image) for image in calibration(seed)), keep=()),
            ("torch", "onnxscript", "onnx", "onnxruntime"),
        ),
        _Step(litert, partial(export.to_litert, model, example), ("torch", "litert-torch")),
        _Step(
            folder / f"{NAME}_int8.tflite",
            lambda path: litert_files.int8(litert, path, calibration(seed), keep=()),
            ("torch", "litert-torch", "ai-edge-quantizer"),
        ),
    ]


def calibration(seed: int) -> Iterator[NDArray[np.float32]]:
    """Yield the scenes that ranges are measured on, one after the other: float32 [1, H, W, 3], RGB, 0..1."""
    for index in range(CALIBRATION_SCENES):
        yield draw(seed, Stream.CALIBRATION, index).image.astype(np.float32)[None] / np.float32(255)


def _by_channel(image: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2))
