"""Data sets: a folder of photographs and, where there is one, its ground truth.

Ground truth (`annotations`) is recognised by its content: COCO JSON; a JSON index `{"file": class}`; a text index `file class` (.txt,
.csv, .tsv); YOLO labels (their folder, or data.yaml, or classes.txt). Class folders need none, or a list of their classes (.txt).
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record_conditions import Subset
from edgemeter.agent.datasets import yolo
from edgemeter.agent.datasets.class_lists import ClassIndex, find_class_names, read_class_folders, read_class_list, text_lines
from edgemeter.agent.datasets.coco import CocoDocument, annotation_oddities, plain_document, read_annotations

logger = logging.getLogger(__name__)

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
SUBSET_METHOD = "smallest sha256 of `seed:file name`"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Photographs in a fixed order, with ground truth.

    `truth` is the parsed COCO annotation document (task detection: dict with images, annotations, categories) or None.
    `classes` maps file name to class index 0..999, in the order of `files` (task classification), or is None; with `class_names` the
    index is only the place among those names, and a model must know them or have as many. `groups` maps file names to a group.
    `image_ids` are COCO's image ids in the order of `files` (None without COCO annotations).
    `sha256` covers the bytes of all files in order, and of the annotations. `warnings` count what in the annotations is odd. `needed` are
    the photographs without which it cannot be opened again: `files`, or all in the folder if no annotations list them.
    """

    name: str
    files: tuple[Path, ...]
    sha256: str
    image_ids: tuple[int, ...] | None = None
    truth: Mapping[str, Any] | None = None
    classes: Mapping[str, int] | None = None
    class_names: tuple[str, ...] | None = None
    groups: Mapping[str, str] | None = None
    subset: Subset | None = None
    warnings: tuple[str, ...] = ()
    needed: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class _Truth:
    """Ground truth, what replaces its bytes in the hash of the data set, what is odd about it, and what names its photographs."""

    content: CocoDocument | ClassIndex
    identity: Path | bytes
    warnings: tuple[str, ...] = ()
    named_by: Literal["annotations", "folder"] = "annotations"

    def named(self) -> list[str]:
        """Return the file names, sorted."""
        if isinstance(self.content, ClassIndex):
            return sorted(self.content.classes)
        return sorted(image.file_name for image in self.content.images if image.file_name is not None)


def open_folder(images: Path, annotations: Path | None = None, subset: int | None = None, seed: int = 0) -> Dataset:
    """Return the photographs of a folder, sorted by name; `subset` takes so many of them, chosen by `seed`, the same on every machine.

    With annotations the photographs are those that they name, sorted the same way: one that has no ground truth cannot be scored and
    is left out with a warning, because a folder often holds more than one set (all of val2017, annotations of 80). Folders below it
    count only as class folders, or where annotations name them.

    Of photographs that annotations name, only those of the subset need be there.

    Raises:
        ConfigError: no folder, no photograph in it, or annotations that are garbled or name photographs that are not there.
    """
    truth = _truth(images, annotations)
    named = _photographs(images) if truth is None else truth.named()
    names, chosen = _choose(named, subset, seed)
    files = tuple(images / name for name in names)
    if truth is None:
        return Dataset(images.resolve().name, files, _sha256(files), subset=chosen, needed=tuple(images / name for name in named))
    needed = names if truth.named_by == "annotations" else named
    _check_named(images, annotations, named, needed)
    made = Dataset(
        name=images.resolve().name,
        files=files,
        sha256=_sha256((*files, truth.identity)),
        subset=chosen,
        warnings=truth.warnings,
        needed=tuple(images / name for name in needed),
    )
    return _with_classes(made, truth.content, names) if isinstance(truth.content, ClassIndex) else _with_boxes(made, truth.content, names)


def _with_classes(made: Dataset, index: ClassIndex, names: list[str]) -> Dataset:
    groups = {name: index.groups[name] for name in names if name in index.groups}
    return replace(made, classes={name: index.classes[name] for name in names}, class_names=index.names, groups=groups or None)


def _with_boxes(made: Dataset, document: CocoDocument, names: list[str]) -> Dataset:
    ids = {image.file_name: image.id for image in document.images}
    image_ids = tuple(ids[name] for name in names)
    return replace(made, image_ids=image_ids, truth=plain_document(document, set(image_ids)))


