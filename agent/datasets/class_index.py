"""Ground truth of a classifier as text: `file class` a line (.txt), or a table with a heading or without one (.csv, .tsv).

    ILSVRC2012_val_00000001.JPEG 65
    file,class,group
    kitchen_0.jpg,12,night

Classes are numbers from 0 on. A third column is the group that accuracy is also given for.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgemeter.agent.errors import ConfigError

FORM = "each line is `file class` (.csv and .tsv: file, class and, where there are groups, group), class a number from 0 on"


@dataclass(frozen=True, slots=True)
class ClassIndex:
    """One class per file. `groups` holds those that have one. With `names` a class is only its place among them: a model must agree."""

    classes: dict[str, int]
    groups: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] | None = None


def read(path: Path) -> ClassIndex:
    """Return the index in a text file.

    Raises:
        ConfigError: it cannot be read, or a line is not of that form; says which.
    """
    classes: dict[str, int] = {}
    groups: dict[str, str] = {}
    for number, cells in _lines(path):
        if len(cells) not in (2, 3) or not cells[1].isascii() or not cells[1].isdigit():
            message = f"the index {str(path)!r}: line {number} is {' '.join(cells)[:80]!r}: {FORM}"
            raise ConfigError(message)
        name = cells[0]
        if Path(name).is_absolute() or ".." in Path(name).parts:
            message = f"the index {str(path)!r}: line {number}: the file name {name!r} leads out of the image folder: correct it"
            raise ConfigError(message)
        if name in classes:
            message = f"the index {str(path)!r}: line {number} names {name!r} a second time: leave one of the lines"
            raise ConfigError(message)
        classes[name] = int(cells[1])
        if len(cells) == 3 and cells[2]:
            groups[name] = cells[2]
    return ClassIndex(classes, groups)


def _lines(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number and the cells of every line that is not empty, without a heading."""
    separator = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    lines = text_lines(path)
    rows: Iterator[list[str]] = csv.reader(lines, delimiter=separator) if separator else (_split(line) for line in lines)
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        is_heading = number == 1 and separator is not None and len(cells) > 1 and not cells[1].isdigit()
        if any(cells) and not is_heading:
            yield number, cells


def _split(line: str) -> list[str]:
    """Return file and class: the class is the last word, and a file name may hold spaces."""
    return line.rsplit(None, 1) if line.strip() else []


def text_lines(path: Path) -> list[str]:
    """Return the lines of a text file.

    Raises:
        ConfigError: it cannot be read, or is no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        message = f"cannot read the annotations {str(path)!r}: {error.strerror}"
        raise ConfigError(message) from error
    except UnicodeDecodeError as error:
        message = f"the annotations {str(path)!r} are no UTF-8 text ({error.reason} at byte {error.start}): write them as UTF-8"
        raise ConfigError(message) from error
