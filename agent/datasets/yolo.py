"""YOLO labels, with a text file per photograph and a line per object.

A line is `class cx cy width height`, as ratios (0..1) of the photograph's sides.

The class names are in `classes.txt`, one a line, or in `names` of a data.yaml in its usual forms
(no YAML reader is needed).
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.links import leads_out, links_out_of
from edgemeter.agent.datasets import GroundTruth, required
from edgemeter.agent.datasets.class_lists import text_lines
from edgemeter.agent.datasets.coco import Category, CocoAnnotation, CocoDocument
from edgemeter.agent.datasets.foreign_names import AnnotatedImage
from edgemeter.agent.datasets.items import list_photographs
from edgemeter.agent.vision import photograph

CLASS_NAME_FORMS = (
    "write `names: [a, b]`, or one `- a` or `0: a` a line below `names:`, or give classes.txt "
    "with one name a line"
)
_ITEM = re.compile(r"\s*-\s+(?P<name>.+)")
_NUMBERED = re.compile(r"\s*[\"']?(?P<place>\d+)[\"']?\s*:\s*(?P<name>.+)")
# An element of an inline list: in quotes, or up to the next comma.
_ELEMENT = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,]+?)\s*(?:,|$)""")
LABEL_FORM = (
    "each line is `class cx cy width height` (or `class x1 y1 x2 y2 x3 y3 ...`), a class number "
    "and ratios between 0 and 1"
)
# Ratios may leave 0..1 by this much, the error of six digits.
_ROUNDING = 1e-5


def read_class_names(path: Path) -> tuple[str, ...]:
    """Return the class names in order.

    Raises:
        ConfigError: the file cannot be read, has no `names` in a known form, or leaves a number
            out.
    """
    lines = text_lines(path)
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    names = _of_yaml(lines, path) if is_yaml else [line.strip() for line in lines if line.strip()]
    if not names or not all(names):
        raise ConfigError(f"{str(path)!r} names no classes: {CLASS_NAME_FORMS}")
    count = next(
        (int(match[1]) for line in lines if (match := re.match(r"nc\s*:\s*(\d+)", line))),
        len(names),
    )
    if count != len(names):
        raise ConfigError(
            f"{str(path)!r} has nc: {count} and names {len(names)} classes: correct one of them"
        )
    return tuple(names)


def _of_yaml(lines: Sequence[str], path: Path) -> list[str]:
    start = next((index for index, line in enumerate(lines) if re.match(r"names\s*:", line)), None)
    if start is None:
        return []
    same_line = _uncommented(lines[start].split(":", 1)[1]).strip()
    if same_line:
        return _inline(same_line, lines[start + 1 :], path)
    # Up to the next key.
    entries = takewhile(
        lambda line: not line or line[0].isspace() or line[0] == "-",
        map(_uncommented, lines[start + 1 :]),
    )
    below = [line for line in entries if line]
    if below and all(_ITEM.fullmatch(line) for line in below):
        return [_unquoted(match["name"]) for line in below if (match := _ITEM.fullmatch(line))]
    return _numbered([_NUMBERED.fullmatch(line) for line in below], path)


def _inline(text: str, below: Sequence[str], path: Path) -> list[str]:
    """Return the elements of a list or mapping in brackets, on one or more lines."""
    closing = {"[": "]", "{": "}"}.get(text[0])
    for line in below:
        if closing is None or text.endswith(closing):
            break
        text = f"{text} {_uncommented(line).strip()}"
    if closing is None or not text.endswith(closing):
        raise ConfigError(f"{str(path)!r} has names in an unsupported form: {CLASS_NAME_FORMS}")
    elements = [element.strip() for element in _ELEMENT.findall(text[1:-1]) if element.strip()]
    if closing == "]":
        return [_unquoted(element) for element in elements]
    return _numbered([_NUMBERED.fullmatch(element) for element in elements], path)


def _numbered(matches: Sequence[re.Match[str] | None], path: Path) -> list[str]:
    by_place = {int(match["place"]): _unquoted(match["name"]) for match in matches if match}
    if len(by_place) != len(matches) or sorted(by_place) != list(range(len(matches))):
        raise ConfigError(
            f"{str(path)!r} does not name the classes 0 to {len(matches) - 1} once each in a "
            f"supported form: {CLASS_NAME_FORMS}"
        )
    return [by_place[number] for number in range(len(matches))]


def _uncommented(line: str) -> str:
    """Return the line without a comment, which begins at ` #` outside quotes."""
    match = re.match(r"""(?:[^"'#]|"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|(?<=\S)#|(?<=\w)')*""", line)
    return (match[0] if match else line).rstrip()


def _unquoted(name: str) -> str:
    name = name.strip()
    if len(name) < 2 or name[0] != name[-1] or name[0] not in "\"'":
        return name
    return name[1:-1].replace("''", "'") if name[0] == "'" else re.sub(r"\\(.)", r"\1", name[1:-1])


@dataclass(frozen=True, slots=True)
class YoloLabels:
    """The folder of the labels, and the file of the class names."""

    folder: Path
    names: Path

    def of(self, photograph: str) -> Path:
        """Return the label file of a photograph, which may not exist."""
        return self.folder / f"{Path(photograph).stem}.txt"


class Yolo:
    """YOLO labels: their folder, or data.yaml, or classes.txt as annotations."""

    def recognises(self, _folder: Path, annotations: Path | None) -> bool:
        return annotations is not None and (
            annotations.is_dir()
            or annotations.suffix.lower() in (".yaml", ".yml")
            or annotations.name == "classes.txt"
        )

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        document, odd = read_labels(folder, required(annotations), list_photographs(folder))
        return GroundTruth(document, msgspec.json.encode(document), odd, "folder")


