"""Photographs as other tools name them: file names written on other systems, and image ids as text, file names or numbers in them.

A name is matched where exactly one photograph can be meant, with a note that says how and how many.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Annotated
from unicodedata import normalize
from urllib.parse import unquote

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import whole_number
from edgemeter.agent.datasets.items import photographs_in

# Ids travel to the metric in a column of float64, which is exact up to here.
LARGEST_ID = 2**53
Id = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)]
ImageKey = int | str
# No tool writes a field of this name.
TEXT_ID = "id as text"
# Label Studio puts eight random digits before the name of a file.
_LABEL_STUDIO = re.compile(r"[0-9a-f]{8}-(?=.)")
# How image ids are compared, in this order. Ultralytics writes the stem of a file, as a number where it is one, and `file_name` beside it.
_READINGS = ("file_name", "ids", "ids as text", "file names", "base names", "stems of file names", "ids as numbers", "stems as numbers")


class AnnotatedImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One photograph as COCO names it; `width` and `height` in pixels, where given; `text_id` is its id in the file where that is text."""

    id: Id
    file_name: Annotated[str, msgspec.Meta(min_length=1)]
    width: int | None = None
    height: int | None = None
    text_id: str | None = msgspec.field(default=None, name=TEXT_ID)

    @property
    def written_id(self) -> ImageKey:
        """Return the id as it is in the file."""
        return self.id if self.text_id is None else self.text_id


def match_files(folder: Path, named: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the name in the folder of each file that is there, and a note on those that are named otherwise.

    Raises:
        ConfigError: a name may be that of several photographs, or several names are that of one.
    """
    present = set(photographs_in(folder))
    similar = defaultdict(list)
    for name in present:
        similar[_plain_name(name)].append(name)
    names: dict[str, str] = {}
    for name in named:
        candidates = [name] if name in present else _below(folder, name) or similar.get(_plain_name(name), [])
        if len(candidates) > 1:
            both = " or ".join(map(repr, sorted(candidates)[:2]))
            raise ConfigError(f"the file name {name!r} of the annotations may be {both}: write the one that it is")
        names.update((name, candidate) for candidate in candidates)
    if repeated := [name for name, count in Counter(names.values()).items() if count > 1]:
        both = " and ".join(repr(name) for name in names if names[name] == repeated[0])
        raise ConfigError(f"the file names {both} of the annotations are all that of {repeated[0]!r}: correct them")
    matched = [name for name in names if PurePosixPath(name) != PurePosixPath(names[name])]
    note = f"{len(matched)} of {len(named)} file names of the annotations are matched by base name (first {{!r}} with {{!r}})"
    return names, tuple(note.format(name, names[name]) for name in matched[:1])


def _below(folder: Path, name: str) -> list[str]:
    """Return the file below the folder that a name is; of a path of another machine or system the longest end that is a file there."""
    for path in (PurePosixPath(name), _path_of(name)):
        parts = [part for part in path.parts if part != "/"]
        # Nothing leads out of the folder.
        begin = len(parts) - parts[::-1].index("..") if ".." in parts else 0
        ends = ("/".join(parts[start:]) for start in range(begin, len(parts)))
        if end := next((end for end in ends if (folder / end).is_file()), None):
            return [end]
    return []


def _plain_name(name: str) -> str:
    """Return the base name without what systems and labelling tools change: escapes, composed letters and prefixes."""
    return _LABEL_STUDIO.sub("", normalize("NFC", _path_of(name).name), count=1)


def _path_of(name: str) -> PurePosixPath:
    """Return a path or address of any system; Label Studio has local files behind `?d=`."""
    return PurePosixPath(unquote(name).replace("?d=", "/").replace("\\", "/"))


def match_image_ids(
    values: Iterable[ImageKey], images: Sequence[AnnotatedImage], noun: str, files: Mapping[ImageKey, str | None] = MappingProxyType({})
) -> tuple[dict[ImageKey, int], tuple[str, ...]]:
    """Return the image of each id in a file (`noun`, for messages), by the first reading that fits all of them, and a note on it.

    `files` are the names of files that are written beside the ids.

    Raises:
        ConfigError: no reading fits all, or several that differ.
    """
    distinct = list(dict.fromkeys(values))
    keys, forms = [*map(_keys_of, images)], [_forms_of(value, files.get(value)) for value in distinct]
    readings: dict[str, dict[ImageKey, int]] = {}
    for number, reading in enumerate(_READINGS):
        times = Counter(key[number] for key in keys)
        # Ids that are listed twice are an error of the annotations, and not of who refers to them.
        ids = {key[number]: image.id for key, image in zip(keys, images, strict=True) if reading == "ids" or times[key[number]] == 1}
        matched = {value: ids[form[number]] for value, form in zip(distinct, forms, strict=True) if form[number] in ids}
        is_one_to_one = len(set(matched.values())) == len(set(map(str, matched)))
        readings[reading] = matched if is_one_to_one else {}
    fitting = [reading for reading, matched in readings.items() if len(matched) == len(distinct)]
    if not fitting:
        best = max(readings.values(), key=len)
        absent = [value for value in distinct if value not in best]
        like = f" (like {images[0].written_id!r}, file {images[0].file_name!r})" if images else ""
        raise ConfigError(
            f"{len(absent)} of {len(distinct)} image ids in {noun} are of no image of the annotations{like}, first {absent[0]!r}: tried as "
            f"{', '.join(_READINGS)}; correct them"
        )
    reading, matched = fitting[0], readings[fitting[0]]
    other = next((name for name in fitting if readings[name] != matched), None)
    if reading == "file_name" or other is None:
        note = f"the image ids in {noun} are matched by {reading} (all {len(distinct)})"
        return matched, () if matched == readings["ids"] else (note,)
    if reading == "ids":
        return matched, (f"the image ids in {noun} are taken as they are; as {other} they would be those of other images",)
    raise ConfigError(
        f"the image ids in {noun} may be {reading} or {other}, which are those of other images: write those of the annotations"
    )


def _keys_of(image: AnnotatedImage) -> tuple[ImageKey | None, ...]:
    """Return what an image is called in each of the readings, None where it has no such name."""
    path, text = _path_of(image.file_name), str(image.written_id)
    return path.name, image.written_id, text, image.file_name, path.name, path.stem, whole_number(text), whole_number(path.stem)


def _forms_of(value: ImageKey, file: str | None) -> tuple[ImageKey, ...]:
    """Return what an id is in each of the readings, empty where it has no such form."""
    text = str(value)
    as_number = "" if (number := whole_number(text)) is None else number
    return _path_of(file or "").name, value, text, text, _path_of(text).name, unquote(text), as_number, as_number
