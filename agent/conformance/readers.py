"""What every data-set reader promises (the contract: `edgemeter.agent.datasets.Reader`)."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent import datasets
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.conformance.promise import is_one_line, refused, require
from edgemeter.agent.datasets.dataset import open_folder


@dataclass(frozen=True, slots=True)
class ReaderCase:
    """A reader, a folder, its annotations (a file, or None), and the names of the files that have ground truth, sorted."""

    name: str
    folder: Path
    annotations: Path | None
    files: tuple[str, ...]


Check = Callable[[ReaderCase, Path], None]


def recognises_its_own_and_nothing_else(case: ReaderCase, folder: Path) -> None:
    """Neither an empty folder nor foreign, empty or absent annotations."""
    reader = datasets.create(case.name)
    require(reader.recognises(case.folder, case.annotations) is True, "a reader recognises its own")
    (folder / "empty").mkdir()
    (folder / "garbage.of-nobody").write_bytes(b"\xff\xfe\x00garbage\n")
    (folder / "empty.of-nobody").write_bytes(b"")
    for annotations in (None, *(folder / name for name in ("garbage.of-nobody", "empty.of-nobody", "absent.of-nobody"))):
        found = reader.recognises(folder / "empty", annotations)
        require(found is False, f"a reader does not recognise {'an empty folder' if annotations is None else annotations.name}")


def names_its_files_and_is_found_by_them(case: ReaderCase, _folder: Path) -> None:
    """A data set that is opened without a word about the format has these files, and ground truth."""
    truth = datasets.create(case.name).read(case.folder, case.annotations)
    require(tuple(truth.named()) == case.files, f"it names {truth.named()}, {list(case.files)} is right")
    data = open_folder(case.folder, case.annotations)
    require(data.has_truth, "a data set of its format has ground truth")
    found = tuple(path.relative_to(case.folder).as_posix() for path in data.files)
    require(found == case.files, f"the data set has the files {list(found)}, {list(case.files)} is right")
    require(data.sha256 == open_folder(case.folder, case.annotations).sha256, "the same data set has the same hash")


def spoilt_annotations_are_refused(case: ReaderCase, folder: Path) -> None:
    """Absent, garbled: one line. Cut anywhere: that, or what is left is whole."""
    if case.annotations is None or case.annotations.is_dir():
        return
    reader, whole = datasets.create(case.name), case.annotations.read_bytes()
    copy = Path(shutil.copy(case.annotations, folder / case.annotations.name))
    for length in range(len(whole)):
        copy.write_bytes(whole[:length])
        try:
            reader.read(case.folder, copy)
        except ConfigError as error:
            require(is_one_line(error), f"annotations cut after {length} bytes: the error has several lines: {error}")
    copy.write_bytes(b"\xff\xfe\x00garbage\n")
    with refused("reading garbled annotations", ConfigError, mentions=copy.name):
        reader.read(case.folder, copy)
    copy.unlink()
    with refused("reading absent annotations", ConfigError, mentions=copy.name):
        reader.read(case.folder, copy)


CHECKS: tuple[Check, ...] = (
    recognises_its_own_and_nothing_else,
    names_its_files_and_is_found_by_them,
    spoilt_annotations_are_refused,
)
