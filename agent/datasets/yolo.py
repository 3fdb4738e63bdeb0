"""YOLO labels: for every photograph a text file of its name, a line per object: `class cx cy width height`, shares (0..1) of its sides.

A line may also be an outline (`class x1 y1 x2 y2 x3 y3 ...`), whose box is taken. A photograph without a label file, or with an empty one,
shows no objects and counts. The names of the classes stand in `classes.txt`, one a line, or under `names` in `data.yaml`; of YAML only the
usual forms of `names` are read (`[a, b]`, `{0: a}`, one `- a` or `0: a` a line), everything else in the file is passed over.
Source: https://docs.ultralytics.com/datasets/detect/
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.datasets import yolo_names
from edgemeter.agent.datasets.class_index import text_lines
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.vision import photograph
from edgemeter.agent.vision.annotations import Annotation, Category, Document, Image

FORM = "each line is `class cx cy width height` (or `class x1 y1 x2 y2 x3 y3 ...`), a class number and shares between 0 and 1"
# How far a share may leave 0..1: what rounding to six digits costs, and no more.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class Labels:
    """Where the labels lie, and the file that says what the classes are called."""

    folder: Path
    names: Path

    def of(self, photograph: str) -> Path:
        """Return where the labels of a photograph lie, where it has any."""
        return self.folder / f"{Path(photograph).stem}.txt"


def is_said_by(annotations: Path) -> bool:
    """Return whether annotations at that place are YOLO's: a folder of labels, data.yaml or classes.txt."""
    return annotations.is_dir() or annotations.suffix.lower() in (".yaml", ".yml") or annotations.name == "classes.txt"


def read(images: Path, said: Path, photographs: Sequence[str]) -> tuple[Document, tuple[str, ...]]:
    """Return the labels of these photographs as a document, and what was odd about them, counted.

    Args:
        images: the folder of photographs.
        said: data.yaml or classes.txt, or the folder of labels.
        photographs: names of the photographs.

    Raises:
        ConfigError: labels or names of classes are not found, or a line is wrong; says which.
    """
    labels = find(images, said)
    names = yolo_names.read(labels.names)
    found: list[Annotation] = []
    pictures, twice, unlabelled = [], 0, 0
    for number, name in enumerate(photographs, 1):
        width, height = photograph.size(images / name)
        pictures.append(Image(id=number, file_name=name, width=width, height=height))
        file = labels.of(name)
        if not file.is_file():
            unlabelled += 1
            continue
        rows = _rows(file, len(names))
        distinct = list(dict.fromkeys(rows))
        twice += len(rows) - len(distinct)
        found += [_annotation(row, len(found) + place, number, width, height) for place, row in enumerate(distinct, 1)]
    if unlabelled == len(photographs):
        message = (
            f"none of the {unlabelled} photographs in {str(images)!r} has labels in {str(labels.folder)!r}: give the folder of their labels"
        )
        raise ConfigError(message)
    categories = [Category(id=place, name=name) for place, name in enumerate(names)]
    return Document(images=pictures, annotations=found, categories=categories), _odd(len(photographs), unlabelled, twice)


def _odd(photographs: int, unlabelled: int, twice: int) -> tuple[str, ...]:
    said = []
    if unlabelled:
        said.append(f"{unlabelled} of {photographs} photographs have no label file: they count as showing no objects")
    if twice:
        said.append(f"{twice} label lines stand there twice: each object counts once")
    return tuple(said)


def find(images: Path, said: Path) -> Labels:
    """Return where the labels of these photographs lie.

    Raises:
        ConfigError: there are none, or nothing says what the classes are called.
    """
    names = said if said.is_file() else None
    folders = [said] if said.is_dir() else _label_folders(images)
    folder = next((one for one in folders if one.is_dir()), None)
    if folder is None:
        message = (
            f"no labels for {str(images)!r}: neither {' nor '.join(repr(str(one)) for one in folders)} is a folder; "
            "give the folder of labels as annotations"
        )
        raise ConfigError(message)
    if names is None:
        places = [place for above in (folder, *folder.absolute().parents[:2]) for place in (above / "classes.txt", above / "data.yaml")]
        names = next((place for place in places if place.is_file()), None)
    if names is None:
        message = f"the classes of the labels in {str(folder)!r} have no names: put classes.txt (one name a line) beside them"
        raise ConfigError(message)
    return Labels(folder, names)


def _label_folders(images: Path) -> list[Path]:
    """Return where labels may lie: `labels` in the place of the last `images` of the path, else beside the folder."""
    parts = list(images.absolute().parts)
    swapped = []
    if "images" in parts:
        last = len(parts) - 1 - parts[::-1].index("images")
        swapped = [Path(*parts[:last], "labels", *parts[last + 1 :])]
    return list(dict.fromkeys([*swapped, images.absolute().parent / "labels"]))


def _rows(file: Path, classes: int) -> list[tuple[int, float, float, float, float]]:
    """Return class and x1, y1, x2, y2 (shares of the photograph) of every object.

    Raises:
        ConfigError: a line is not of that form.
    """
    rows = []
    for number, line in enumerate(text_lines(file), 1):
        if not line.strip():
            continue
        try:
            first, *values = (float(word) for word in line.split())
        except ValueError:
            first, values = -1.0, []
        is_box, is_outline = len(values) == 4, len(values) >= 6 and len(values) % 2 == 0
        if not (is_box or is_outline) or not first.is_integer() or not all(-_ROUNDING <= v <= 1 + _ROUNDING for v in values):
            message = f"the labels {str(file)!r}: line {number} is {line[:80]!r}: {FORM}"
            raise ConfigError(message)
        if not 0 <= first < classes:
            message = f"the labels {str(file)!r}: line {number} is of class {first:g}, there are {classes} names: correct one of them"
            raise ConfigError(message)
        rows.append((int(first), *(_box(values) if is_box else _around(values))))
    return rows


def _box(values: Sequence[float]) -> tuple[float, float, float, float]:
    x, y, width, height = values
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _around(values: Sequence[float]) -> tuple[float, float, float, float]:
    return min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])


def _annotation(row: tuple[int, float, float, float, float], number: int, image: int, width: int, height: int) -> Annotation:
    x1, y1, x2, y2 = row[1] * width, row[2] * height, row[3] * width, row[4] * height
    box = (x1, y1, x2 - x1, y2 - y1)
    return Annotation(id=number, image_id=image, category_id=row[0], bbox=box, area=max(box[2], 0.0) * max(box[3], 0.0))
