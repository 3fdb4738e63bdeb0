"""One trained detector in every format and precision. Importing this module imports PyTorch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from edgemeter.models import export, quantise, training
from edgemeter.models.detector import Detector, parameters
from edgemeter.models.progress import Tell
from edgemeter.models.quiet import quiet
from edgemeter.models.recipe import NAME, Recipe

Facts = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class _Step:
    """One file to write: how, and the packages that do it."""

    file: Path
    write: Callable[[Path], None]
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
        calibrated: Facts = {"calibration_scenes": quantise.CALIBRATION_SCENES} if "int8" in step.file.stem else {}
        made[step.file] = {**shared, **calibrated, "with": ", ".join(f"{package} {version(package)}" for package in step.packages)}
    return made


def _plan(folder: Path, model: Detector, seed: int) -> list[_Step]:
    """Return the files in the order of writing: an int8 file is made from the fp32 file before it."""
    onnx, litert = folder / f"{NAME}_fp32.onnx", folder / f"{NAME}_fp32.tflite"
    scenes = quantise.calibration(seed)
    return [
        _Step(folder / f"{NAME}_fp32.torchscript", partial(export.to_torchscript, model), ("torch",)),
        _Step(onnx, partial(export.to_onnx, model), ("torch", "onnxscript", "onnx")),
        _Step(folder / f"{NAME}_int8.onnx", partial(quantise.onnx, onnx, images=scenes), ("torch", "onnxscript", "onnx", "onnxruntime")),
        _Step(litert, partial(export.to_litert, model), ("torch", "litert-torch")),
        _Step(
            folder / f"{NAME}_int8.tflite", partial(quantise.litert, litert, images=scenes), ("torch", "litert-torch", "ai-edge-quantizer")
        ),
    ]
