"""The shipped scenes and models from nothing: draw, train, convert, score, and write a card for each file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Card, CardOutput, ImageInput, card_path
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.datasets.dataset import Dataset, open_folder
from edgemeter.models.builder.drawn_scenes import ANNOTATIONS, IMAGES, SIZE_PX, Scene, Stream, file_name, write_scenes
from edgemeter.models.builder.recipe import MODEL_NAME, NEEDED, STRIDES, Recipe, require
from edgemeter.models.builder.scene_shapes import CLASSES
from edgemeter.models.catalogue.shipped_models import ModelFile, card_text
from edgemeter.models.convert.conversion_report import figures
from edgemeter.models.convert.parity import LIMITS, image_inputs, score


def build_shipped(out: Path, recipe: Recipe, report: Tell) -> list[ModelFile]:
    """Make `out/scenes` and `out/shipped`, and return the models.

    Raises:
        UnavailableError: a library of the extra `convert` is not installed.
        ConfigError: `out` cannot be written.
        MeasurementError: a file scores too far from the trained network; the files and their cards are kept.
    """
    require(NEEDED)
    # PyTorch comes with an extra and takes seconds to import.
    from edgemeter.models.builder.training import train_and_convert  # noqa: PLC0415

    folder = _folder(out / "shipped")
    write_annotated(out / "scenes", recipe.seed, recipe.scenes, report)
    data = open_folder(out / "scenes" / IMAGES, out / "scenes" / ANNOTATIONS)
    facts_by_path = train_and_convert(folder, recipe, report)
    models = [_describe(path, facts, data, report) for path, facts in facts_by_path.items()]
    check_drift(models)
    return models


def write_annotated(folder: Path, seed: int, count: int, report: Tell) -> None:
    """Draw validation scenes into `folder`: `images/scene_NNN.png` and `annotations.json`."""
    scenes = write_scenes(folder, seed, count, report, Stream.VALIDATION)
    (folder / ANNOTATIONS).write_bytes(annotations(scenes))


def annotations(scenes: Sequence[Scene]) -> bytes:
    """Return the COCO document of these scenes, the same bytes for the same scenes everywhere."""
    document = {
        "info": {"description": "Edgemeter scenes: drawn shapes among clutter; boxes and areas of what is visible", "version": "1"},
        "licenses": [{"id": 1, "name": "Apache-2.0"}],
        "images": [
            {"id": index + 1, "file_name": file_name(index), "width": SIZE_PX, "height": SIZE_PX, "license": 1}
            for index in range(len(scenes))
        ],
        "annotations": [
            {"id": number, **annotation}
            for number, annotation in enumerate((a for index, scene in enumerate(scenes) for a in _objects(index, scene)), 1)
        ],
        "categories": [{"id": index + 1, "name": name} for index, name in enumerate(CLASSES)],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=0) + b"\n"


def _objects(index: int, scene: Scene) -> list[dict[str, Any]]:
    """Return the annotations of one scene, without their ids."""
    annotations_of_scene = []
    for box, label, area_px in zip(scene.boxes.tolist(), scene.classes.tolist(), scene.areas_px.tolist(), strict=True):
        x1, y1, x2, y2 = (int(edge) for edge in box)
        annotations_of_scene.append(
            {"image_id": index + 1, "category_id": label + 1, "bbox": [x1, y1, x2 - x1, y2 - y1], "area": area_px, "iscrowd": 0}
        )
    return annotations_of_scene


def check_drift(models: Sequence[ModelFile]) -> None:
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
        raise MeasurementError(
            f"not the AP of {first}, {scores[first]:.3f}: {', '.join(lost)}; train longer (--steps) or change the converters' versions"
        )


def _describe(path: Path, facts: Mapping[str, str | int | float], data: Dataset, report: Tell) -> ModelFile:
    """Score the file, write its card, and return both."""
    about = Card(
        name=MODEL_NAME,
        task="detection",
        family="edgemeter",
        precision=path.stem.rpartition("_")[2],
        sha256=model_file.sha256(path),
        licence="Apache-2.0",
        source="trained on drawn scenes: models/builder/drawn_scenes.py",
        input=ImageInput(height=SIZE_PX, width=SIZE_PX, layout="NHWC" if path.suffix == ".tflite" else "NCHW"),
        output=CardOutput(classes=len(CLASSES), labels=tuple(CLASSES), score_threshold=0.01, nms_iou=0.6, strides=STRIDES),
        made=dict(facts),
    )
    accuracy, runtime = score(path, runtime_for(path), image_inputs(about, data), report)
    if accuracy is None:
        raise MeasurementError(f"{path.name!r} cannot be scored on {data.name!r}: the data set has no ground truth")
    scored = msgspec.structs.replace(about, accuracy=figures(accuracy, runtime))
    card_path(path).write_text(card_text(scored), encoding="utf-8")
    return ModelFile(path, scored)


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write models to {str(path)!r}: {error.strerror}; choose another folder with --output") from error
    return path
