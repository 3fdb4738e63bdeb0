"""Conformance checks for data-set readers (the contract: `edgemeter.agent.datasets.Reader`)."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent import datasets
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.conformance.promise import is_one_line, public_imports, refused, require
from edgemeter.agent.datasets.dataset import open_folder


@dataclass(frozen=True, slots=True)
class ReaderCase:
    """A reader, a folder, its annotations (a file, or None), and the names of the items that have ground truth, sorted.

    `folder` may be a file that holds items and ground truth; it is then spoilt in the place of annotations.
    """

    name: str
    folder: Path
    annotations: Path | None
    items: tuple[str, ...]


Check = Callable[[ReaderCase, Path], None]


def recognises_its_own_and_nothing_else(case: ReaderCase, folder: Path) -> None:
    """Neither an empty folder nor foreign, empty or absent annotations."""
    reader = datasets.create(case.name)
    require(reader.recognises(case.folder, case.annotations) is True, "a reader recognises its own")
    (folder / "empty").mkdir()
    (folder / "garbage.of-nobody").write_bytes(b"\xff\xfe\x00garbage\n")
    (folder / "empty.of-nobody").write_bytes(b"")
    for annotations in (None, *(folder / name for name in ("garbage.of-nobody", "empty.of-nobody", "absent.of-nobody"))):
        is_recognised = reader.recognises(folder / "empty", annotations)
        require(is_recognised is False, f"a reader does not recognise {'an empty folder' if annotations is None else annotations.name}")


def names_its_items_and_is_found_by_them(case: ReaderCase, _folder: Path) -> None:
    """A data set that is opened without a word about the format has these items, and ground truth."""
    truth = datasets.create(case.name).read(case.folder, case.annotations)
    require(tuple(truth.named()) == case.items, f"it names {truth.named()}, {list(case.items)} is right")
    data = open_folder(case.folder, case.annotations)
    require(data.has_truth, "a data set of its format has ground truth")
    names = tuple(item.name for item in data.items)
    require(names == case.items, f"the data set has the items {list(names)}, {list(case.items)} is right")
    require(data.sha256 == open_folder(case.folder, case.annotations).sha256, "the same data set has the same hash")


def spoilt_annotations_are_refused(case: ReaderCase, folder: Path) -> None:
    """Absent, garbled: one line. Cut anywhere: that, or what is left is whole."""
    is_one_file = case.folder.is_file()
    spoilt = case.folder if is_one_file else case.annotations
    if spoilt is None or spoilt.is_dir():
        return
    reader, content = datasets.create(case.name), spoilt.read_bytes()
    copy = Path(shutil.copy(spoilt, folder / spoilt.name))
    where = (copy, case.annotations) if is_one_file else (case.folder, copy)
    for length in range(len(content)):
        copy.write_bytes(content[:length])
        try:
            reader.read(*where)
        except ConfigError as error:
            require(is_one_line(error), f"annotations cut after {length} bytes: the error has several lines: {error}")
    copy.write_bytes(b"\xff\xfe\x00garbage\n")
    with refused("reading garbled annotations", ConfigError, mentions=copy.name):
        reader.read(*where)
    copy.unlink()
    with refused("reading absent annotations", ConfigError, mentions=copy.name):
        reader.read(*where)


CHECKS: tuple[Check, ...] = (
    public_imports("reader", datasets.READERS, datasets.ENTRY_POINTS, lambda case: case.name),
    recognises_its_own_and_nothing_else,
    names_its_items_and_is_found_by_them,
    spoilt_annotations_are_refused,
)