def _truth(images: Path, annotations: Path | None) -> _Truth | None:
    """Return the ground truth, its kind recognised by its content; None without one."""
    if annotations is None:
        if _names_of_photographs(images) or not find_class_names(images, SUFFIXES):
            return None
        index = read_class_folders(images, SUFFIXES)
        return _Truth(index, msgspec.json.encode(index.classes, order="sorted"), named_by="folder")
    if yolo.are_named_by(annotations):
        return _of_yolo(images, annotations)
    suffix = annotations.suffix.lower()
    if suffix in (".txt", ".csv", ".tsv"):
        is_list = suffix == ".txt" and not _names_of_photographs(images) and not _is_index(annotations)
        index = read_class_folders(images, SUFFIXES, annotations) if is_list else read_class_list(annotations)
        return _Truth(index, msgspec.json.encode(index.classes, order="sorted"), named_by="folder" if is_list else "annotations")
    content = read_annotations(annotations)
    if isinstance(content, dict):
        return _Truth(ClassIndex(content), annotations)
    if unnamed := sum(image.file_name is None for image in content.images):
        raise ConfigError(
            f"{unnamed} of the {len(content.images)} images in {str(annotations)!r} have no file_name: add it, or score detections only"
        )
    return _Truth(content, annotations, annotation_oddities(content))


def _of_yolo(images: Path, annotations: Path) -> _Truth:
    document, odd = yolo.read_labels(images, annotations, _photographs(images))
    return _Truth(document, msgspec.json.encode(document), (*odd, *annotation_oddities(document)), "folder")


def _is_index(path: Path) -> bool:
    """Return whether the first line of a text names a photograph."""
    first = next((line for line in text_lines(path) if line.strip()), "")
    return Path(first.strip().rsplit(None, 1)[0] if first else "").suffix.lower() in SUFFIXES


def _choose(names: list[str], count: int | None, seed: int) -> tuple[list[str], Subset | None]:
    """Return so many of the names, sorted, and how they were chosen: by a hash of each, so that the order of files plays no part."""
    if count is None:
        return names, None
    if count > len(names):
        raise ConfigError(f"the subset has {count} photographs, but the data set has {len(names)}: choose a smaller subset")
    chosen = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())[:count]
    return sorted(chosen), Subset(images=count, drawn_from=len(names), seed=seed, method=SUBSET_METHOD)


def _names_of_photographs(folder: Path) -> list[str]:
    """Return the names of the image files in the folder, sorted."""
    try:
        return sorted(path.name for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    except OSError as error:
        raise ConfigError(
            f"cannot read the image folder {str(folder)!r}: {error.strerror}; give the folder that holds the photographs"
        ) from error


def _photographs(folder: Path) -> list[str]:
    names = _names_of_photographs(folder)
    if not names:
        raise ConfigError(
            f"no photographs ({', '.join(SUFFIXES)}) in {str(folder)!r}: give the folder that holds them itself, not one above it"
        )
    return names


def _check_named(folder: Path, annotations: Path | None, named: list[str], needed: list[str]) -> None:
    if not named:
        raise ConfigError(f"the annotations {str(annotations)!r} name no photographs: give those of {str(folder)!r}")
    here = set(_names_of_photographs(folder))
    absent = [name for name in needed if name not in here and not (folder / name).is_file()]
    if absent:
        raise ConfigError(
            f"{len(absent)} of the {len(needed)} photographs that the annotations {str(annotations)!r} name are not in {str(folder)!r}, "
            f"first {absent[0]!r}: give the folder they belong to, or annotations of these photographs only"
        )
    if extra := here.difference(named):
        first = min(extra)
        logger.warning("%d photographs in %s are left out, the annotations do not name them (first %s)", len(extra), folder, first)


def _sha256(parts: Iterable[Path | bytes]) -> str:
    """Return one hash over the hashes of the files (or bytes) in order, so that no byte can move from one to the next unseen."""
    total = hashlib.sha256()
    for part in parts:
        try:
            total.update(hashlib.sha256(part).digest() if isinstance(part, bytes) else bytes.fromhex(sha256_of(part)))
        except OSError as error:
            raise ConfigError(f"cannot read {str(part)!r}: {error.strerror}") from error
    return total.hexdigest()
