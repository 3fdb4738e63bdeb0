"""A data set, whose items are photographs, arrays, or parts of one file.

It is a folder of photographs or arrays, the files that its ground truth names, or the items inside
one file.

Ground truth (`annotations`) is recognised by its content: COCO JSON; a JSON index `{"file":
class}`; a text index `file class` (.txt, .csv, .tsv); YOLO labels (their folder, or data.yaml, or
classes.txt); formats of other packages' readers. Class folders need none, or a list of their
classes (.txt).
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgemeter.agent.base.durable_file import sha256_of
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, os_error_as, utf8_text
from edgemeter.agent.base.links import check_target, leads_out, links_out_of
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
    """Items in a fixed order, with their ground truth.

    At most one kind of ground truth is set: `truth`, `classes` or `targets`.

    Attributes:
        sha256: the hash over the bytes of all items in order, and of the ground truth.
        truth: COCO's annotation document (a dict with images, annotations, categories), with
            `image_ids` in the order of `items`.
        classes: class index by item name, in the order of `items`; with `class_names` an index into
            these, and the model must have the same names or as many.
        drawn_from: the number of items that the subset was drawn from.
        warnings: oddities of the annotations, counted.
        needed: the files without which it cannot be opened again: the items', or the whole folder's
            if no annotations list them.
        targets: another reader's ground truth by item name, in the order of `items`.
        rate_per_s: the frame rate of a video, whose frames are the items.
        copies: indices of items with the same content as an earlier one, each with the index of the
            first.
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
        """Whether there is ground truth to score against."""
        return self.truth is not None or self.classes is not None or self.targets is not None


@utf8_text()
def open_folder(
    images: Path,
    annotations: Path | None = None,
    subset: int | None = None,
    seed: int = 0,
    reader: Reader | None = None,
    first: int | None = None,
) -> Dataset:
    """Return the photographs of a folder, or its arrays if it has no photographs, sorted by name.

    Args:
        images: the folder, or a file that contains the items (a video). Its subfolders count only
            as class folders or if annotations name them.
        annotations: the items are those that they name, matched by base name, with a note, if the
            paths are another system's. Photographs without ground truth are left out with a
            warning: a folder often holds more than one set (val2017, with annotations of 80).
        subset: the number of items to draw by `seed`; only these must exist.
        seed: the seed of the draw, which is the same on every machine.
        reader: reads the ground truth; by default the first that recognises it.
        first: read only this many items, to see their kind; the hash then differs.

    Raises:
        ConfigError: there is no folder or no photograph in it, or the annotations are garbled or
            name photographs that do not exist, a link is not to be followed, or a name is not
            UTF-8.
    """
    for folder in filter(None, (images, annotations)):
        links_out_of(folder)
    if is_video(images.name) and images.is_file():
        return _of_video(images, annotations, subset)
    truth = read_truth(images, annotations, reader)
    named = list_items(images) if truth is None else truth.named()
    if not named:
        raise ConfigError(
            f"the annotations {str(annotations)!r} name no files: give the annotations of "
            f"{str(images)!r}"
        )
    with utf8_text(images.resolve().name, *named):
        all_names, drawn_from = _choose(named, subset, seed)
    names_in_set = all_names[:first]
    if truth is None:
        items = tuple(item_of_file(images, name) for name in names_in_set)
        return Dataset(
            images.resolve().name,
            items,
            _sha256_of(_hashes(items)),
            drawn_from=drawn_from,
            needed=tuple(images / name for name in named),
            warnings=_dark(items),
        )
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
        for item in items:
            # One of another name than photographs and arrays have.
            if item.path.is_symlink() and leads_out(item.path, images):
                check_target(item.path)
    hashes = _hashes(items)
    first_index = {content: index for index, content in reversed([*enumerate(hashes)])}
    copies = {
        index: first_index[content]
        for index, content in enumerate(hashes)
        if first_index[content] != index
    }
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
        raise ConfigError(
            f"the video {path.name!r} is timed and not scored: leave annotations and subset out, "
            "or give its frames as data"
        )
    frames, sha256 = VideoFrames(path), _sha256_of(_hashes((item_of_file(path.parent, path.name),)))
    return Dataset(path.name, frames, sha256, needed=(path,), rate_per_s=frames.rate_per_s)


