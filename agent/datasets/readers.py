"""Our readers of ground truth.

They read maps, class folders, class lists, COCO's JSON, visual wake words and MLPerf Tiny's list.
"""

import hashlib
from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError, os_error_as
from edgemeter.agent.datasets import GroundTruth, Targets, required
from edgemeter.agent.datasets.class_lists import (
    ClassIndex,
    find_class_names,
    read_class_folders,
    read_class_list,
    read_tiny_list,
    text_lines,
)
from edgemeter.agent.datasets.coco import CocoDocument, read_annotations
from edgemeter.agent.datasets.items import (
    ARRAYS,
    PHOTOGRAPHS,
    head_of,
    list_photographs,
    photographs_in,
)

_OF_CLASSES = (*PHOTOGRAPHS, *ARRAYS)
MAP_SUFFIXES = (".npy", ".png")
# Endings of the name of a photograph's map. Source: Cityscapes' and ADE20K's folders.
_ENDINGS = ("", "_gtFine_labelTrainIds", "_gtFine_labelIds", "_seg", "_mask")
SMALLEST_RATIO = 0.025
_PERSON = "person"


class Maps:
    """A map for each photograph: the class of every pixel."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations are a folder with a map of at least one photograph."""
        if annotations is None or not annotations.is_dir() or not folder.is_dir():
            return False
        try:
            # YOLO labels may lie beside their photographs, and a .png is not its own map.
            return not annotations.samefile(folder) and any(
                _map_of(annotations, name) for name in photographs_in(folder)
            )
        except (ConfigError, OSError):
            return False

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        paths, identity = read_maps(folder, required(annotations))
        return GroundTruth(Targets(paths), identity, named_by="folder")


class MlperfTiny:
    """MLPerf Tiny's list of its evaluation set, `y_labels.csv`.

    It lists features or pixels (.bin), each with its class.
    """

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations have MLPerf Tiny's name."""
        return (
            annotations is not None
            and annotations.name.startswith("y_labels")
            and annotations.suffix == ".csv"
        )

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        path = required(annotations)
        return GroundTruth(read_tiny_list(path), path)


class ClassFolders:
    """ImageNet-style folders, one per class, with photographs or arrays.

    Annotations may be a list of the classes (.txt, one a line).
    """

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether there are class folders, or a list of classes rather than of files."""
        if annotations is None:
            return bool(find_class_names(folder, _OF_CLASSES))
        if annotations.suffix.lower() != ".txt" or photographs_in(folder):
            return False
        first = next((line for line in text_lines(annotations) if line.strip()), "")
        # The first line of an index names a file.
        return (
            Path(first.strip().rsplit(None, 1)[0] if first else "").suffix.lower()
            not in _OF_CLASSES
        )

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        index = read_class_folders(folder, _OF_CLASSES, annotations)
        return GroundTruth(
            index, msgspec.json.encode(index.classes, order="sorted"), named_by="folder"
        )


class ClassList:
    """A text index `file class` a line (.txt), or a table (.csv, .tsv)."""

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        return annotations is not None and annotations.suffix.lower() in (".txt", ".csv", ".tsv")

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        index = read_class_list(required(annotations))
        return GroundTruth(index, msgspec.json.encode(index.classes, order="sorted"))


class Coco:
    """COCO's annotation document, or an index `{"file": class}`, as JSON."""

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        if annotations is None or annotations.suffix.lower() == ".json":
            return annotations is not None
        return head_of(annotations, 64).removeprefix(BOM_UTF8).lstrip().startswith(b"{")

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        path = required(annotations)
        content = read_annotations(path)
        if isinstance(content, dict):
            return GroundTruth(ClassIndex(content), path)
        return GroundTruth(content, path, tuple(content.notes))


class VisualWakeWords:
    """Visual wake words, which say whether a COCO photograph shows a person.

    They follow MLPerf Tiny's rule, from COCO's annotations in a file `vww*.json`.

    Class 1: a person's box (no crowd) covers more than 2.5% of the photograph. Class 0: no person
    is annotated. Photographs with only smaller persons are left out. Source: the script that made
    MLPerf Tiny's data, `buildPersonDetectionDatabase.py` (Silicon Labs, `platform_ml_models`,
    `areaRatio=.025`).
    """

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        return (
            annotations is not None
            and annotations.name.lower().startswith("vww")
            and annotations.suffix.lower() == ".json"
        )

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        path = required(annotations)
        document = read_annotations(path)
        if isinstance(document, dict):
            raise ConfigError(
                f"{str(path)!r} is an index of classes, and visual wake words need COCO's "
                "annotations: rename it"
            )
        classes = _wake_words(document, path)
        notes = [*document.notes]
        if left_out := len(document.images) - len(classes):
            notes.append(
                f"{left_out} photographs show only persons of at most {SMALLEST_RATIO:.1%} "
                "of the photograph: left out"
            )
        return GroundTruth(ClassIndex(classes), path, tuple(notes))


def _wake_words(document: CocoDocument, path: Path) -> dict[str, int]:
    person = {
        category.id for category in document.categories if category.name.strip().lower() == _PERSON
    }
    if not person:
        raise ConfigError(
            f"the annotations {str(path)!r} have no category {_PERSON!r}: give COCO's"
        )
    largest: dict[int, float] = {}
    for annotation in document.annotations:
        if annotation.category_id in person and not annotation.iscrowd:
            largest[annotation.image_id] = max(
                largest.get(annotation.image_id, 0.0), annotation.bbox[2] * annotation.bbox[3]
            )
    classes: dict[str, int] = {}
    for image in document.images:
        if not image.width or not image.height:
            raise ConfigError(f"image {image.id} in {str(path)!r} has no width or height: add them")
        if image.id not in largest:
            classes[image.file_name] = 0
        elif largest[image.id] > SMALLEST_RATIO * image.width * image.height:
            classes[image.file_name] = 1
    return classes


def read_maps(folder: Path, annotations: Path) -> tuple[Mapping[str, Path], bytes]:
    """Return the map of each photograph by its name, and a hash over all maps.

    Raises:
        ConfigError: a photograph has no map, or one cannot be read.
    """
    paths: dict[str, Path] = {}
    identity = hashlib.sha256()
    for name in list_photographs(folder):
        path = _map_of(annotations, name)
        if path is None:
            raise ConfigError(
                f"the photograph {name!r} has no map in {str(annotations)!r}: add "
                f"{Path(name).stem}.png or .npy"
            )
        paths[name] = path
        with os_error_as(ConfigError, f"cannot read the map {str(path)!r}"):
            identity.update(bytes.fromhex(sha256_of(path)))
    return paths, identity.digest()


def _map_of(annotations: Path, photograph: str) -> Path | None:
    stem = Path(photograph).stem
    starts = dict.fromkeys((stem, stem.removesuffix("_leftImg8bit")))
    names = (
        f"{start}{ending}{suffix}"
        for start in starts
        for ending in _ENDINGS
        for suffix in MAP_SUFFIXES
    )
    return next((annotations / name for name in names if (annotations / name).is_file()), None)