def read_labels(
    images: Path, annotations: Path, photographs: Sequence[str]
) -> tuple[CocoDocument, tuple[str, ...]]:
    """Return the labels of these photographs in the folder `images` as a document.

    The labels' oddities are counted and returned too.

    Raises:
        ConfigError: labels or class names are not found, or a line is wrong.
    """
    labels = find_labels(images, annotations)
    names = read_class_names(labels.names)
    annotations_found: list[CocoAnnotation] = []
    pictures, twice, unlabelled = [], 0, 0
    for number, name in enumerate(photographs, 1):
        width, height = photograph.size(images / name)
        pictures.append(AnnotatedImage(id=number, file_name=name, width=width, height=height))
        file = labels.of(name)
        if not file.is_file():
            unlabelled += 1
            continue
        rows = _rows(file, len(names))
        distinct = list(dict.fromkeys(rows))
        twice += len(rows) - len(distinct)
        annotations_found += [
            _annotation(row, len(annotations_found) + offset, number, width, height)
            for offset, row in enumerate(distinct, 1)
        ]
    if unlabelled == len(photographs):
        raise ConfigError(
            f"none of the {unlabelled} photographs in {str(images)!r} has labels in "
            f"{str(labels.folder)!r}: give the folder of their labels"
        )
    categories = [Category(id=number, name=name) for number, name in enumerate(names)]
    oddities = {
        (
            f"{unlabelled} of {len(photographs)} photographs have no label file: they count as "
            "showing no objects"
        ): unlabelled,
        f"{twice} label lines are repeated: each object counts once": twice,
    }
    return (
        CocoDocument(images=pictures, annotations=annotations_found, categories=categories),
        tuple(text for text, count in oddities.items() if count),
    )


def find_labels(images: Path, annotations: Path) -> YoloLabels:
    """Return the label folder and the class names of these photographs.

    Raises:
        ConfigError: either is not found.
    """
    if not annotations.exists():
        raise ConfigError(
            f"no labels at {str(annotations)!r}: give the folder of labels, data.yaml or "
            "classes.txt as annotations"
        )
    names = annotations if annotations.is_file() else None
    folders = [annotations] if annotations.is_dir() else _label_folders(images)
    shared = {
        path: Path(os.path.commonpath((path.absolute(), images.absolute()))) for path in folders
    }
    # Nobody named a folder of another name: a link to it does not lead out of what it shares with
    # the photographs.
    folder = next(
        (
            path
            for path in folders
            if path.is_dir() and (path == annotations or not leads_out(path, shared[path]))
        ),
        None,
    )
    if folder is None:
        raise ConfigError(
            f"no labels for {str(images)!r}: neither "
            f"{' nor '.join(repr(str(candidate)) for candidate in folders)} is a folder; "
            "give the folder of labels as annotations"
        )
    links_out_of(folder)
    if names is None:
        paths = [
            above / name
            for above in (folder, *folder.absolute().parents[:2])
            for name in ("classes.txt", "data.yaml")
        ]
        # As above, for those in other folders.
        names = next(
            (
                path
                for path in paths
                if path.is_file() and (path.parent == folder or not leads_out(path, path.parent))
            ),
            None,
        )
    if names is None:
        raise ConfigError(
            f"the classes of the labels in {str(folder)!r} have no names: put classes.txt (one "
            "name a line) beside them"
        )
    return YoloLabels(folder, names)


def _label_folders(images: Path) -> list[Path]:
    """Return the candidates for the label folder.

    They are the path with `labels` in place of the last `images`, and `labels` beside the folder.
    """
    parts = list(images.absolute().parts)
    swapped = []
    if "images" in parts:
        last = len(parts) - 1 - parts[::-1].index("images")
        swapped = [Path(*parts[:last], "labels", *parts[last + 1 :])]
    return list(dict.fromkeys([*swapped, images.absolute().parent / "labels"]))


def _rows(file: Path, classes: int) -> list[tuple[int, float, float, float, float]]:
    """Return class and x1, y1, x2, y2 (as ratios of the photograph's sides) of every object."""
    rows = []
    for number, line in enumerate(text_lines(file), 1):
        if not line.strip():
            continue
        try:
            first, *values = (float(word) for word in line.split())
        except ValueError:
            first, values = -1.0, []
        is_box, is_outline = len(values) == 4, len(values) >= 6 and len(values) % 2 == 0
        if (
            not (is_box or is_outline)
            or not first.is_integer()
            or not all(-_ROUNDING <= v <= 1 + _ROUNDING for v in values)
        ):
            raise ConfigError(
                f"the labels {str(file)!r}: line {number} is {line[:80]!r}: {LABEL_FORM}"
            )
        if not 0 <= first < classes:
            raise ConfigError(
                f"the labels {str(file)!r}: line {number} is of class {first:g}, there are "
                f"{classes} names: correct one of them"
            )
        if is_box:
            x, y, width, height = values
            rows.append((int(first), x - width / 2, y - height / 2, x + width / 2, y + height / 2))
        else:
            rows.append(
                (
                    int(first),
                    min(values[::2]),
                    min(values[1::2]),
                    max(values[::2]),
                    max(values[1::2]),
                )
            )
    return rows


def _annotation(
    row: tuple[int, float, float, float, float], number: int, image: int, width: int, height: int
) -> CocoAnnotation:
    x1, y1, x2, y2 = row[1] * width, row[2] * height, row[3] * width, row[4] * height
    box = (x1, y1, x2 - x1, y2 - y1)
    return CocoAnnotation(
        id=number,
        image_id=image,
        category_id=row[0],
        bbox=box,
        area=max(box[2], 0.0) * max(box[3], 0.0),
    )
