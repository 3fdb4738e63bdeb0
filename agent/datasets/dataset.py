"""A data set: a folder of photographs or arrays, the files that its ground truth names, or what lies inside one file.

Ground truth (`annotations`) is recognised by its content: COCO JSON; a JSON index `{"file": class}`; a text index `file class` (.txt,
.csv, .tsv); YOLO labels (their folder, or data.yaml, or classes.txt); what the readers of other packages recognise. Class folders need
none, or a list of their classes (.txt).
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.contract.case_settings import is_video
from edgemeter.agent.datasets import GroundTruth, Reader, Targets, create, names
from edgemeter.agent.datasets.class_lists import ClassIndex
from edgemeter.agent.datasets.coco import CocoDocument, plain_document
from edgemeter.agent.datasets.foreign_names import match_files
from edgemeter.agent.datasets.items import Item, item_of_file, list_items, photographs_in
from edgemeter.agent.datasets.video import VideoFrames
from edgemeter.agent.vision import photograph

logger = logging.getLogger(__name__)

_MAY_BE_WIDE, _LOOKED_AT = (".png", ".tif", ".tiff"), 20


@dataclass(frozen=True, slots=True)
class Dataset:
    """Items in a fixed order, photographs unless the ground truth names others, with ground truth.

    `truth` is the parsed COCO annotation document (dict with images, annotations, categories) or None.
    `classes` maps item names to a class index 0..999, in the order of `items` (task classification), or is None; with `class_names` the
    index is only the place among those names, and a model must know them or have as many.
    `image_ids` are COCO's image ids in the order of `items` (None without COCO annotations).
    `targets` maps item names to what another reader found, in the order of `items`, for a task that knows what it is.
    `sha256` covers the bytes of all items in order, and of the ground truth. `copies` are the places of items whose content an earlier one
    has, each with the place of the first that has it. `warnings` count what in the annotations is odd. `needed` are the files without which
    it cannot be opened again: those of the items, or all in the folder if no annotations list them. Of a video the items are its frames,
    `rate_per_s` a second.
    """

    name: str
    items: Sequence[Item]
    sha256: str
    image_ids: tuple[int, ...] | None = None
    truth: Mapping[str, Any] | None = None
    classes: Mapping[str, int] | None = None
    class_names: tuple[str, ...] | None = None
    drawn_from: int | None = None
    warnings: tuple[str, ...] = ()
    needed: tuple[Path, ...] = ()
    targets: Mapping[str, object] | None = None
    rate_per_s: float | None = None
    copies: Mapping[int, int] = field(default_factory=dict)

    @property
    def has_truth(self) -> bool:
        """Return whether there is ground truth to score against."""
        return self.truth is not None or self.classes is not None or self.targets is not None


def open_folder(
    images: Path,
    annotations: Path | None = None,
    subset: int | None = None,
    seed: int = 0,
    reader: Reader | None = None,
    first: int | None = None,
) -> Dataset:
    """Return the photographs of a folder, sorted by name; of one without photographs its arrays.

    `subset` takes so many of them, chosen by `seed`, the same on every machine.
    With annotations the photographs are those that they name, sorted the same way: one that has no ground truth cannot be scored and
    is left out with a warning, because a folder often holds more than one set (all of val2017, annotations of 80). Folders below it
    count only as class folders, or where annotations name them. A file in place of the folder holds the items itself, as a video does.
    A file that annotations name as another system or tool does is matched by its base name, with a note.

    Of photographs that annotations name, only those of the subset need be there. `reader` reads the ground truth; without one the
    first that recognises it does. `first` reads only so many of the items, to see what they are: the hash is then another.

    Raises:
        ConfigError: no folder, no photograph in it, or annotations that are garbled or name photographs that are not there.
    """
    if is_video(images.name) and images.is_file():
        return _of_video(images, annotations, subset)
    truth = read_truth(images, annotations, reader)
    named = list_items(images) if truth is None else truth.named()
    if not named:
        raise ConfigError(f"the annotations {str(annotations)!r} name no files: give the annotations of {str(images)!r}")
    all_names, drawn_from = _choose(named, subset, seed)
    names_in_set = all_names[:first]
    if truth is None:
        items = tuple(item_of_file(images, name) for name in names_in_set)
        paths = tuple(images / name for name in named)
        return Dataset(images.resolve().name, items, _sha256_of(_hashes(items)), drawn_from=drawn_from, needed=paths, warnings=_dark(items))
    notes: tuple[str, ...] = ()
    if inside := {item.name: item for item in truth.items}:
        items = tuple(inside[name] for name in names_in_set)
        needed_paths = sorted({item.path for item in truth.items})
    else:
        files, notes = match_files(images, named)
        needed_names = all_names if truth.named_by == "annotations" else named
        _check_named(images, annotations, files, needed_names)
        needed_paths = [images / files[name] for name in needed_names]
        items = tuple(item_of_file(images, files[name]) for name in names_in_set)
    hashes = _hashes(items)
    first_index = {content: index for index, content in reversed([*enumerate(hashes)])}
    copies = {index: first_index[content] for index, content in enumerate(hashes) if first_index[content] != index}
    dataset = Dataset(
        name=images.resolve().name,
        items=items,
        sha256=_sha256_of(hashes, truth.identity),
        drawn_from=drawn_from,
        warnings=(*truth.warnings, *notes, *_dark(items), *_copied(items, copies)),
        needed=(*needed_paths, *truth.beside),
        copies=copies,
    )
    return _with_truth(dataset, truth.content, names_in_set)


def _of_video(path: Path, annotations: Path | None, subset: int | None) -> Dataset:
    if annotations is not None or subset is not None:
        raise ConfigError(f"the video {path.name!r} is timed and not scored: leave annotations and subset out, or give its frames as data")
    frames, sha256 = VideoFrames(path), _sha256_of(_hashes((item_of_file(path.parent, path.name),)))
    return Dataset(path.name, frames, sha256, needed=(path,), rate_per_s=frames.rate_per_s)


def _dark(items: Sequence[Item]) -> tuple[str, ...]:
    """Return the note on values of fewer bits in files of 16 bits a channel, judged by some of these: they are read as nearly black."""
    files = [item.path for item in items if item.kind == "image" and item.is_file and item.path.suffix.lower() in _MAY_BE_WIDE]
    sample = files[:: max(len(files) // _LOOKED_AT, 1)][:_LOOKED_AT]
    # A file that cannot be read is named where it is needed.
    with suppress(EdgemeterError):
        if narrow := photograph.narrow_bits(sample):
            bits, wide = narrow
            note = (
                f"{len(wide)} of {len(sample)} photographs that were looked at have 16 bits a channel and no value above {bits} bits "
                f"(first {wide[0].name!r}): the upper 8 bits, which count, are nearly black; multiply the values by {2 ** (16 - bits)}"
            )
            return (note,)
    return ()


def _with_truth(dataset: Dataset, content: CocoDocument | ClassIndex | Targets, names_in_set: list[str]) -> Dataset:
    """Return the data set with the ground truth of its items."""
    if isinstance(content, CocoDocument):
        ids = {image.file_name: image.id for image in content.images}
        image_ids = tuple(ids[name] for name in names_in_set)
        return replace(dataset, image_ids=image_ids, truth=plain_document(content, set(image_ids)))
    if isinstance(content, ClassIndex):
        return replace(dataset, classes={name: content.classes[name] for name in names_in_set}, class_names=content.names)
    return replace(dataset, targets={name: content.values[name] for name in names_in_set})


def read_truth(folder: Path, annotations: Path | None, reader: Reader | None = None) -> GroundTruth | None:
    """Return the ground truth, as the given reader or the first that recognises it reads it; None of photographs without annotations.

    Raises:
        ConfigError: no reader recognises it, or it is garbled.
    """
    if reader is not None:
        return reader.read(folder, annotations)
    is_one_file = folder.is_file()
    if is_one_file and annotations is not None and annotations.is_dir():
        raise ConfigError(f"the data and the annotations are exchanged: write --data {annotations} --annotations {folder}")
    if annotations is None and not is_one_file and photographs_in(folder):
        return None
    for name in names():
        candidate = create(name)
        if candidate.recognises(folder, annotations):
            return candidate.read(folder, annotations)
    if is_one_file:
        raise ConfigError(f"cannot read the data in {str(folder)!r}: no reader recognises it; give a folder, or a file of a known format")
    # COCO's error lists what is understood.
    return None if annotations is None else create("coco").read(folder, annotations)


def _choose(named: list[str], count: int | None, seed: int) -> tuple[list[str], int | None]:
    """Return a sorted subset of the names, chosen by a hash of each name and independent of their order, and of how many it was drawn."""
    if count is None:
        return named, None
    if count > len(named):
        raise ConfigError(f"the subset has {count} items, but the data set has {len(named)}: choose a smaller subset")
    drawn_names = sorted(named, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())[:count]
    return sorted(drawn_names), len(named)


def _check_named(folder: Path, annotations: Path | None, files: Mapping[str, str], needed_names: Sequence[str]) -> None:
    if absent := [name for name in needed_names if name not in files]:
        raise ConfigError(
            f"{len(absent)} of the {len(needed_names)} files that the annotations {str(annotations)!r} name are not in {str(folder)!r}, "
            f"first {absent[0]!r}: give the folder they belong to, or annotations of these files only"
        )
    if extra := set(photographs_in(folder)).difference(files.values()):
        first = min(extra)
        logger.warning("%d photographs in %s are left out, the annotations do not name them (first %s)", len(extra), folder, first)


def _hashes(items: Sequence[Item]) -> list[bytes]:
    """Return the hash of the content of each item."""
    hashes: list[bytes] = []
    try:
        hashes += (item.sha256() for item in items)
    except OSError as error:
        raise ConfigError(f"cannot read {str(items[len(hashes)].path)!r}: {error.strerror}") from error
    return hashes


def _sha256_of(hashes: Iterable[bytes], identity: Path | bytes | None = None) -> str:
    """Return one hash over the hashes of the items in order and the ground truth, so that no byte can move from one to the next unseen."""
    total = hashlib.sha256(b"".join(hashes))
    try:
        if identity is not None:
            total.update(hashlib.sha256(identity).digest() if isinstance(identity, bytes) else bytes.fromhex(sha256_of(identity)))
    except OSError as error:
        raise ConfigError(f"cannot read {str(identity)!r}: {error.strerror}") from error
    return total.hexdigest()


def _copied(items: Sequence[Item], copies: Mapping[int, int]) -> tuple[str, ...]:
    """Return the note on items with the content of others."""
    if not copies:
        return ()
    copy, first = next((items[index].name, items[first].name) for index, first in copies.items())
    number = "1 item is a copy of another" if len(copies) == 1 else f"{len(copies)} of {len(items)} items are copies of others"
    return (f"{number} (first {copy!r} of {first!r}): the interval of the accuracy takes copies as one",)
