"""Detectors that answer in one tensor [1, a, b]: YOLO's many heads, NanoDet-Plus, RT-DETR as Ultralytics exports it."""

from collections.abc import Sequence

from edgemeter.agent.recognition import file_name
from edgemeter.agent.recognition.family import COCO_CLASSES, Family, Shape, UnknownFamilyError, in_words, unnamed
from edgemeter.agent.recognition.self_description import SelfDescription
from edgemeter.agent.vision import grid
from edgemeter.agent.vision.decoders import nanodet

_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))
_PLUS_STRIDES = nanodet.PLUS_STRIDES
_EDGE_VALUES = 4 * nanodet.STEPS
_MORE_EDGE_VALUES = 4 * nanodet.MORE_STEPS
_END_TO_END = 6
MOST_QUERIES = 1000
_SIDES = range(32, 2049, 32)


def side_of(shapes: Sequence[Shape]) -> int | None:
    """Return the side of the square input (32, 64 .. 2048 pixels) whose YOLO grid has as many cells as an output has anchors."""
    # The longer axis; where one is open, the other is that of the classes.
    longest = {max(shape[1] or 0, shape[2] or 0) for shape in shapes if len(shape) == 3 and None not in shape[1:]}
    found = [side for side in _SIDES if longest & {times * cells for cells in grids((side, side))[:2] for times in (1, 3)}]
    return found[0] if len(found) == 1 else None


def grids(size: tuple[int, int]) -> list[int]:
    """Return how many cells the usual grids have on an input of this height and width."""
    return [grid.count(*size, strides) for strides in _STRIDES]


def find(shape: Shape, size: tuple[int, int] | None, name: str, said: SelfDescription) -> Family | None:
    """Return the family of a model with this output, None where it is none of them.

    Args:
        shape: of the output.
        size: height and width of the input, None where the file leaves them open.
        name: of the file.
        said: what the file says of itself.

    Raises:
        UnknownFamilyError: what the file says of itself contradicts it.
    """
    rows, columns = shape[1:]
    known, labels = file_name.said_family(name, said), len(said.labels)
    cells = grids(size) if size else []
    why = f"its output {in_words([shape])}"
    found = (
        _open(rows, columns, known, said, why)
        or _nanodet(rows, columns, size, known, labels, why)
        or _set(rows, columns, cells, known, said, why)
        or _anchors_last(rows, columns, cells, known, labels, why)
        or _anchors_first(rows, columns, cells, known, labels, why)
    )
    return None if found is None else _checked(found, said, name)


def _open(rows: int | None, columns: int | None, known: str | None, said: SelfDescription, why: str) -> Family | None:
    """Return what the file's name and words tell of an output whose sizes are all open."""
    if rows is not None or columns is not None:
        return None
    # Of what Ultralytics exports and no name tells, most have YOLOv8's head.
    family = known or ("yolov8" if said.is_end_to_end is False else None)
    if family is None:
        return None
    classes = len(said.labels) or COCO_CLASSES
    doubt = f"family {family} from the file's name or words, its output shows no size; `family` says"
    return Family(family, "detection", classes, why, (doubt, *(() if said.labels else (unnamed(classes),))))


def _nanodet(
    rows: int | None, columns: int | None, size: tuple[int, int] | None, known: str | None, labels: int, why: str
) -> Family | None:
    """Return NanoDet(-Plus), whose rows hold the scores and four distributions of eight values."""
    for strides in (_PLUS_STRIDES, _STRIDES[0]):
        cells = grid.count(*size, strides) if size else None
        for number, width in ((rows, columns), (columns, rows)):
            if width is None or width <= _EDGE_VALUES or number is None or number != cells:
                continue
            classes = width - _EDGE_VALUES
            # Of a width that is 80 classes and longer distributions the other reading would be 92 classes.
            if known == "nanodet" and width - _MORE_EDGE_VALUES == (labels or COCO_CLASSES):
                classes = width - _MORE_EDGE_VALUES
            if known == "nanodet" or (known is None and classes == (labels or COCO_CLASSES)):
                doubts = () if labels else (unnamed(classes),)
                return Family("nanodet", "detection", classes, why, doubts, strides)
    return None


