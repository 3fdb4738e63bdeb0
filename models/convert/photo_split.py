"""Which photographs an int8 conversion measures ranges on, chooses its recipe by, and is judged on: none serves two of these.

A photograph is its content, whatever folder and name it has. Which go where follows from their hashes alone.
Where both folders hold the same, half of it is measured on; of what is left, a third is chosen by.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TypeVar

from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.models.convert.source import CalibrationImages

Value = TypeVar("Value")
# Fewer are no part: what is chosen by, or measured on, is then not taken from what is judged on.
LEAST = 8
# More would cost time and choose no other recipe.
CHOICE_MOST = 100


@dataclass(frozen=True, slots=True)
class PhotoSplit:
    """The parts. `choice` and `judgement` are None where there is none: then what is measured on serves for it too.

    Without any photographs all are None.
    """

    ranges: CalibrationImages | None
    choice: Dataset | None
    judgement: Dataset | None

    @property
    def compared(self) -> Dataset | None:
        """The photographs to compare on: those for judgement, or where there are none those that were measured on, which judge nothing."""
        return self.judgement or (self.ranges.data if self.ranges else None)

    @property
    def counts(self) -> dict[str, int]:
        """The number of photographs in each part."""
        parts = {"ranges": self.ranges.data if self.ranges else None, "choice": self.choice, "judgement": self.judgement}
        return {name: len(part.items) if part else 0 for name, part in parts.items()}


def split(calibration: CalibrationImages | None, pictures: Dataset | None, *, has_choice: bool) -> PhotoSplit:
    """Return the parts of the calibration images and of those to compare on (None: the calibration images).

    Without `calibration` all are for judgement. `has_choice`: whether there is a recipe to choose.
    """
    if calibration is None:
        return PhotoSplit(None, None, pictures)
    measured, pictures = calibration.data, pictures or calibration.data
    contents = [item.sha256() for item in pictures.items]
    measured_contents = [item.sha256() for item in measured.items]
    shared = set(contents).intersection(measured_contents)
    for_ranges = set(measured_contents) - shared
    if len(for_ranges) < LEAST and shared:
        count = len(shared) // 2 if len(shared) >= 2 * LEAST else len(shared)
        for_ranges |= _drawn([content for content in contents if content in shared], count)
    unmeasured = [content for content in contents if content not in for_ranges]
    choosing = _drawn(unmeasured, min(CHOICE_MOST, max(LEAST, len(unmeasured) // 3))) if has_choice else set()
    judging = set(unmeasured) - choosing
    if sum(content in judging for content in unmeasured) < LEAST:
        choosing, judging = set(), set(unmeasured)
    ranges = _part(measured, [content in for_ranges for content in measured_contents])
    choice, judgement = (_part(pictures, [content in part for content in contents]) for part in (choosing, judging))
    return PhotoSplit(CalibrationImages(ranges, calibration.about), choice if choosing else None, judgement if judging else None)


def _drawn(contents: Sequence[bytes], count: int) -> set[bytes]:
    """Return the smallest hashes that so many photographs have together."""
    smallest, total = set[bytes](), 0
    for content, size in sorted(Counter(contents).items()):
        if total >= count:
            break
        smallest.add(content)
        total += size
    return smallest


def _part(data: Dataset, is_in: Sequence[bool]) -> Dataset:
    """Return the data set with these of its items; with all of them it is the same."""
    if all(is_in):
        return data
    items = tuple(compress(data.items, is_in))
    names = {item.name for item in items}

    def of_items(values: Mapping[str, Value] | None) -> Mapping[str, Value] | None:
        return None if values is None else {name: value for name, value in values.items() if name in names}

    return replace(
        data,
        items=items,
        sha256=hashlib.sha256(data.sha256.encode() + b"".join(item.sha256() for item in items)).hexdigest(),
        image_ids=None if data.image_ids is None else tuple(compress(data.image_ids, is_in)),
        classes=of_items(data.classes),
        targets=of_items(data.targets),
    )
