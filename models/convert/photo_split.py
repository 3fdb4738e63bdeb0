"""Splits photographs into those for int8 ranges and those for judging a conversion.

No photograph is in both.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import TypeVar

from edgemeter.agent.datasets.dataset import Dataset

Value = TypeVar("Value")
# Fewer photographs are not enough to judge.
LEAST = 8


@dataclass(frozen=True, slots=True)
class PhotoSplit:
    """The photographs for ranges and for the comparison; `is_apart`: without overlap."""

    ranges: Dataset | None
    compared: Dataset | None
    is_apart: bool


def split(calibration: Dataset | None, pictures: Dataset | None) -> PhotoSplit:
    """Return the photographs for ranges and for the comparison.

    Each gets a half of those that are in both data sets. A photograph is identified by its content,
    not by folder and name, and its half follows from its hash alone. Without `pictures` the
    calibration images are compared on. If too few would remain, both data sets are used in full.
    """
    if calibration is None:
        return PhotoSplit(None, pictures, is_apart=True)
    pictures = pictures or calibration
    measured, compared = (
        [item.sha256() for item in data.items] for data in (calibration, pictures)
    )
    shared = sorted(set(measured).intersection(compared))
    aside, measured_on = set(shared[len(shared) // 2 :]), set(shared[: len(shared) // 2])
    is_measured, is_compared = (
        [content not in aside for content in measured],
        [content not in measured_on for content in compared],
    )
    if not any(is_measured) or sum(is_compared) < LEAST:
        return PhotoSplit(calibration, pictures, is_apart=not shared)
    return PhotoSplit(_part(calibration, is_measured), _part(pictures, is_compared), is_apart=True)


def _part(data: Dataset, is_in: list[bool]) -> Dataset:
    """Return the data set with these items; unchanged if that is all of them."""
    if all(is_in):
        return data
    items = tuple(compress(data.items, is_in))
    names = {item.name for item in items}
    new_index = {index: new for new, index in enumerate(compress(range(len(data.items)), is_in))}

    def of_items(values: Mapping[str, Value] | None) -> Mapping[str, Value] | None:
        return (
            None
            if values is None
            else {name: value for name, value in values.items() if name in names}
        )

    return replace(
        data,
        items=items,
        sha256=hashlib.sha256(
            data.sha256.encode() + b"".join(item.sha256() for item in items)
        ).hexdigest(),
        image_ids=None if data.image_ids is None else tuple(compress(data.image_ids, is_in)),
        classes=of_items(data.classes),
        targets=of_items(data.targets),
        # A photograph and its copies are in one part.
        copies={
            new_index[index]: new_index[first]
            for index, first in data.copies.items()
            if index in new_index
        },
    )
