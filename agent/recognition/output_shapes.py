"""The family of a vision model without a card: from the shapes of its outputs, what it states about itself, and its file name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgemeter.agent.recognition.metadata import (
    COCO_CLASSES,
    COCO_LAST_ID,
    SIGMOID_DETR,
    OutputFamily,
    SelfDescription,
    Shape,
    UnknownFamilyError,
    family_by_name_alone,
    family_in,
    is_classifier_name,
    other_task,
    shapes_in_words,
    stated_family,
    unnamed,
)
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision.decoders import nanodet
from edgemeter.agent.vision.decoders.boxes import KEYPOINTS, cell_count, grid_side
from edgemeter.agent.vision.decoders.efficient_nms import has_exporters_names, is_efficient_nms
from edgemeter.agent.vision.decoders.yolo26 import COLUMNS
from edgemeter.agent.vision.decoders.yolo_seg import PROTOTYPES
from edgemeter.agent.vision.decoders.yolov5 import ANCHORS_PER_CELL, STRIDES

_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))
_SIDES = range(32, 2049, 32)
# More rows than this are cells of a grid, not a list of objects.
_MOST_QUERIES = 1000
# Detectors whose heads for other tasks add columns to the same rows; a pose has one class and x, y, visibility of 17 keypoints.
_ONE_STAGE = ("yolov5", "yolov8", "yolox")
_POSE_COLUMNS = 1 + 3 * KEYPOINTS
_IDS = "numbered as COCO's ids are"
# DETR was trained on COCO's ids 0..90, of which 0 means nothing, and "no object" besides.
_DETR_CLASSES = 91
IMAGENET_CLASSES = (1000, 1001)
# As Ultralytics calls the tasks: ours, the family, and what a row holds beside classes.
_HEADS = {
    "segment": ("segmentation", "yolo-seg", 4 + PROTOTYPES),
    "seg": ("segmentation", "yolo-seg", 4 + PROTOTYPES),
    "pose": ("pose", "yolo-pose", 4 + 3 * KEYPOINTS),
    "obb": ("oriented-boxes", "yolo-obb", 5),
}


def family_of_outputs(
    outputs: Sequence[TensorInfo],
    size: tuple[int, int] | None,
    name: str,
    description: SelfDescription,
    *,
    takes_any_picture: bool = False,
) -> OutputFamily:
    """Return the family of a model with these outputs, by its file's name and what that states; an input of open size is None.

    Raises:
        UnknownFamilyError: none fits.
    """
    if not outputs:
        return family_by_name_alone(name, description, takes_any_picture=takes_any_picture)
    shapes = [info.shape for info in outputs]
    if (other := _other_head(shapes, name, description)) is not None:
        return other
    if len(outputs) == 1 and _is_scores(shapes[0]):
        return _classifier(shapes[0], name, description)
    family = SeveralOutputs(size, name, description, shapes).find(outputs)
    # Old exports of YOLOv5 give its raw maps after the decoded tensor.
    if family is None and len(shapes[0]) == 3 and all(len(shape) == 5 for shape in shapes[1:]):
        family = OneOutput(size, name, description, shapes[:1]).find()
    if family is None:
        where = "of open size" if size is None else f"of {size[0]} x {size[1]}"
        raise UnknownFamilyError(f"its outputs {shapes_in_words(shapes)} on an input {where} are those of no known family")
    return family


def _other_head(shapes: Sequence[Shape], name: str, description: SelfDescription) -> OutputFamily | None:
    """Return the family of a YOLO for another task than detection, as its metadata or its name states; None where there is none."""
    task = description.task or other_task(name)
    rows = next((shape for shape in shapes if len(shape) == 3), None)
    if task not in _HEADS or rows is None or len(shapes) != (1 if task in ("pose", "obb") else 2):
        return None
    task_name, family, other_values = _HEADS[task]
    why = f"its outputs {shapes_in_words(list(shapes))} and its {'metadata' if description.task else 'name'}, a YOLO's for {task}"
    if family == "yolo-seg" and rows[2] == COLUMNS + PROTOTYPES and (rows[1] or 0) <= _MOST_QUERIES:
        classes = len(description.labels) or COCO_CLASSES
        return OutputFamily("yolo26-seg", task_name, classes, why, () if description.labels else (unnamed(classes),))
    columns = min((size for size in rows[1:] if size is not None), default=0)
    if columns <= other_values:
        return None
    classes = columns - other_values
    if description.labels and len(description.labels) != classes:
        raise UnknownFamilyError(f"{why} would be {family} with {classes} classes, but it names {len(description.labels)}")
    return OutputFamily(family, task_name, classes, why, () if description.labels or classes == 1 else (unnamed(classes),))


def _is_scores(shape: Shape) -> bool:
    """Return whether the shape is one row of scores: [1, n], or [1, 1, 1, n] and [1, n, 1, 1]."""
    return len(shape) >= 2 and shape[0] in (1, None) and None not in shape[1:] and sum(size != 1 for size in shape[1:]) == 1


def _classifier(shape: Shape, name: str, description: SelfDescription) -> OutputFamily:
    classes = max(size or 0 for size in shape)
    if classes in IMAGENET_CLASSES or classes == len(description.labels):
        return OutputFamily("classifier", "classification", classes, f"its {classes} scores")
    if description.labels and description.task in (None, "classify"):
        raise UnknownFamilyError(f"it gives {classes} scores and names {len(description.labels)} classes")
    if is_classifier_name(name) or description.task == "classify":
        doubt = f"its {classes} values are scores of classes that it does not name; set `task`, output.classes and output.labels"
        return OutputFamily("classifier", "classification", classes, f"its {classes} scores and its file name", (doubt,))
    raise UnknownFamilyError(f"its one output has {classes} values, which may be scores or features")


def side_of(shapes: Sequence[Shape]) -> int | None:
    """Return the side of the square input (32, 64 .. 2048 pixels) whose YOLO grid has as many cells as an output has anchors."""
    # The longer axis; where one is open, the other is that of the classes.
    longest = {max(shape[1] or 0, shape[2] or 0) for shape in shapes if len(shape) == 3 and None not in shape[1:]}
    sides = [side for side in _SIDES if longest & {times * cells for cells in cell_counts((side, side))[:2] for times in (1, 3)}]
    return sides[0] if len(sides) == 1 else None


def cell_counts(size: tuple[int, int] | None) -> list[int]:
    """Return how many cells the usual grids have on an input of this height and width; none on one of open size."""
    return [cell_count(*size, strides) for strides in _STRIDES] if size else []


@dataclass(frozen=True, slots=True)
class ModelOutputs:
    """The known facts of a model; arguments as for `family_of_outputs`."""

    size: tuple[int, int] | None
    name: str
    stated: SelfDescription
    shapes: Sequence[Shape]

    @property
    def labels(self) -> int:
        """How many classes the file names."""
        return len(self.stated.labels)

    def detector(self, family: str, classes: int, *doubts: str, strides: tuple[int, ...] = ()) -> OutputFamily:
        """Return a family of detectors with exactly these doubts."""
        why = f"its output{'s' if len(self.shapes) > 1 else ''} {shapes_in_words(list(self.shapes))}"
        return OutputFamily(family, "detection", classes, why, doubts, strides)

    def unnamed(self, classes: int) -> tuple[str, ...]:
        """Return the doubt about classes that the file does not name; none if it names some."""
        numbering = "those of COCO" if classes == COCO_CLASSES else "of unknown names"
        return () if self.labels else (unnamed(classes, numbering),)


class OneOutput(ModelOutputs):
    """A detector with one output [1, a, b]: YOLO's many heads, NanoDet-Plus, RT-DETR as Ultralytics exports it."""

    def find(self) -> OutputFamily | None:
        """Return its family, None where it is none of them; raises UnknownFamilyError where its metadata contradicts it."""
        rows, columns = self.shapes[0][1:]
        named_family, cells = stated_family(self.name, self.stated), cell_counts(self.size)
        family = (
            self._open(rows, columns, named_family)
            or self._nanodet(rows, columns, named_family)
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

    def _nanodet(self, rows: int | None, columns: int | None, named_family: str | None) -> OutputFamily | None:
        """Return NanoDet(-Plus), whose rows hold the scores and four distributions of eight values."""
        edges, more_edges, usual = 4 * nanodet.STEPS, 4 * nanodet.MORE_STEPS, self.labels or COCO_CLASSES
        for strides in (nanodet.PLUS_STRIDES, nanodet.OLD_STRIDES):
            cells = cell_count(*self.size, strides) if self.size else None
            for number, width in ((rows, columns), (columns, rows)):
                if width is None or width <= edges or number is None or number != cells:
                    continue
                # Of a width that is 80 classes and longer distributions the other reading would be 92 classes.
                classes = width - (more_edges if named_family == "nanodet" and width - more_edges == usual else edges)
                if named_family == "nanodet" or (named_family is None and classes == usual):
                    return self.detector("nanodet", classes, *self.unnamed(classes), strides=strides)
        return None

    def _set(self, rows: int | None, columns: int | None, cells: list[int], named_family: str | None) -> OutputFamily | None:
        """Return an end-to-end YOLO or an RT-DETR, whose rows are not cells of a grid."""
        is_grid = rows is not None and (rows in cells or rows in [3 * count for count in cells] or rows > _MOST_QUERIES)
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
        if rows is None or rows <= 4 or named_family == "nanodet":
            return None
        if columns in cells or (columns is None and (is_four or named_family == "yolov8")):
            return self.detector("yolov8", rows - 4, *(() if rows - 4 == COCO_CLASSES else self.unnamed(rows - 4)))
        return None

    def _anchors_first(self, rows: int | None, columns: int | None, cells: list[int], named_family: str | None) -> OutputFamily | None:
        """Return what has a row for each anchor: YOLOv5, YOLOX, YOLOv8 with its axes exchanged."""
        if columns is None or columns <= 5 or named_family == "nanodet":
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
            f"{family.name} with {family.classes} classes{likely}? Heads for poses, segmentation and oriented boxes have such an output "
            "too: set `task`, `family` and output.classes"
        )


