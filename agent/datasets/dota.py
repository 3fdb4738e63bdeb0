"""DOTA's labels of oriented boxes: for every photograph a text file of its name, a line per object: `x1 y1 ... x4 y4 class difficult`.

Corners are in pixels, in order around the object; `difficult` (0 or 1; 0 if it is left out) is not counted. Lines of a heading
(`imagesource:...`, `gsd:...`) are passed over.
Source: DOTA_devkit `readme.md`, section "Annotation format".
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets import GroundTruth, Targets, required
from edgemeter.agent.datasets.class_lists import text_lines
from edgemeter.agent.datasets.items import files_in, is_number, list_photographs, photographs_in

_FORM = "each line is `x1 y1 x2 y2 x3 y3 x4 y4 class difficult`, in pixels, difficult 0 or 1"
_HEADINGS = ("imagesource:", "gsd:", "acquisition")


@dataclass(frozen=True, slots=True)
class OrientedObject:
    """One object: its four corners (x, y in pixels of the photograph), the name of its class, whether it is difficult."""

    corners: tuple[tuple[float, float], ...]
    name: str
    is_difficult: bool


class Dota:
    """DOTA's labels of oriented boxes: the folder of the text files."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether the annotations are a folder in which the first label of a photograph has four corners and a name."""
        if annotations is None or not annotations.is_dir() or not folder.is_dir():
            return False
        with suppress(ConfigError):
            for name in _names(folder):
                path = _labels_of(annotations, name)
                words = next((words for _, words in _lines(path)), None) if path else None
                if words is not None:
                    return len(words) >= 9 and not is_number(words[8])
        return False

    def read(self, folder: Path, annotations: Path | None) -> GroundTruth:
        """Return the objects of all photographs in the folder, none of one without a file.

        Raises:
            ConfigError: a line is not of that form; the message names it.
        """
        labels, objects = required(annotations), {}
        for name in _names(folder) or list_photographs(folder):
            path = _labels_of(labels, name)
            objects[name] = tuple(_object(path, number, words) for number, words in _lines(path)) if path else ()
        return GroundTruth(Targets(objects), msgspec.json.encode(objects, order="sorted"), named_by="folder")


def _names(folder: Path) -> list[str]:
    """Return the names of the photographs; of labels whose photographs are not there those of their files, without the ending."""
    return photographs_in(folder) or [name.removesuffix(".txt") for name in files_in(folder, (".txt",))]


def _labels_of(labels: Path, name: str) -> Path | None:
    return next((path for path in (labels / f"{stem}.txt" for stem in (name, Path(name).stem)) if path.is_file()), None)


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    lines = [(number, line) for number, line in enumerate(text_lines(path), 1) if line.strip()]
    return [(number, line.split()) for number, line in lines if not line.lower().startswith(_HEADINGS)]


def _object(path: Path, number: int, words: list[str]) -> OrientedObject:
    if len(words) not in (9, 10) or not all(map(is_number, words[:8])) or words[9:] not in ([], ["0"], ["1"]):
        raise ConfigError(f"the labels {str(path)!r}: line {number} is {' '.join(words)[:80]!r}: {_FORM}")
    values = [float(word) for word in words[:8]]
    return OrientedObject(tuple(zip(values[::2], values[1::2], strict=True)), words[8], words[9:] == ["1"])
