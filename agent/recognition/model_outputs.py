"""The known facts of a detector without a card: shapes of its outputs, size of its input, its name, its own metadata."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.recognition.metadata import COCO_CLASSES, OutputFamily, SelfDescription, Shape, shapes_in_words, unnamed
from edgemeter.agent.vision.decoders.boxes import cell_count

_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))
_SIDES = range(32, 2049, 32)
# More rows than this are cells of a grid, not a list of objects.
MOST_QUERIES = 1000


def side_of(shapes: Sequence[Shape]) -> int | None:
    """Return the side of the square input (32, 64 .. 2048 pixels) whose YOLO grid has as many cells as an output has anchors."""
    # The longer axis; where one is open, the other is that of the classes.
    longest = {max(shape[1] or 0, shape[2] or 0) for shape in shapes if len(shape) == 3 and None not in shape[1:]}
    found = [side for side in _SIDES if longest & {times * cells for cells in cell_counts((side, side))[:2] for times in (1, 3)}]
    return found[0] if len(found) == 1 else None


def cell_counts(size: tuple[int, int] | None) -> list[int]:
    """Return how many cells the usual grids have on an input of this height and width; none on one of open size."""
    return [cell_count(*size, strides) for strides in _STRIDES] if size else []


@dataclass(frozen=True, slots=True)
class ModelOutputs:
    """The known facts of a model; arguments as for `output_shapes.family_of_outputs`."""

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