def _dark(items: Sequence[Item]) -> tuple[str, ...]:
    """Return the note on files of 16 bits a channel whose values use fewer bits.

    They are read as nearly black. It is judged by a sample.
    """
    files = [
        item.path
        for item in items
        if item.kind == "image" and item.is_file and item.path.suffix.lower() in _MAY_BE_WIDE
    ]
    sample = files[:: max(len(files) // _LOOKED_AT, 1)][:_LOOKED_AT]
    # An unreadable file is reported when it is used.
    with suppress(EdgemeterError):
        if narrow := photograph.narrow_bits(sample):
            bits, wide = narrow
            return (
                (
                    f"{len(wide)} of the {len(sample)} photographs checked have 16 bits a channel "
                    f"and no value above {bits} bits "
                    f"(first {wide[0].name!r}), so they are read as nearly black: multiply the "
                    f"values by {2 ** (16 - bits)}"
                ),
            )
    return ()


def _with_truth(
    dataset: Dataset, content: CocoDocument | ClassIndex | Targets, names_in_set: list[str]
) -> Dataset:
    if isinstance(content, CocoDocument):
        ids = {image.file_name: image.id for image in content.images}
        image_ids = tuple(ids[name] for name in names_in_set)
        return replace(dataset, image_ids=image_ids, truth=plain_document(content, set(image_ids)))
    if isinstance(content, ClassIndex):
        return replace(
            dataset,
            classes={name: content.classes[name] for name in names_in_set},
            class_names=content.names,
        )
    return replace(dataset, targets={name: content.values[name] for name in names_in_set})


def read_truth(
    folder: Path, annotations: Path | None, reader: Reader | None = None
) -> GroundTruth | None:
    """Return the ground truth, by the given reader or the first that recognises it.

    None for photographs without annotations.

    Raises:
        ConfigError: no reader recognises it, or it is garbled.
    """
    if reader is not None:
        return reader.read(folder, annotations)
    is_one_file = folder.is_file()
    if is_one_file and annotations is not None and annotations.is_dir():
        raise ConfigError(
            f"the data and the annotations are exchanged: write --data {annotations} "
            f"--annotations {folder}"
        )
    if annotations is None and not is_one_file and photographs_in(folder):
        return None
    for name in names():
        candidate = create(name)
        if candidate.recognises(folder, annotations):
            return candidate.read(folder, annotations)
    if is_one_file:
        raise ConfigError(
            f"cannot read the data in {str(folder)!r}: no reader recognises it; give a folder, "
            "or a file of a known format"
        )
    # COCO's error lists the known forms.
    return None if annotations is None else create("coco").read(folder, annotations)


def _choose(named: list[str], count: int | None, seed: int) -> tuple[list[str], int | None]:
    """Return a sorted subset of the names, and the number it was drawn from.

    It is drawn by a hash of each, so it is the same in any order.
    """
    if count is None:
        return named, None
    if count > len(named):
        raise ConfigError(
            f"the subset has {count} items, but the data set has {len(named)}: choose "
            "a smaller subset"
        )
    drawn_names = sorted(
        named, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest()
    )[:count]
    return sorted(drawn_names), len(named)


def _check_named(
    folder: Path, annotations: Path | None, files: Mapping[str, str], needed_names: Sequence[str]
) -> None:
    if absent := [name for name in needed_names if name not in files]:
        raise ConfigError(
            f"{len(absent)} of the {len(needed_names)} files that the annotations "
            f"{str(annotations)!r} name are not in {str(folder)!r}, "
            f"first {absent[0]!r}: give the folder they belong to, or annotations of "
            "these files only"
        )
    if extra := set(photographs_in(folder)).difference(files.values()):
        logger.warning(
            "%d photographs in %s are left out, the annotations do not name them (first %s)",
            len(extra),
            folder,
            min(extra),
        )


def _hashes(items: Sequence[Item]) -> list[bytes]:
    hashes: list[bytes] = []
    try:
        hashes += (item.sha256() for item in items)
    except OSError as error:
        raise ConfigError(
            f"cannot read {str(items[len(hashes)].path)!r}: {error.strerror}"
        ) from error
    return hashes


def _sha256_of(hashes: Iterable[bytes], identity: Path | bytes | None = None) -> str:
    """Return one hash over the hashes of the items in order and the ground truth.

    Bytes that move from one item to the next change it.
    """
    total = hashlib.sha256(b"".join(hashes))
    if isinstance(identity, bytes):
        total.update(hashlib.sha256(identity).digest())
    elif identity is not None:
        with os_error_as(ConfigError, f"cannot read {str(identity)!r}"):
            total.update(bytes.fromhex(sha256_of(identity)))
    return total.hexdigest()


def _copied(items: Sequence[Item], copies: Mapping[int, int]) -> tuple[str, ...]:
    if not copies:
        return ()
    copy, first = next((items[index].name, items[first].name) for index, first in copies.items())
    number = (
        "1 item is a copy of another"
        if len(copies) == 1
        else f"{len(copies)} of {len(items)} items are copies of others"
    )
    return (
        (
            f"{number} (first {copy!r} of {first!r}): the interval of the accuracy "
            "counts copies as one item"
        ),
    )