class SeveralOutputs(ModelOutputs):
    """A detector with several outputs: the four of TFLite's post-processing, DETR's sets, torchvision's lists, maps per stride."""

    def find(self, outputs: Sequence[TensorInfo]) -> OutputFamily | None:
        """Return its family, None where it is none of them."""
        if self.stated.task not in (None, "detect"):
            return None
        if is_efficient_nms(outputs):
            return self._efficient_nms(is_sure=has_exporters_names(outputs))
        if len(outputs) == 4 and _is_postprocess(outputs):
            return self._postprocess(outputs)
        if len(outputs) >= 3 and _is_lists(self.shapes):
            return self._lists()
        if self.size is not None and (family := self._nas(self.size) or self._maps(self.size)) is not None:
            return family
        return self._sets()

    @property
    def _foreground(self) -> int:
        """How many classes are named; some label files begin with the background, which does not count."""
        return self.labels - 1 if self.labels == COCO_LAST_ID + 1 else self.labels

    def _postprocess(self, outputs: Sequence[TensorInfo]) -> OutputFamily:
        # The operator counts classes from 0; TensorFlow's own graphs, and what tf2onnx makes of them, from 1.
        classes, doubts = self._foreground or COCO_LAST_ID, () if self.labels else (unnamed(COCO_LAST_ID, _IDS),)
        if not self.name.lower().endswith(".tflite") and any(info.name.lower().startswith("detection_classes") for info in outputs):
            classes = (self.labels or COCO_LAST_ID) + 1
            doubts = (f"classes count from 1, as in TensorFlow's graphs, {_IDS}: set output.classes and output.labels",)
        return OutputFamily("tflite-postprocess", "detection", classes, "its four outputs", doubts)

    def _efficient_nms(self, *, is_sure: bool) -> OutputFamily:
        classes = self.labels or COCO_CLASSES
        doubt = "boxes are x1, y1, x2, y2, as YOLO's; those of TensorFlow's detectors have y first: set `family` = tflite-postprocess then"
        doubts = (*(() if is_sure else (doubt,)), *self.unnamed(classes))
        return OutputFamily("efficient-nms", "detection", classes, "its count, boxes, scores and classes", doubts)

    def _nas(self, size: tuple[int, int]) -> OutputFamily | None:
        """Return YOLO-NAS without suppression: corners and scores of every cell of its grids."""
        if len(self.shapes) != 2 or any(len(shape) != 3 for shape in self.shapes):
            return None
        boxes, scores = self.shapes if self.shapes[0][2] == 4 else self.shapes[::-1]
        classes, is_named = scores[2] or 0, family_in(self.name) == "yolo-nas"
        if boxes[2] != 4 or scores[1] != boxes[1] or boxes[1] != cell_count(*size, STRIDES):
            return None
        if not is_named and classes not in (COCO_CLASSES, self.labels):
            return None
        doubt = "YOLO-NAS's head, boxes as x1, y1, x2, y2 in pixels, pictures in RGB 0..1: other models have such outputs; set `family`"
        return self.detector("yolo-nas", classes, *(() if is_named else (doubt,)), *self.unnamed(classes))

    def _lists(self) -> OutputFamily:
        doubt = "labels count from 1, 0 is the background, as torchvision's do; set `family` in its card if that is wrong"
        doubts = (doubt,) if self.labels else (unnamed(COCO_LAST_ID, _IDS), doubt)
        return OutputFamily("torchvision", "detection", self._foreground or COCO_LAST_ID, "its lists of boxes, labels and scores", doubts)

    def _sets(self) -> OutputFamily | None:
        """Return DETR: as many boxes as rows of scores, which are not cells of a grid."""
        sets = [shape for shape in self.shapes if len(shape) == 3]
        boxes = next((shape for shape in sets if shape[2] == 4), None)
        if boxes is None or len(sets) > 2 or len(sets) != len(self.shapes):
            return None
        columns = next((shape[2] for shape in sets if shape is not boxes and shape[1] == boxes[1]), None)
        if columns is None or columns < 2 or boxes[1] in cell_counts(self.size) or (boxes[1] or 0) > _MOST_QUERIES:
            return None
        if self.labels in (columns, columns - 1):
            return self.detector("detr", self.labels)
        if columns in (_DETR_CLASSES + 1, COCO_CLASSES + 1):
            return self.detector("detr", columns - 1, unnamed(columns - 1))
        if columns in (_DETR_CLASSES, COCO_CLASSES) or SIGMOID_DETR.search(self.name.lower()):
            return self.detector("detr", columns, unnamed(columns))
        doubt = f"the last of {columns} scores is taken for 'no object', as DETR's: output.classes = {columns} if each is a class"
        return self.detector("detr", columns - 1, doubt, unnamed(columns - 1, "of unknown names"))

    def _maps(self, size: tuple[int, int]) -> OutputFamily | None:
        """Return a detector with maps, or with scores and distances apart, for each stride."""
        if any(None in shape for shape in self.shapes):
            return None
        named_family = family_in(self.name)
        if len(self.shapes) == len(STRIDES) and named_family in (None, "yolov5"):
            depth = self._anchor_depth(size)
            if depth is not None and depth > 5 and self.labels in (0, depth - 5):
                anchors = "the anchors of YOLOv5 (a name with `yolov7` means that one's); boxes are wrong with others"
                return self.detector("yolov5-heads", depth - 5, *(() if named_family else (anchors,)), *self.unnamed(depth - 5))
        for strides in (nanodet.PLUS_STRIDES, nanodet.OLD_STRIDES):
            classes = self._apart(size, strides)
            if classes is not None and named_family in (None, "nanodet"):
                doubt = "NanoDet's head, pictures in BGR with its mean and sd; set `family` and [input]"
                return self.detector("nanodet", classes, *(() if named_family else (doubt,)), *self.unnamed(classes), strides=strides)
        return None

    def _anchor_depth(self, size: tuple[int, int]) -> int | None:
        """Return how many values an anchor of YOLOv5's maps has, None where these are no such maps."""
        depths = []
        for stride in STRIDES:
            sides = (grid_side(size[0], stride), grid_side(size[1], stride))
            for shape in self.shapes:
                if len(shape) == 5 and shape[1] == ANCHORS_PER_CELL and shape[2:4] == sides:
                    depths.append(shape[4] or 0)
                elif len(shape) == 4 and sides in (shape[2:], shape[1:3]):
                    channels = (shape[1] if shape[2:] == sides else shape[3]) or 0
                    depths.append(channels // 3 if channels % 3 == 0 else 0)
        return depths[0] if len(depths) == len(self.shapes) and len(set(depths)) == 1 else None

    def _apart(self, size: tuple[int, int], strides: Sequence[int]) -> int | None:
        """Return the classes of a NanoDet with scores and distributions apart for each stride, None where these are other outputs."""
        if len(self.shapes) != 2 * len(strides):
            return None
        widths = []
        for stride in strides:
            level = [_width(shape, (grid_side(size[0], stride), grid_side(size[1], stride))) for shape in self.shapes]
            widths.append(sorted(width for width in level if width))
        first = widths[0]
        if any(width != first for width in widths) or len(first) != 2:
            return None
        possible = [sum(first) - 4 * steps for steps in (nanodet.STEPS, nanodet.MORE_STEPS) if 4 * steps in first]
        return next((classes for classes in possible if self.labels in (0, classes)), None)


def _is_postprocess(outputs: Sequence[TensorInfo]) -> bool:
    """Return whether these are boxes, classes, scores and count; their shapes may read [] before the first call."""
    shapes = sorted((info.shape for info in outputs), key=len)
    # No other model has four numbers as its output; whatever the exporter called them, the decoder looks at the real tensors.
    if all(shape == () for shape in shapes):
        return True
    boxes = shapes[-1]
    return len(boxes) == 3 and boxes[2] == 4 and len(shapes[0]) <= 1 and [len(shape) for shape in shapes[1:3]] == [2, 2]


def _is_lists(shapes: Sequence[Shape]) -> bool:
    """Return whether there are boxes [n, 4] and two lists [n], with or without a leading batch axis."""
    has_batch = any(len(shape) == 3 and shape[2] == 4 for shape in shapes)
    bare = [shape[1:] if has_batch else shape for shape in shapes]
    boxes = [shape for shape in bare if len(shape) == 2 and shape[1] == 4]
    return len(boxes) == 1 and sum(len(shape) == 1 and (shape == boxes[0][:1] or None in (shape[0], boxes[0][0])) for shape in bare) == 2


def _width(shape: Shape, sides: tuple[int, int]) -> int | None:
    """Return how many values a cell has in an output, rows of cells or a map; None where its cells are others."""
    cells = sides[0] * sides[1]
    if len(shape) == 4 and sides in (shape[2:], shape[1:3]):
        return shape[1] if shape[2:] == sides else shape[3]
    rows = shape[-2:]
    if len(shape) in (2, 3) and cells in rows:
        return rows[1] if rows[0] == cells else rows[0]
    return None
