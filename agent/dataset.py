"""Data sets: a folder of photographs and, where there is one, its ground truth."""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.vision import annotations as ground_truth

logger = logging.getLogger(__name__)

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Dataset:
    """Photographs in a fixed order, with ground truth.

    `truth` is the parsed COCO annotation document (task detection: dict with images, annotations, categories) or None.
    `classes` maps file name to class index 0..999, in the order of `files` (task classification), or is None.
    `image_ids` are COCO's image ids in the order of `files` (None without COCO annotations).
    `sha256` covers the bytes of all files in order, and of the annotations.
    """

    name: str
    files: tuple[Path, ...]
    sha256: str
    image_ids: tuple[int, ...] | None = None
    truth: Mapping[str, Any] | None = None
    classes: Mapping[str, int] | None = None


def open_folder(images: Path, annotations: Path | None = None, limit: int | None = None) -> Dataset:
    """Return the photographs of a folder (not of folders below it), sorted by name, the first `limit` of them.

    With annotations the photographs are those that they name, sorted the same way: one that has no ground truth cannot be scored and
    is left out with a warning, because a folder often holds more than one set (all of val2017, annotations of 80).

    Raises:
        ConfigError: no folder, no photograph in it, or annotations that are garbled or name photographs that are not there.
    """
    present = _photographs(images)
    if annotations is None:
        files = tuple(images / name for name in present[:limit])
        return Dataset(images.resolve().name, files, _sha256(files))
    truth = ground_truth.read(annotations)
    named = sorted(truth) if isinstance(truth, dict) else sorted(image.file_name for image in truth.images)
    _check_named(images, annotations, named, present)
    named = named[:limit]
    files = tuple(images / name for name in named)
    sha256 = _sha256((*files, annotations))
    if isinstance(truth, dict):
        return Dataset(images.resolve().name, files, sha256, classes={name: truth[name] for name in named})
    ids = {image.file_name: image.id for image in truth.images}
    image_ids = tuple(ids[name] for name in named)
    return Dataset(images.resolve().name, files, sha256, image_ids, _restrict(truth, set(image_ids)))


def _photographs(folder: Path) -> list[str]:
    """Return the names of the image files in the folder, sorted.

    Raises:
        ConfigError: it is no folder, or holds none.
    """
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    except OSError as error:
        message = f"cannot read the image folder {str(folder)!r}: {error.strerror}; give the folder that holds the photographs"
        raise ConfigError(message) from error
    if not names:
        message = f"no photographs ({', '.join(SUFFIXES)}) in {str(folder)!r}: give the folder that holds them itself, not one above it"
        raise ConfigError(message)
    return names


def _check_named(folder: Path, annotations: Path, named: list[str], present: list[str]) -> None:
    if not named:
        message = f"the annotations {str(annotations)!r} name no photographs: give those of {str(folder)!r}"
        raise ConfigError(message)
    here = set(present)
    absent = [name for name in named if name not in here and not (folder / name).is_file()]
    if absent:
        message = (
            f"{len(absent)} of the {len(named)} photographs that the annotations {str(annotations)!r} name are not in {str(folder)!r}, "
            f"first {absent[0]!r}: give the folder they belong to, or annotations of these photographs only"
        )
        raise ConfigError(message)
    if extra := here.difference(named):
        first = min(extra)
        logger.warning("%d photographs in %s are left out, the annotations do not name them (first %s)", len(extra), folder, first)


def _restrict(document: ground_truth.Document, image_ids: set[int]) -> dict[str, Any]:
    """Return the document as plain data, for these images only; an annotation without area gets that of its box."""
    plain: dict[str, Any] = msgspec.to_builtins(document)
    plain["images"] = [image for image in plain["images"] if image["id"] in image_ids]
    plain["annotations"] = [
        {**annotation, "bbox": list(annotation["bbox"]), "area": _area(annotation)}
        for annotation in plain["annotations"]
        if annotation["image_id"] in image_ids
    ]
    return plain


def _area(annotation: Mapping[str, Any]) -> float:
    area: float | None = annotation["area"]
    return annotation["bbox"][2] * annotation["bbox"][3] if area is None else area


def _sha256(files: Iterable[Path]) -> str:
    """Return one hash over the hashes of the files in order, so that no byte can move from one file to the next unseen.

    Raises:
        ConfigError: a file cannot be read.
    """
    total = hashlib.sha256()
    for path in files:
        one = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    one.update(chunk)
        except OSError as error:
            message = f"cannot read {str(path)!r}: {error.strerror}"
            raise ConfigError(message) from error
        total.update(one.digest())
    return total.hexdigest()
