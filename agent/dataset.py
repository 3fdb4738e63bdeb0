"""Data sets: a folder of photographs and, where there is one, its ground truth."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Dataset:
    """Photographs in a fixed order, with ground truth.

    `truth` is the parsed COCO annotation document (task detection: dict with images, annotations, categories) or None.
    `classes` maps file name to class index 0..999 (task classification) or is None.
    `image_ids` are COCO's image ids in the order of `files` (None without COCO annotations).
    `sha256` covers the bytes of all files in order, and of the annotations.
    """

    name: str
    files: tuple[Path, ...]
    sha256: str
    image_ids: tuple[int, ...] | None = None
    truth: Mapping[str, Any] | None = None
    classes: Mapping[str, int] | None = None
