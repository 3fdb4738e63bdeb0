"""Visual wake words: whether a photograph of COCO shows a person, by MLPerf Tiny's rule.

Class 1, a person: the box of a person (no crowd) covers more than 2.5% of the photograph. Class 0: nobody is annotated. A photograph whose
persons are all smaller belongs to neither, and is left out.
Source: the script that made MLPerf Tiny's data, `buildPersonDetectionDatabase.py` (Silicon Labs, `platform_ml_models`, `areaRatio=.025`).
"""

from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import GroundTruth
from edgemeter.agent.datasets.class_lists import ClassIndex
from edgemeter.agent.datasets.coco import CocoDocument, read_annotations

SMALLEST_RATIO = 0.025
_PERSON = "person"


class VisualWakeWords:
    """COCO's annotations as classes; recognised where the file's name begins with `vww`, else by `--reader visual-wake-words`."""

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations are JSON whose name begins with `vww`."""
        return annotations is not None and annotations.name.lower().startswith("vww") and annotations.suffix.lower() == ".json"

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        """Return for each photograph that counts whether it shows a person."""
        if annotations is None:
            raise ConfigError("visual wake words need COCO's annotations: give --annotations FILE")
        document = read_annotations(annotations)
        if isinstance(document, dict):
            raise ConfigError(f"{str(annotations)!r} is an index of classes, and the reader needs COCO's annotations: leave --reader out")
        classes = _classes(document, annotations)
        left_out = len(document.images) - len(classes)
        odd = (f"{left_out} photographs show only persons of at most {SMALLEST_RATIO:.1%} of the photograph: left out",) if left_out else ()
        return GroundTruth(ClassIndex(classes), annotations, odd)


def _classes(document: CocoDocument, path: Path) -> dict[str, int]:
    person = {category.id for category in document.categories if category.name.strip().lower() == _PERSON}
    if not person:
        raise ConfigError(f"the annotations {str(path)!r} have no category {_PERSON!r}: give COCO's")
    largest: dict[int, float] = {}
    for one in document.annotations:
        if one.category_id in person and not one.iscrowd:
            largest[one.image_id] = max(largest.get(one.image_id, 0.0), one.bbox[2] * one.bbox[3])
    classes: dict[str, int] = {}
    for image in document.images:
        if image.file_name is None or not image.width or not image.height:
            raise ConfigError(f"image {image.id} in {str(path)!r} has no file_name, width or height: add them")
        if image.id not in largest:
            classes[image.file_name] = 0
        elif largest[image.id] > SMALLEST_RATIO * image.width * image.height:
            classes[image.file_name] = 1
    return classes
