"""Our readers of ground truth, each recognised by its content: maps, DOTA and YOLO labels, class folders, class lists, COCO's JSON."""

from codecs import BOM_UTF8
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import GroundTruth, Targets, dota, maps, yolo
from edgemeter.agent.datasets.class_lists import ClassIndex, find_class_names, read_class_folders, read_class_list, text_lines
from edgemeter.agent.datasets.coco import annotation_oddities, read_annotations
from edgemeter.agent.datasets.items import SOUND
from edgemeter.agent.datasets.photographs import SUFFIXES, list_photographs, photographs_in

# Class folders hold photographs or recordings.
_OF_CLASSES = (*SUFFIXES, *SOUND)


class Maps:
    """A map for each photograph: the class or the depth of every pixel."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations are a folder with a map of one of the photographs."""
        return maps.holds_maps(folder, annotations)

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the file of each photograph's map: the task reads it."""
        found, identity = maps.read_maps(folder, _given(annotations))
        return GroundTruth(Targets(found), identity, named_by="folder")


class Dota:
    """DOTA's labels of oriented boxes: the folder of the text files."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations are a folder of such labels."""
        return dota.holds_labels(folder, annotations)

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the objects of all photographs in the folder."""
        objects = dota.read_labels(folder, _given(annotations))
        return GroundTruth(Targets(objects), msgspec.json.encode(objects, order="sorted"), named_by="folder")


class Yolo:
    """YOLO labels: their folder, or data.yaml, or classes.txt as annotations."""

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations are a folder, YAML or classes.txt."""
        return annotations is not None and yolo.are_named_by(annotations)

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the boxes of all photographs in the folder."""
        document, odd = yolo.read_labels(folder, _given(annotations), list_photographs(folder))
        return GroundTruth(document, msgspec.json.encode(document), (*odd, *annotation_oddities(document)), "folder")


class ClassFolders:
    """ImageNet-style folders, one per class; a list of the classes (.txt, one a line) may be given as annotations."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether there are class folders and, with annotations, these are a list of classes rather than of files."""
        if annotations is None:
            return bool(find_class_names(folder, _OF_CLASSES))
        return annotations.suffix.lower() == ".txt" and not photographs_in(folder) and not _is_index(annotations)

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the class of every photograph in the folders."""
        return _of_index(read_class_folders(folder, _OF_CLASSES, annotations), by_folder=True)


class ClassList:
    """A text index `file class` a line (.txt), or a table (.csv, .tsv)."""

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations end in .txt, .csv or .tsv."""
        return annotations is not None and annotations.suffix.lower() in (".txt", ".csv", ".tsv")

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the class of every photograph that the index names."""
        return _of_index(read_class_list(_given(annotations)), by_folder=False)


class Coco:
    """COCO's annotation document, or an index `{"file": class}`, as JSON."""

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations end in .json or begin as a JSON object does."""
        if annotations is None or annotations.suffix.lower() == ".json":
            return annotations is not None
        try:
            with annotations.open("rb") as file:
                return file.read(64).removeprefix(BOM_UTF8).lstrip().startswith(b"{")
        except OSError:
            return False

    def read(self, _folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the boxes of the document, or the classes of the index."""
        path = _given(annotations)
        content = read_annotations(path)
        if isinstance(content, dict):
            return GroundTruth(ClassIndex(content), path)
        if unnamed := sum(image.file_name is None for image in content.images):
            raise ConfigError(
                f"{unnamed} of the {len(content.images)} images in {str(path)!r} have no file_name: add it, or score detections only"
            )
        return GroundTruth(content, path, annotation_oddities(content))


def _of_index(index: ClassIndex, *, by_folder: bool) -> GroundTruth:
    return GroundTruth(index, msgspec.json.encode(index.classes, order="sorted"), named_by="folder" if by_folder else "annotations")


def _is_index(path: Path) -> bool:
    """Return whether the first line of a text names a photograph."""
    first = next((line for line in text_lines(path) if line.strip()), "")
    return Path(first.strip().rsplit(None, 1)[0] if first else "").suffix.lower() in SUFFIXES


def _given(annotations: Path | None) -> Path:
    if annotations is None:
        raise ConfigError("this format of ground truth needs a file of annotations: give it as annotations")
    return annotations
