"""Detectors with one output: YOLO's many heads, RT-DETR as Ultralytics exports it."""

from dataclasses import replace

from edgemeter.agent.recognition.metadata import (
    COCO_CLASSES,
    OutputFamily,
    UnknownFamilyError,
    other_task,
    stated_family,
)
from edgemeter.agent.recognition.model_outputs import MOST_QUERIES, ModelOutputs, cell_counts
from edgemeter.agent.vision.decoders.boxes import KEYPOINTS
from edgemeter.agent.vision.decoders.yolo26 import COLUMNS

# Detectors whose heads for other tasks add columns to the same rows; a pose has one class and x, y, visibility of 17 keypoints.
_ONE_STAGE = ("yolov5", "yolov8", "yolox")
_POSE_COLUMNS = 1 + 3 * KEYPOINTS


class OneOutput(ModelOutputs):
    """A detector with one output [1, a, b]: YOLO's many heads, RT-DETR as Ultralytics exports it."""

    def find(self) -> OutputFamily | None:
        """Return its family, None where it is none of them; raises UnknownFamilyError where its metadata contradicts it."""
        rows, columns = self.shapes[0][1:]
        named_family, cells = stated_family(self.name, self.stated), cell_counts(self.size)
        family = (
            self._open(rows, columns, named_family)
            or self._set(rows, columns, cells, named_family)
            or self._anchors_last(rows, columns, cells, named_family)
            or self._anchors_first(rows, columns, cells, named_family)
        )
        return None if family is None else self._checked(family)

    def _open(self, rows: int | None, columns: int | None, named_family: str | None) -> OutputFamily | None:
        """Return what the file's name and metadata show of an output whose sizes are all open."""
        # Of Ultralytics' exports without a known name, most have YOLOv8's head.
        family = named_family or ("yolov8" if self.stated.is_end_to_end is False else None)
        if rows is not None or columns is not None or family is None:
            return None
        classes = self.labels or COCO_CLASSES
        doubt = f"family {family} from the file's name or metadata, its output shows no size; set `family`"
        return self.detector(family, classes, doubt, *self.unnamed(classes))

    def _set(self, rows: int | None, columns: int | None, cells: list[int], named_family: str | None) -> OutputFamily | None:
        """Return an end-to-end YOLO or an RT-DETR, whose rows are not cells of a grid."""
        is_grid = rows is not None and (rows in cells or rows in [3 * count for count in cells] or rows > MOST_QUERIES)
        is_list = columns == COLUMNS and not is_grid and (rows is not None or named_family is not None or self.labels != 1)
        if is_list and named_family in (None, "yolo26", "yolov8", "detr"):
            classes = self.labels or COCO_CLASSES
            return self.detector("detr" if named_family == "detr" else "yolo26", classes, *self.unnamed(classes))
        if rows is None or columns is None or is_grid or not cells or rows < columns or columns <= 5 or named_family not in (None, "detr"):
            return None
        classes = columns - 4
        if named_family == "detr" or classes in (self.labels, COCO_CLASSES):
            doubt = "RT-DETR's head, boxes as 0..1 beside scores: its rows are not a grid; set `family` and [input]"
            return self.detector("detr", classes, *(() if named_family else (doubt,)), *self.unnamed(classes))
        return None

    def _anchors_last(self, rows: int | None, columns: int | None, cells: list[int], named_family: str | None) -> OutputFamily | None:
        """Return YOLOv8 in its own order of axes, [1, 4 + classes, anchors]."""
        is_four = self.labels > 0 and 4 + self.labels in (rows, columns)
        if rows is None or rows <= 4:
            return None
        if columns in cells or (columns is None and (is_four or named_family == "yolov8")):
            return self.detector("yolov8", rows - 4, *(() if rows - 4 == COCO_CLASSES else self.unnamed(rows - 4)))
        return None

    def _anchors_first(self, rows: int | None, columns: int | None, cells: list[int], named_family: str | None) -> OutputFamily | None:
        """Return what has a row for each anchor: YOLOv5, YOLOX, YOLOv8 with its axes exchanged."""
        if columns is None or columns <= 5:
            return None
        is_three = rows in [3 * count for count in cells]
        if rows is not None and not is_three and rows not in cells:
            return None
        if is_three or named_family == "yolov5" or (rows is None and named_family is None and 5 + self.labels == columns):
            return self.detector("yolov5", columns - 5)
        if named_family in ("yolov8", "yolox"):
            return self.detector(named_family, columns - (4 if named_family == "yolov8" else 5))
        return None if rows is None or named_family is not None else self._by_classes(rows, columns, cells)

    def _by_classes(self, rows: int, columns: int, cells: list[int]) -> OutputFamily | None:
        """Return which of two look-alikes the number of classes indicates: with objectness (YOLOX) or without (YOLOv8)."""
        if self.labels and 4 + self.labels == columns:
            return self.detector("yolov8", self.labels)
        if not self.labels and columns == 4 + COCO_CLASSES:
            doubt = f"YOLOv8's head with its axes exchanged, since {columns} is 4 + COCO's 80 classes; set `family`"
            return self.detector("yolov8", COCO_CLASSES, doubt)
        if rows != cells[0]:
            return None
        doubt = (
            "YOLOX's head, pictures in BGR 0..255 at the upper left: models that take RGB 0..1 have the same shape; "
            "set `family`, input.colour, input.resize, input.mean and input.sd"
        )
        return self.detector("yolox", columns - 5, doubt)

    def _checked(self, family: OutputFamily) -> OutputFamily:
        """Return the family, unless the metadata or the name of the file contradicts it."""
        if self.stated.task not in (None, "detect"):
            raise UnknownFamilyError(f"its metadata has task {self.stated.task!r}, but {family.name} detects")
        if self.labels and self.labels != family.classes:
            raise UnknownFamilyError(f"{family.why} would be {family.name} with {family.classes} classes, but it names {self.labels}")
        if self.stated.task is None and (other := other_task(self.name)):
            raise UnknownFamilyError(f"its name contains {other!r}, but {family.name} detects")
        return replace(family, family_doubt=self._other_head(family))

    def _other_head(self, family: OutputFamily) -> str | None:
        """Return what else the columns may be where nothing names classes or task: heads for other tasks only have more of them."""
        if self.labels or self.stated.task is not None or family.classes == COCO_CLASSES or family.name not in _ONE_STAGE:
            return None
        likely = ", or one class and 17 keypoints" if family.classes == _POSE_COLUMNS else ""
        return (
            f"{family.name} with {family.classes} classes{likely}? Heads for poses, segmentation and turned boxes have such an output "
            "too: set `task`, `family` and output.classes"
        )
