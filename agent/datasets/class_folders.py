"""ImageNet-style folders: one folder per class, the photographs of the class in it.

Which class a folder is: its name, where all names are numbers; else its place in a list of classes (a text file, one class a line, its
first word or the whole line the folder's name, as in `synset_words.txt`); else its place among the folders, sorted, and then the model must
know the names or have exactly that many classes: sixty of the thousand synsets would silently be the classes 0 to 59.
"""

from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.datasets.class_index import ClassIndex, text_lines
from edgemeter.agent.errors import ConfigError


def find(images: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the folders below `images` that hold photographs, sorted by name; hidden ones do not count."""
    try:
        folders = sorted(path for path in images.iterdir() if path.is_dir() and not path.name.startswith("."))
        return [folder for folder in folders if _photographs(folder, suffixes)]
    except OSError:
        return []


def read(images: Path, suffixes: Sequence[str], listed: Path | None = None) -> ClassIndex:
    """Return the class of every photograph in the class folders; `listed` is the list of classes, where there is one.

    Raises:
        ConfigError: a folder is not in the list, or the list cannot be read.
    """
    folders = find(images, suffixes)
    names = [folder.name for folder in folders]
    places = _in_list(listed, names) if listed else _of_names(names)
    classes = {f"{folder.name}/{photo}": places[folder.name] for folder in folders for photo in _photographs(folder, suffixes)}
    is_sure = listed is not None or all(name.isdigit() for name in names)
    return ClassIndex(classes, names=None if is_sure else tuple(names))


def _photographs(folder: Path, suffixes: Sequence[str]) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix.lower() in suffixes and path.is_file())


def _of_names(names: Sequence[str]) -> dict[str, int]:
    if all(name.isascii() and name.isdigit() for name in names):
        return {name: int(name) for name in names}
    return {name: place for place, name in enumerate(names)}


def _in_list(listed: Path, names: Sequence[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, line in enumerate(line.strip() for line in text_lines(listed) if line.strip()):
        for said in (line, line.split(None, 1)[0].rstrip(",")):
            places.setdefault(said, place)
    absent = [name for name in names if name not in places]
    if absent:
        message = (
            f"the list of classes {str(listed)!r} does not name {len(absent)} of the {len(names)} class folders, first {absent[0]!r}: "
            "give one class a line, its first word the folder's name"
        )
        raise ConfigError(message)
    return places
