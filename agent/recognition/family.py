"""What a vision model without a card seems to be."""

from dataclasses import dataclass

Shape = tuple[int | None, ...]

COCO_CLASSES = 80
# COCO's ids run to 90 with gaps; TensorFlow and torchvision number their classes like them.
COCO_LAST_ID = 90


@dataclass(frozen=True, slots=True)
class Family:
    """What the model seems to be.

    `why` says from what; `doubts` say what had to be assumed that the file does not show, each with the key of a card that settles it.
    `strides` are those of its grid, where the card must name them.
    """

    name: str
    task: str
    classes: int
    why: str
    doubts: tuple[str, ...] = ()
    strides: tuple[int, ...] = ()


class UnknownFamilyError(ValueError):
    """The model is of no family that can be told without a card; the message says why."""


def unnamed(classes: int, numbering: str = "those of COCO") -> str:
    """Return the doubt about classes that the file does not name."""
    return f"{classes} classes, {numbering}: the file names none; output.classes and output.labels say"


def in_words(shapes: list[Shape]) -> str:
    """Return shapes as `[1, 84, ?], [1, 4]`."""
    return ", ".join("[" + ", ".join("?" if size is None else str(size) for size in shape) + "]" for shape in shapes)
