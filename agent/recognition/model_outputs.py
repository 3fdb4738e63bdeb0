"""The known facts of a model whose family its outputs are to show."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.recognition.metadata import (
    COCO_CLASSES,
    OutputFamily,
    SelfDescription,
    Shape,
    shapes_in_words,
    unnamed,
)
from edgemeter.agent.vision.decoders.grids import cell_count

# More rows than this are cells of a grid, not a list of objects.
MOST_QUERIES = 1000
_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))


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
        return () if self.labels else (unnamed(classes, "those of COCO" if classes == COCO_CLASSES else ""),)
