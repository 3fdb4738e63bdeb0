"""The base of our decoders: the facts about a model without a card, and what a family makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from edgemeter.agent.contract.model_card import Card, Resize
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.vision.decoders import Shape

Triple = tuple[float, float, float]
COCO_CLASSES = 80
# COCO's ids run to 90 with gaps; TensorFlow and torchvision number their classes like them.
COCO_LAST_ID = 90
# COCO's people.
KEYPOINTS = 17
# Of YOLO's segmenters.
PROTOTYPES = 32
# More rows than this are cells of a grid, or priors, not a list of objects.
MOST_QUERIES = 1000


@dataclass(frozen=True, slots=True)
class Pictures:
    """How photographs become the input of a family, and what its boxes go through: defaults of the card that is written for a model.

    real = (pixel - mean) / sd, pixels 0..255, in the order of the input's colours; `mean` None: the input and the framework decide.
    `side` is the usual height and width where neither the file nor its name has one; `doubt` is what was assumed, or None.
    """

    resize: Resize = "letterbox"
    mean: Triple | None = (0.0, 0.0, 0.0)
    sd: Triple = (255.0, 255.0, 255.0)
    colour: Literal["RGB", "BGR"] = "RGB"
    pad: int = 114
    crop_ratio: float = 0.875
    side: int = 640
    nms_iou: float | None = None
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class Recognition:
    """The answer of a family to a model that it recognises; `doubts` are what the file does not confirm, each with the key that settles it.

    `classes` are counted without a background. `family_doubt` is why it may be another family or task, `task` what else
    it does than the family; None otherwise.
    """

    classes: int
    doubts: tuple[str, ...] = ()
    family_doubt: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class UnknownModel:
    """The facts about a model that has no card.

    `size` is height and width of its input, None where they are open. `named` is the family in its file's name or metadata. `labels` and
    `task` (ours) are what it states. `categories` is how many the annotations have, `own_categories` the same where these are not COCO's.
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
        """Return the shapes of the outputs."""
        return [info.shape for info in self.outputs]

    @property
    def table(self) -> tuple[int | None, int | None]:
        """Return the sizes a and b of the one output [1, a, b], 0 and 0 where there are others; raw maps behind it do not count."""
        first, *further = self.shapes or [()]
        is_table = len(first) == 3 and all(len(shape) == 5 for shape in further)
        return (first[1], first[2]) if is_table else (0, 0)

    @property
    def known_classes(self) -> int | None:
        """Return how many classes the file names, or else the annotations have."""
        return len(self.labels) or self.categories

    def classes_or(self, usual: int) -> int:
        """Return how many classes there are where outputs do not show it: as the file or annotations of their own count, or the usual."""
        return len(self.labels) or self.own_categories or usual

    @property
    def foreground(self) -> int:
        """Return how many classes the file names; some label files of COCO's ids begin with the background, which does not count."""
        return COCO_LAST_ID if len(self.labels) == COCO_LAST_ID + 1 else len(self.labels)

    def unnamed(self, classes: int, taken_as: str = "") -> tuple[str, ...]:
        """Return the doubt about classes that the file does not name, with what they are taken as; none where it names some."""
        if self.labels:
            return ()
        assumption = taken_as or ("those of COCO" if classes == COCO_CLASSES else "")
        assumption = f", and are taken as {assumption}" if assumption else ""
        return (f"its {classes} classes have no names{assumption}; set output.classes and output.labels",)

    def one_of_heads(self, family: str, classes: int, *doubts: str) -> Recognition:
        """Return a YOLO with so many columns behind those of the box, which a head for another task has more of."""
        if self.labels or self.task is not None or classes == COCO_CLASSES:
            return Recognition(classes, doubts)
        likely = ", or one class and 17 keypoints" if classes == 1 + 3 * KEYPOINTS else ""
        other = (
            f"{family} with {classes} classes{likely}? Heads for poses, segmentation and turned boxes have such an output too: "
            "set `task`, `family` and output.classes"
        )
        return Recognition(classes, doubts, other)

    def head_of_task(self, outputs: int, other_values: int) -> Recognition | None:
        """Return a YOLO for another task by its anchors, which have so many values besides the classes."""
        sizes = next((shape[1:] for shape in self.shapes if len(shape) == 3), ())
        classes = min((size for size in sizes if size is not None), default=0) - other_values
        return Recognition(classes, () if classes == 1 else self.unnamed(classes)) if len(self.shapes) == outputs and classes > 0 else None

    def list_of_task(self, outputs: int, columns: int, classes: int = COCO_CLASSES) -> Recognition | None:
        """Return a YOLO for another task by its end-to-end rows of so many columns; `classes` is the usual number."""
        rows = next((shape for shape in self.shapes if len(shape) == 3), (0, 0, 0))
        if len(self.shapes) != outputs or rows[2] != columns or (rows[1] or 0) > MOST_QUERIES:
            return None
        classes = self.classes_or(classes)
        return Recognition(classes, () if classes == 1 else self.unnamed(classes))


class Family:
    """The base of our decoders: what a family states of itself, so that models without a card are recognised.

    `NAME` is a regular expression of file names in lower case, "" where none tells. `TASK` is what its models do; one for another task than
    detection is asked where the file states that task.
    """

    NAME: ClassVar[str] = ""
    TASK: ClassVar[str] = "detection"
    PICTURES: ClassVar[Pictures] = Pictures()

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return what the model is, None where its outputs are not of this family."""
        del facts
        return None

    @classmethod
    def by_name(cls, facts: UnknownModel) -> Recognition:
        """Return what a model of which only the name tells is taken for."""
        classes = facts.classes_or(COCO_CLASSES)
        return Recognition(classes, facts.unnamed(classes))

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        """Return how photographs are prepared for a model that was recognised."""
        del facts
        return cls.PICTURES

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._family, self._output, self._size = model.family, model.output, (model.image.height, model.image.width)
        shapes = [info.shape for info in loaded.outputs]
        if shapes and not any(None in shape for shape in shapes):
            self._check(shapes)

    def _check(self, shapes: Sequence[Shape]) -> Any:
        """Raise ConfigError where outputs are not of this family: those that the file declares, if no size is open, and each query's."""
