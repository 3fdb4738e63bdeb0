"""A data set: a folder of photographs, or of the files that its ground truth names.

Ground truth (`annotations`) is recognised by its content: COCO JSON; a JSON index `{"file": class}`; a text index `file class` (.txt,
.csv, .tsv); YOLO labels (their folder, or data.yaml, or classes.txt); what the readers of other packages recognise. Class folders need
none, or a list of their classes (.txt).
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record_conditions import Subset
from edgemeter.agent.datasets import GroundTruth, create, names
from edgemeter.agent.datasets.class_lists import ClassIndex
from edgemeter.agent.datasets.coco import CocoDocument, plain_document
from edgemeter.agent.datasets.photographs import list_photographs, photographs_in

logger = logging.getLogger(__name__)

SUBSET_METHOD = "smallest sha256 of `seed:file name`"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Files in a fixed order, photographs unless the ground truth names others, with ground truth.

    `truth` is the parsed COCO annotation document (task detection: dict with images, annotations, categories) or None.
    `classes` maps file name to class index 0..999, in the order of `files` (task classification), or is None; with `class_names` the
    index is only the place among those names, and a model must know them or have as many. `groups` maps file names to a group.
    `image_ids` are COCO's image ids in the order of `files` (None without COCO annotations).
    `targets` maps file names to what a reader of another package found, in the order of `files`, for a task that knows what it is.
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
    targets: Mapping[str, object] | None = None

    @property
    def has_truth(self) -> bool:
        """Return whether there is ground truth to score against."""
        return self.truth is not None or self.classes is not None or self.targets is not None


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
    named = list_photographs(images) if truth is None else truth.named()
    ours, chosen = _choose(named, subset, seed)
    files = tuple(images / name for name in ours)
    if truth is None:
        return Dataset(images.resolve().name, files, _sha256(files), subset=chosen, needed=tuple(images / name for name in named))
    needed = ours if truth.named_by == "annotations" else named
    _check_named(images, annotations, named, needed)
    made = Dataset(
        name=images.resolve().name,
        files=files,
        sha256=_sha256((*files, truth.identity)),
        subset=chosen,
        warnings=truth.warnings,
        needed=tuple(images / name for name in needed),
    )
    if isinstance(truth.content, CocoDocument):
        return _with_boxes(made, truth.content, ours)
    if isinstance(truth.content, ClassIndex):
        return _with_classes(made, truth.content, ours)
    return replace(made, targets={name: truth.content.values[name] for name in ours})


def _with_classes(made: Dataset, index: ClassIndex, ours: list[str]) -> Dataset:
    groups = {name: index.groups[name] for name in ours if name in index.groups}
    return replace(made, classes={name: index.classes[name] for name in ours}, class_names=index.names, groups=groups or None)


def _with_boxes(made: Dataset, document: CocoDocument, ours: list[str]) -> Dataset:
    ids = {image.file_name: image.id for image in document.images}
    image_ids = tuple(ids[name] for name in ours)
    return replace(made, image_ids=image_ids, truth=plain_document(document, set(image_ids)))


def _truth(folder: Path, annotations: Path | None) -> GroundTruth | None:
    """Return the ground truth, as the first reader that recognises it reads it; None of photographs without annotations.

    Raises:
        ConfigError: no reader recognises it, or it is garbled.
    """
    if annotations is None and photographs_in(folder):
        return None
    for name in names():
        reader = create(name)
        if reader.recognises(folder, annotations):
            return reader.read(folder, annotations)
    # COCO's error lists what is understood.
    return None if annotations is None else create("coco").read(folder, annotations)


def _choose(named: list[str], count: int | None, seed: int) -> tuple[list[str], Subset | None]:
    """Return so many of the named, sorted, and how they were chosen: by a hash of each, so that the order of files plays no part."""
    if count is None:
        return named, None
    if count > len(named):
        raise ConfigError(f"the subset has {count} photographs, but the data set has {len(named)}: choose a smaller subset")
    chosen = sorted(named, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())[:count]
    return sorted(chosen), Subset(images=count, drawn_from=len(named), seed=seed, method=SUBSET_METHOD)


def _check_named(folder: Path, annotations: Path | None, named: list[str], needed: list[str]) -> None:
    if not named:
        raise ConfigError(f"the annotations {str(annotations)!r} name no photographs: give those of {str(folder)!r}")
    here = set(photographs_in(folder))
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
