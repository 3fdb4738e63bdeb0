"""Ground truth of a classifier, in one of three forms.

They are `file class` a line (.txt), a table (.csv, .tsv), or ImageNet-style folders, one per class.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.items import files_in, read_text

Target = TypeVar("Target")
CLASS_LIST_FORM = (
    "each line is `file class` (.csv and .tsv: file, class and what else the heading names), "
    "class a number from 0 on"
)
TINY_LIST_FORM = (
    "each line is `file,classes,label` or `file,classes,label,window,stride`, as in MLPerf Tiny"
)


@dataclass(frozen=True, slots=True)
class ClassIndex:
    """The index of one class per file.

    With `names` a class is an index into them, and the model must use the same names.
    """

    classes: dict[str, int]
    names: tuple[str, ...] | None = None


def read_class_list(path: Path) -> ClassIndex:
    """Return the index in a text file.

    Raises:
        ConfigError: it cannot be read or a line has another form.
    """
    classes: dict[str, int] = {}
    heading, lines = _lines(path)
    for number, cells in lines:
        if (
            not 2 <= len(cells) <= max(2, len(heading))
            or not cells[1].isascii()
            or not cells[1].isdigit()
        ):
            raise ConfigError(
                f"the index {str(path)!r}: line {number} is {' '.join(cells)[:80]!r}: "
                f"{CLASS_LIST_FORM}"
            )
        add_target(
            classes,
            cells[0],
            int(cells[1]),
            f"the index {str(path)!r}: line {number}",
            "image folder",
        )
    return ClassIndex(classes)


def read_tiny_list(path: Path) -> ClassIndex:
    """Return the classes in MLPerf Tiny's list of files.

    Raises:
        ConfigError: a line has another form.
    """
    classes: dict[str, int] = {}
    for number, line in enumerate(text_lines(path), 1):
        cells = [cell.strip() for cell in line.split(",")]
        is_row = (
            len(cells) in (3, 5)
            and all(cell.isascii() and cell.isdigit() for cell in cells[1:])
            and int(cells[2]) < int(cells[1])
        )
        if line.strip() and not is_row:
            raise ConfigError(
                f"the list {str(path)!r}: line {number} is {line[:80]!r}: {TINY_LIST_FORM}"
            )
        if is_row:
            add_target(classes, cells[0], int(cells[2]), f"{str(path)!r}: line {number}")
    if not classes:
        raise ConfigError(f"the list {str(path)!r} names no files: {TINY_LIST_FORM}")
    return ClassIndex(classes)


def add_target(
    targets: dict[str, Target], name: str, target: Target, where: str, folder: str = "folder"
) -> None:
    """Add a file's target.

    Raises:
        ConfigError: the file was named before or lies outside the folder; the message begins with
            `where`.
    """
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ConfigError(f"{where}: the file name {name!r} leads out of the {folder}: correct it")
    if name in targets:
        raise ConfigError(f"{where} names {name!r} a second time: leave one of the lines")
    targets[name] = target


def _lines(path: Path) -> tuple[Sequence[str], list[tuple[int, Sequence[str]]]]:
    """Return the heading, and the number and the cells of every other non-empty line.

    The heading is empty if there is none.
    """
    separator = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    lines = text_lines(path)
    # Without separators the class is the last word: file names may contain spaces.
    rows: Iterator[list[str]] = (
        csv.reader(lines, delimiter=separator)
        if separator
        else (line.rsplit(None, 1) for line in lines)
    )
    try:
        numbered = [(number, [cell.strip() for cell in row]) for number, row in enumerate(rows, 1)]
    except csv.Error as error:
        raise ConfigError(
            f"the index {str(path)!r} is no table ({error}): {CLASS_LIST_FORM}"
        ) from error
    has_heading = (
        bool(numbered)
        and separator is not None
        and len(numbered[0][1]) > 1
        and not numbered[0][1][1].isdigit()
    )
    return numbered[0][1] if has_heading else [], [
        line for line in numbered[has_heading:] if any(line[1])
    ]


def text_lines(path: Path) -> list[str]:
    """Return the lines of a text file; raises ConfigError if it cannot be read or is not UTF-8."""
    return read_text(path, "the annotations").splitlines()


def find_class_names(images: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the folders in `images` that hold such files, sorted by name, without hidden ones."""
    try:
        return [
            path
            for path in sorted(images.iterdir())
            if path.is_dir() and not path.name.startswith(".") and files_in(path, suffixes)
        ]
    except (OSError, ConfigError):
        return []


def read_class_folders(
    images: Path, suffixes: Sequence[str], listed: Path | None = None
) -> ClassIndex:
    """Return the class of every file in the class folders.

    Raises:
        ConfigError: the list `listed` is unreadable or lacks a folder.
    """
    folders = find_class_names(images, suffixes)
    names = [folder.name for folder in folders]
    are_numbers = all(name.isascii() and name.isdigit() for name in names)
    places = (
        _in_list(listed, names)
        if listed
        else {name: int(name) if are_numbers else index for index, name in enumerate(names)}
    )
    classes = {
        f"{folder.name}/{photo}": places[folder.name]
        for folder in folders
        for photo in files_in(folder, suffixes)
    }
    return ClassIndex(
        classes, names=None if listed or all(name.isdigit() for name in names) else tuple(names)
    )


def _in_list(listed: Path, names: Sequence[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for index, line in enumerate(line.strip() for line in text_lines(listed) if line.strip()):
        for name in (line, line.split(None, 1)[0].rstrip(",")):
            places.setdefault(name, index)
    absent = [name for name in names if name not in places]
    if absent:
        raise ConfigError(
            f"the list of classes {str(listed)!r} does not name {len(absent)} of the "
            f"{len(names)} class folders, first {absent[0]!r}: "
            "give one class a line, its first word the folder's name"
        )
    return places
