"""Matches other tools' names of photographs.

They are file names of other systems, and image ids that are text, file names or numbers in them.

A name is matched if it can mean exactly one photograph, with a note that says how and how many.
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

# The metric gets ids as float64, which is exact up to here.
LARGEST_ID = 2**53
Id = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)]
ImageKey = int | str
# No tool writes a field of this name.
TEXT_ID = "id as text"
# Label Studio puts eight random digits before file names.
_LABEL_STUDIO = re.compile(r"[0-9a-f]{8}-(?=.)")
# The ways to compare image ids, in this order. Ultralytics writes a file's stem, as a number if it
# is one, and `file_name` beside it.
_READINGS = (
    "file_name",
    "ids",
    "ids as text",
    "file names",
    "base names",
    "stems of file names",
    "ids as numbers",
    "stems as numbers",
)


class AnnotatedImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """COCO's entry of a photograph.

    `width` and `height` are in pixels, if given; `text_id` is the id in the file if that is text.
    """

    id: Id
    file_name: Annotated[str, msgspec.Meta(min_length=1)]
    width: int | None = None
    height: int | None = None
    text_id: str | None = msgspec.field(default=None, name=TEXT_ID)

    @property
    def written_id(self) -> ImageKey:
        """The id in the file."""
        return self.id if self.text_id is None else self.text_id


def match_files(folder: Path, named: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the name in the folder of each file that exists.

    A note on files matched by base name comes with them.

    Raises:
        ConfigError: a name may mean several photographs, or several names mean the same one.
    """
    present = set(photographs_in(folder))
    similar = defaultdict(list)
    for name in present:
        similar[_plain_name(name)].append(name)
    names: dict[str, str] = {}
    for name in named:
        candidates = (
            [name]
            if name in present
            else _below(folder, name) or similar.get(_plain_name(name), [])
        )
        if len(candidates) > 1:
            both = " or ".join(map(repr, sorted(candidates)[:2]))
            raise ConfigError(
                f"the file name {name!r} in the annotations may mean {both}: write the right one"
            )
        names.update((name, candidate) for candidate in candidates)
    if repeated := [name for name, count in Counter(names.values()).items() if count > 1]:
        both = " and ".join(repr(name) for name in names if names[name] == repeated[0])
        raise ConfigError(
            f"the file names {both} in the annotations all mean {repeated[0]!r}: correct them"
        )
    matched = [name for name in names if PurePosixPath(name) != PurePosixPath(names[name])]
    note = (
        f"{len(matched)} of {len(named)} file names of the annotations are matched by base name "
        f"(first {{!r}} with {{!r}})"
    )
    return names, tuple(note.format(name, names[name]) for name in matched[:1])


def _below(folder: Path, name: str) -> list[str]:
    """Return the file of that name in the folder.

    A path of another machine or system is matched by its longest end that is a file there.
    """
    for path in (PurePosixPath(name), _path_of(name)):
        parts = [part for part in path.parts if part != "/"]
        # Nothing leads out of the folder.
        begin = len(parts) - parts[::-1].index("..") if ".." in parts else 0
        ends = ("/".join(parts[start:]) for start in range(begin, len(parts)))
        if end := next((end for end in ends if (folder / end).is_file()), None):
            return [end]
    return []


def _plain_name(name: str) -> str:
    """Return the base name without the changes of systems and labelling tools.

    These are escapes, composed letters and prefixes.
    """
    return _LABEL_STUDIO.sub("", normalize("NFC", _path_of(name).name), count=1)


def _path_of(name: str) -> PurePosixPath:
    """Return a path or address of any system; Label Studio has local files behind `?d=`."""
    return PurePosixPath(unquote(name).replace("?d=", "/").replace("\\", "/"))


def match_image_ids(
    values: Iterable[ImageKey],
    images: Sequence[AnnotatedImage],
    noun: str,
    files: Mapping[ImageKey, str | None] = MappingProxyType({}),
) -> tuple[dict[ImageKey, int], tuple[str, ...]]:
    """Return the image of each id in a file, and a note on the reading.

    It is the first reading that fits all ids. `noun` names the file in messages.

    `files` are the file names beside the ids. The id "7" may be an id, the stem of `7.jpg`, or of
    `007.jpg`.

    Raises:
        ConfigError: no reading fits all ids, or several fit and differ.
    """
    distinct = list(dict.fromkeys(values))
    keys, forms = (
        [*map(_keys_of, images)],
        [_forms_of(value, files.get(value)) for value in distinct],
    )
    readings: dict[str, dict[ImageKey, int]] = {}
    for number, reading in enumerate(_READINGS):
        times = Counter(key[number] for key in keys)
        # Ids listed twice are the annotations' error, reported elsewhere.
        ids = {
            key[number]: image.id
            for key, image in zip(keys, images, strict=True)
            if reading == "ids" or times[key[number]] == 1
        }
        matched = {
            value: ids[form[number]]
            for value, form in zip(distinct, forms, strict=True)
            if form[number] in ids
        }
        is_one_to_one = len(set(matched.values())) == len(set(map(str, matched)))
        readings[reading] = matched if is_one_to_one else {}
    fitting = [reading for reading, matched in readings.items() if len(matched) == len(distinct)]
    if not fitting:
        best = max(readings.values(), key=len)
        absent = [value for value in distinct if value not in best]
        like = f" (like {images[0].written_id!r}, file {images[0].file_name!r})" if images else ""
        raise ConfigError(
            f"{len(absent)} of {len(distinct)} image ids in {noun} belong to no image in the "
            f"annotations{like}, first {absent[0]!r}: "
            f"tried as {', '.join(_READINGS)}; correct them"
        )
    reading, matched = fitting[0], readings[fitting[0]]
    other = next((name for name in fitting if readings[name] != matched), None)
    if reading == "file_name" or other is None:
        note = f"the image ids in {noun} are matched by {reading} (all {len(distinct)})"
        return matched, () if matched == readings["ids"] else (note,)
    if reading == "ids":
        return matched, (
            f"the image ids in {noun} are taken as ids; as {other} they would mean other images",
        )
    raise ConfigError(
        f"the image ids in {noun} may be {reading} or {other}, which mean other images: write "
        "the ids of the annotations"
    )


def _keys_of(image: AnnotatedImage) -> tuple[ImageKey | None, ...]:
    """Return an image's key in each of the readings, None if it has none."""
    path, text = _path_of(image.file_name), str(image.written_id)
    return (
        path.name,
        image.written_id,
        text,
        image.file_name,
        path.name,
        path.stem,
        whole_number(text),
        whole_number(path.stem),
    )


def _forms_of(value: ImageKey, file: str | None) -> tuple[ImageKey, ...]:
    """Return an id's form in each of the readings, empty if it has none."""
    text = str(value)
    as_number = "" if (number := whole_number(text)) is None else number
    return (
        _path_of(file or "").name,
        value,
        text,
        text,
        _path_of(text).name,
        unquote(text),
        as_number,
        as_number,
    )
