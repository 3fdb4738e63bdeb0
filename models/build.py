"""The shipped models from nothing: draw, train, convert, score, and write a card for each file."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from edgemeter.agent.dataset import Dataset, open_folder
from edgemeter.agent.engine.suites import runtime_for
from edgemeter.agent.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import model_file
from edgemeter.models import card_file, catalogue, scene_files
from edgemeter.models.convert import describe
from edgemeter.models.convert.answers import Pictures, ask
from edgemeter.models.convert.verdict import LIMITS
from edgemeter.models.progress import Tell
from edgemeter.models.recipe import NAME, Recipe
from edgemeter.models.scene import SIZE_PX
from edgemeter.models.shapes import CLASSES

# By import name: what the extra `convert` brings.
NEEDED = ("torch", "litert_torch", "ai_edge_quantizer", "ai_edge_litert", "onnx", "onnxruntime", "onnxscript", "PIL", "hotcoco")


def build(out: Path, recipe: Recipe, tell: Tell) -> list[catalogue.ModelFile]:
    """Make `out/scenes` and `out/shipped`, and return the models.

    Raises:
        UnavailableError: a library of the extra `convert` is not installed.
        ConfigError: `out` cannot be written.
        MeasurementError: a file scores too far from the trained network; the files and their cards are there to look at.
    """
    _require(NEEDED)
    # PyTorch comes with an extra and takes seconds to import.
    from edgemeter.models.conversion import train_and_convert  # noqa: PLC0415

    folder = _folder(out / "shipped")
    scene_files.write(out / "scenes", recipe.seed, recipe.scenes, tell)
    data = open_folder(out / "scenes" / scene_files.IMAGES, out / "scenes" / scene_files.ANNOTATIONS)
    made = train_and_convert(folder, recipe, tell)
    models = [_describe(path, facts, data, tell) for path, facts in made.items()]
    check_drift(models)
    return models


def check_drift(models: Sequence[catalogue.ModelFile]) -> None:
    """Compare what the files score with the first of them.

    Raises:
        MeasurementError: one scores further from it than its precision explains.
    """
    scores = {model.path.name: float(model.about.accuracy["value"]) for model in models}
    first = models[0].path.name
    lost = [
        f"{model.path.name} {scores[model.path.name]:.3f}"
        for model in models
        if abs(scores[model.path.name] - scores[first]) > LIMITS[model.about.precision].lost
    ]
    if lost:
        message = (
            f"not the AP of {first}, {scores[first]:.3f}: {', '.join(lost)}; train longer (--steps) or change the converters' versions"
        )
        raise MeasurementError(message)


def _describe(path: Path, made: Mapping[str, str | int | float], data: Dataset, tell: Tell) -> catalogue.ModelFile:
    """Score the file, write its card, and return both."""
    from edgemeter.models.detector import STRIDES  # noqa: PLC0415 - PyTorch again

    about = card.Card(
        name=NAME,
        task="detection",
        family="edgemeter",
        precision=path.stem.rpartition("_")[2],
        sha256=model_file.sha256(path),
        licence="Apache-2.0",
        source="trained on drawn scenes: edgemeter.models.scene",
        input=card.Input(height=SIZE_PX, width=SIZE_PX, layout="NHWC" if path.suffix == ".tflite" else "NCHW"),
        output=card.Output(
            classes=len(CLASSES), labels=tuple(CLASSES), score_threshold=0.01, nms_iou=0.6, max_detections=100, strides=STRIDES
        ),
        made=dict(made),
    )
    answered = ask(path, runtime_for(path), Pictures(about, data), lambda *_: None, tell)
    if answered.accuracy is None:
        message = f"{path.name!r} cannot be scored on {data.name!r}: the data set has no ground truth"
        raise MeasurementError(message)
    scored = msgspec.structs.replace(about, accuracy=describe.figures(answered.accuracy, answered.runtime))
    card.beside(path).write_text(card_file.text(scored), encoding="utf-8")
    return catalogue.ModelFile(path, scored)


def _require(modules: Sequence[str]) -> None:
    """Raise UnavailableError unless all modules are installed."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        message = f"making the models needs {', '.join(missing)}: pip install 'edgemeter[convert]'"
        raise UnavailableError(message)


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write models to {str(path)!r}: {error.strerror}; choose another folder with --out"
        raise ConfigError(message) from error
    return path