def _set(rows: int | None, columns: int | None, cells: list[int], known: str | None, said: SelfDescription, why: str) -> Family | None:
    """Return an end-to-end YOLO or an RT-DETR, whose rows are not cells of a grid."""
    is_grid = rows is not None and (rows in cells or rows in [3 * count for count in cells] or rows > MOST_QUERIES)
    labels = len(said.labels)
    is_list = columns == _END_TO_END and not is_grid and (rows is not None or known is not None or labels != 1)
    if is_list and known in (None, "yolo26", "yolov8", "detr"):
        doubts = () if labels else (unnamed(COCO_CLASSES),)
        return Family("detr" if known == "detr" else "yolo26", "detection", labels or COCO_CLASSES, why, doubts)
    if rows is None or columns is None or is_grid or not cells or rows < columns or columns <= 5 or known not in (None, "detr"):
        return None
    classes = columns - 4
    if known == "detr" or classes in (labels, COCO_CLASSES):
        doubt = "RT-DETR's head, boxes as 0..1 beside scores: its rows are no grid; `family` and [input] say"
        doubts = () if known else (doubt,)
        return Family("detr", "detection", classes, why, (*doubts, *(() if labels else (unnamed(classes),))))
    return None


def _anchors_last(rows: int | None, columns: int | None, cells: list[int], known: str | None, labels: int, why: str) -> Family | None:
    """Return YOLOv8 in its own order of axes, [1, 4 + classes, anchors]."""
    is_four = labels > 0 and 4 + labels in (rows, columns)
    if rows is None or rows <= 4 or known == "nanodet":
        return None
    if columns in cells or (columns is None and (is_four or known == "yolov8")):
        return Family("yolov8", "detection", rows - 4, why, () if labels or rows - 4 == COCO_CLASSES else (unnamed(rows - 4),))
    return None


def _anchors_first(rows: int | None, columns: int | None, cells: list[int], known: str | None, labels: int, why: str) -> Family | None:
    """Return what has a row for each anchor: YOLOv5, YOLOX, YOLOv8 with its axes exchanged."""
    if columns is None or columns <= 5 or known == "nanodet":
        return None
    is_three = rows in [3 * count for count in cells]
    if rows is not None and not is_three and rows not in cells:
        return None
    if is_three or known == "yolov5" or (rows is None and known is None and 5 + labels == columns):
        return Family("yolov5", "detection", columns - 5, why)
    if known in ("yolov8", "yolox"):
        return Family(known, "detection", columns - (4 if known == "yolov8" else 5), why)
    return None if rows is None or known is not None else _by_classes(rows, columns, cells, labels, why)


def _by_classes(rows: int, columns: int, cells: list[int], labels: int, why: str) -> Family | None:
    """Return which of two look-alikes the number of classes speaks for: with objectness (YOLOX) or without (YOLOv8)."""
    if labels and 4 + labels == columns:
        return Family("yolov8", "detection", labels, why)
    if not labels and columns == 4 + COCO_CLASSES:
        doubt = f"YOLOv8's head with its axes exchanged, since {columns} is 4 + COCO's 80 classes; `family` says"
        return Family("yolov8", "detection", COCO_CLASSES, why, (doubt,))
    if rows != cells[0]:
        return None
    doubt = (
        "YOLOX's head, pictures in BGR 0..255 at the upper left: models that take RGB 0..1 have the same shape; "
        "`family`, input.colour, input.resize, input.mean and input.sd say"
    )
    return Family("yolox", "detection", columns - 5, why, (doubt,))


def _checked(found: Family, said: SelfDescription, name: str) -> Family:
    """Return the family, unless what the file says of itself contradicts it, or else its name."""
    if said.task not in (None, "detect"):
        message = f"it says that its task is {said.task!r}, {found.name} detects"
        raise UnknownFamilyError(message)
    if said.labels and len(said.labels) != found.classes:
        message = f"{found.why} would be {found.name} with {found.classes} classes, but it names {len(said.labels)}"
        raise UnknownFamilyError(message)
    if said.task is None and (other := file_name.other_task(name)):
        message = f"its name says {other!r}, {found.name} detects"
        raise UnknownFamilyError(message)
    return found
