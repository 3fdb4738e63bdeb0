"""Makes the shipped detector again from nothing: `python -m edgemeter.models.builder.build --output FOLDER` (`make models`)."""

from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, os_error_as
from edgemeter.agent.base.progress import Tell, progress_bar
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import card_path
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.builder.drawn_scenes import SIZE_PX, Stream, draw_scene
from edgemeter.models.catalogue.shipped_models import SCENES, card_text, find_model
from edgemeter.models.convert.conversion_report import figures
from edgemeter.models.convert.converter_output import quiet
from edgemeter.models.convert.formats import MakerInputs
from edgemeter.models.convert.parity import image_inputs, score

# What the extra `convert` brings.
_PACKAGES = ("torch", "litert-torch", "ai-edge-quantizer", "ai-edge-litert", "onnx", "onnxruntime", "onnxscript")
_FILES = tuple(f"edgemeter-shapes_{end}" for end in ("fp32.torchscript", "fp32.onnx", "int8.onnx", "fp32.tflite", "int8.tflite"))
_CALIBRATION_SCENES = 200


@click.command()
@click.option("--output", "out", type=click.Path(path_type=Path), default=Path("edgemeter-models"), show_default=True, help="Folder.")
@click.option("--steps", type=click.IntRange(1), default=8000, show_default=True, help="Training steps.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of data and first network.")
def build_models(out: Path, steps: int, seed: int) -> None:
    """Draw scenes, train the detector, and write, quantise and score every model file.

    The same settings with the same library versions on the same kind of processor make the same models.

    Example: python -m edgemeter.models.builder.build --output /tmp/models
    """
    if missing := [name for name in _PACKAGES if find_spec(name.replace("-", "_")) is None]:
        raise UnavailableError(f"making the models needs {', '.join(missing)}: pip install 'edgemeter[convert]'")
    with os_error_as(ConfigError, f"cannot write models to {str(out)!r}", "choose another folder with --output"):
        out.mkdir(parents=True, exist_ok=True)
    with progress_bar() as report:
        accuracies = build_shipped(out, seed, steps, report)
    for name, ap in accuracies.items():
        click.echo(f"{name}: AP {ap:.4f}")


def build_shipped(folder: Path, seed: int, steps: int, report: Tell) -> dict[str, float]:
    """Return the AP of each model by the name of its file; they are written to `folder` with their cards."""
    # PyTorch comes with an extra and takes seconds to import.
    import torch

    from edgemeter.models.builder.training import fold, train
    from edgemeter.models.convert import litert_precisions, onnx_precisions
    from edgemeter.models.convert.torch_program import contiguous, to_litert, to_onnx, to_torchscript

    model = contiguous(fold(train(seed, steps, report)))
    example = torch.zeros(1, 3, SIZE_PX, SIZE_PX)
    paths = [folder / name for name in _FILES]
    with quiet():
        to_torchscript(model, example, paths[0])
        to_onnx(model, example, paths[1], ("boxes", "scores"))
        onnx_precisions.make_int8(paths[1], paths[2], MakerInputs(partial(_calibration, seed, (0, 3, 1, 2))))
        to_litert(model, example, paths[3])
        litert_precisions.make_int8(paths[3], paths[4], MakerInputs(partial(_calibration, seed, (0, 1, 2, 3))))
    origin = {
        "by": "make models",
        "seed": seed,
        "steps": steps,
        "threads": torch.get_num_threads(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "with": ", ".join(f"{package} {version(package)}" for package in _PACKAGES),
    }
    return {path.name: _describe(path, origin, report) for path in paths}


def _calibration(seed: int, axes: tuple[int, ...]) -> Iterator[NDArray[np.float32]]:
    """Yield the scenes that ranges are measured on, one after the other: float32, RGB, 0..1, the axes of [1, H, W, 3] in this order."""
    for index in range(_CALIBRATION_SCENES):
        image = draw_scene(seed, Stream.CALIBRATION, index).image.astype(np.float32)[None] / np.float32(255)
        yield np.ascontiguousarray(image.transpose(axes))


def _describe(path: Path, origin: dict[str, str | int | float], report: Tell) -> float:
    """Return the AP of the file on the shipped scenes; its card is written, which is that of the shipped file with other facts."""
    shipped = find_model(path.name).about
    facts = origin | ({"calibration_scenes": _CALIBRATION_SCENES} if shipped.precision == "int8" else {})
    about = msgspec.structs.replace(shipped, sha256=model_file.sha256(path), made=facts)
    data = open_folder(SCENES / "images", SCENES / "annotations.json")
    accuracy, runtime = score(path, runtime_for(path), image_inputs(about, data), report)
    if accuracy is None:
        raise MeasurementError(f"{path.name!r} was not scored: the shipped scenes have no annotations")
    about = msgspec.structs.replace(about, accuracy=figures(accuracy, runtime))
    card_path(path).write_text(card_text(about), encoding="utf-8")
    return accuracy.value


if __name__ == "__main__":
    build_models()
