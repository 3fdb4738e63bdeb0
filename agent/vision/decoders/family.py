"""The base of our decoders.

It has the facts about a model without a card, and how a family recognises it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from edgemeter.agent.contract.model_card import LETTERBOX_GREY, Card, Resize
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.vision.decoders import Shape

Triple = tuple[float, float, float]
COCO_CLASSES = 80
# COCO's ids run to 90 with gaps; TensorFlow and torchvision number their classes like them.
COCO_LAST_ID = 90
# The number of keypoints of people in COCO.
KEYPOINTS = 17
# The number of prototypes of YOLO's segmenters.
PROTOTYPES = 32
# More rows are cells of a grid, or priors, not a list of objects.
MOST_QUERIES = 1000


@dataclass(frozen=True, slots=True)
class Pictures:
    """Defaults of a family for the card of a model.

    They are the preparation of photographs, and suppression. real = (pixel - mean) / sd, pixels
    0..255, in the order of the input's colours; `mean` None: the input and the framework decide.
    `side` is the usual height and width, if neither the file nor its name has one; `doubt` is an
    assumption, or None.
    """

    resize: Resize = "letterbox"
    mean: Triple | None = (0.0, 0.0, 0.0)
    sd: Triple = (255.0, 255.0, 255.0)
    colour: Literal["RGB", "BGR"] = "RGB"
    pad: int = LETTERBOX_GREY
    crop_ratio: float = 0.875
    side: int = 640
    nms_iou: float | None = None
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class Recognition:
    """The facts about a model that a family recognises.

    `doubts` are unconfirmed, each with the key of the card that settles it. `classes` is without a
    background. `family_doubt` is why it may be another family or task; `task` is set if it differs
    from the family's.
    """

    classes: int
    doubts: tuple[str, ...] = ()
    family_doubt: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class UnknownModel:
    """The facts about a model without a card.

    `size` is height and width of its input, None if open. `named` is the family in its name or
    metadata; `labels` and `task` (our name) are those of its metadata. `categories` is the number
    of categories in the annotations, `own_categories` the same if these are not COCO's.
    """

    name: str
    inputs: Sequence[TensorInfo] = ()
    outputs: Sequence[TensorInfo] = ()
    size: tuple[int, int] | None = None
    named: str | None = None
    labels: tuple[str, ...] = ()
    task: str | None = None
    categories: int | None = None
    own_categories: int | None = None

    @property
    def shapes(self) -> list[Shape]:
        return [info.shape for info in self.outputs]

    @property
    def table(self) -> tuple[int | None, int | None]:
        """The sizes a and b of the one output [1, a, b]; 0 and 0 for other outputs.

        Raw maps after that output do not count.
        """
        first, *further = self.shapes or [()]
        is_table = len(first) == 3 and all(len(shape) == 5 for shape in further)
        return (first[1], first[2]) if is_table else (0, 0)

    @property
    def known_classes(self) -> int | None:
        return len(self.labels) or self.categories

    def classes_or(self, usual: int) -> int:
        """Return the number of classes that outputs do not show.

        It is found by labels, by annotations that are not COCO's, or it is the usual one.
        """
        return len(self.labels) or self.own_categories or usual

    @property
    def foreground(self) -> int:
        """The number of labels without a background.

        Some label files of COCO's ids begin with the background.
        """
        return COCO_LAST_ID if len(self.labels) == COCO_LAST_ID + 1 else len(self.labels)

    def unnamed(self, classes: int, taken_as: str = "") -> tuple[str, ...]:
        """Return the doubt about classes without names, with the assumed names.

        It is empty if there are labels.
        """
        if self.labels:
            return ()
        assumption = taken_as or ("those of COCO" if classes == COCO_CLASSES else "")
        assumption = f", so {assumption} are assumed" if assumption else ""
        return (
            (
                f"its {classes} classes have no names{assumption}; set output.classes and "
                "output.labels"
            ),
        )

    def one_of_heads(self, family: str, classes: int, *doubts: str) -> Recognition:
        """Return a YOLO by its columns after those of the box.

        Heads for other tasks have further columns.
        """
        if self.labels or self.task is not None or classes == COCO_CLASSES:
            return Recognition(classes, doubts)
        likely = ", or one class and 17 keypoints" if classes == 1 + 3 * KEYPOINTS else ""
        other = (
            f"{family} with {classes} classes{likely}? Heads for poses, segmentation and turned "
            "boxes have such an output too: "
            "set `task`, `family` and output.classes"
        )
        return Recognition(classes, doubts, other)

    def head_of_task(self, outputs: int, other_values: int) -> Recognition | None:
        """Return a YOLO for another task by its anchors.

        These have `other_values` in addition to the classes.
        """
        sizes = next((shape[1:] for shape in self.shapes if len(shape) == 3), ())
        classes = min((size for size in sizes if size is not None), default=0) - other_values
        return (
            Recognition(classes, () if classes == 1 else self.unnamed(classes))
            if len(self.shapes) == outputs and classes > 0
            else None
        )

    def list_of_task(
        self, outputs: int, columns: int, classes: int = COCO_CLASSES
    ) -> Recognition | None:
        """Return a YOLO for another task by the columns of its end-to-end rows.

        `classes` is the usual number.
        """
        rows = next((shape for shape in self.shapes if len(shape) == 3), (0, 0, 0))
        if len(self.shapes) != outputs or rows[2] != columns or (rows[1] or 0) > MOST_QUERIES:
            return None
        classes = self.classes_or(classes)
        return Recognition(classes, () if classes == 1 else self.unnamed(classes))


class Family:
    """The base of our decoders, with the facts by which models without a card are recognised.

    `NAME` is a regular expression for file names in lower case, or "". `TASK` is the task of its
    models; families for other tasks than detection are tried only if the file states the task.
    """

    NAME: ClassVar[str] = ""
    TASK: ClassVar[str] = "detection"
    PICTURES: ClassVar[Pictures] = Pictures()

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return the facts about the model, None if its outputs do not belong to this family."""
        del facts
        return None

    @classmethod
    def by_name(cls, facts: UnknownModel) -> Recognition:
        """Return the assumed facts about a model that only its name identifies."""
        classes = facts.classes_or(COCO_CLASSES)
        return Recognition(classes, facts.unnamed(classes))

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        del facts
        return cls.PICTURES

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._family, self._output, self._size = (
            model.family,
            model.output,
            (model.image.height, model.image.width),
        )
        shapes = [info.shape for info in loaded.outputs]
        if shapes and not any(None in shape for shape in shapes):
            self._check(shapes)

    def _check(self, shapes: Sequence[Shape]) -> Any:
        """Raise ConfigError if outputs do not belong to this family.

        Checked are those that the file declares, if no size is open, and each query's.
        """
