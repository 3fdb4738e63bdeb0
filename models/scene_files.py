"""The validation scenes as files: PNG images and one COCO annotation document."""

from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.models.progress import Tell
from edgemeter.models.scene import SIZE_PX, Scene, Stream, draw
from edgemeter.models.shapes import CLASSES

# What ships was drawn with these. The training and calibration streams of the same seed share no scene with it.
SHIPPED_SEED = 1
SHIPPED_COUNT = 112
FOLDER = Path(__file__).parent / "scenes"
ANNOTATIONS = "annotations.json"
IMAGES = "images"


def file_name(index: int) -> str:
    """Return what the image of scene `index` is called."""
    return f"scene_{index:03}.png"


def annotations(scenes: list[Scene]) -> bytes:
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


def write(folder: Path, seed: int, count: int, tell: Tell, stream: Stream = Stream.VALIDATION) -> None:
    """Draw scenes of `seed` into `folder`: `images/scene_NNN.png` and `annotations.json`.

    Raises:
        ConfigError: the folder cannot be written.
        UnavailableError: Pillow is not installed.
    """
    imaging = _pillow()
    scenes = []
    try:
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            scenes.append(draw(seed, stream, index))
            imaging.fromarray(scenes[-1].image).save(folder / IMAGES / file_name(index), "PNG", optimize=True)
            tell(f"drawing {stream.name.lower()} scenes", index + 1, count)
        (folder / ANNOTATIONS).write_bytes(annotations(scenes))
    except OSError as error:
        message = f"cannot write scenes to {str(folder)!r}: {error.strerror}; choose another folder with --out"
        raise ConfigError(message) from error


def _objects(index: int, scene: Scene) -> list[dict[str, Any]]:
    """Return the annotations of one scene, without their ids."""
    found = []
    for box, label, area_px in zip(scene.boxes.tolist(), scene.classes.tolist(), scene.areas_px.tolist(), strict=True):
        x1, y1, x2, y2 = (int(edge) for edge in box)
        found.append({"image_id": index + 1, "category_id": label + 1, "bbox": [x1, y1, x2 - x1, y2 - y1], "area": area_px, "iscrowd": 0})
    return found


def _pillow() -> Any:
    """Return Pillow's image module.

    Raises:
        UnavailableError: it is not installed.
    """
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        message = "writing scenes needs Pillow: pip install 'edgemeter[vision]'"
        raise UnavailableError(message) from error
