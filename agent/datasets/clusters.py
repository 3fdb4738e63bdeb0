"""Clusters: items that belong together, such as frames of a video, recordings of a speaker or questions about a document.

What is hard for one of them is hard for the others, so they tell less than as many independent ones, and bounds take them as wholes.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from edgemeter.agent.base.errors import ConfigError

# What annotations state of items: by field, then by the item's name.
Fields = Mapping[str, Mapping[str, str]]
# Fields that name a cluster, the widest first: a clip is part of a video.
NAMING_FIELDS = (
    "video_id", "video", "sequence_id", "sequence", "clip_id", "clip", "speaker_id", "speaker", "client_id", "patient_id", "patient",
    "document_id", "document", "title",
)  # fmt: skip
# What COCO states of every image, which makes none belong to another.
ATTRIBUTES = frozenset({"license", "coco_url", "flickr_url", "date_captured"})
NONE, FOLDER, PREFIX = "none", "folder", "prefix:"


@dataclass(frozen=True, slots=True)
class Clusters:
    """The cluster of each item by its name; `by` is the field of the annotations, or the rule, that names it."""

    by: str
    names: Mapping[str, str]


def clusters_of(items: Sequence[str], fields: Fields, by: str | None = None) -> Clusters | None:
    """Return the clusters of these items (by name); None where nothing names any.

    `by` is a field of the annotations, `folder` (that of the item's file), `prefix:SEPARATOR` (the file's name up to the first one),
    `prefix:SEPARATOR:N` (up to the Nth), or `none`; without it the first of `NAMING_FIELDS` that the annotations have.

    Raises:
        ConfigError: the annotations have no such field, or the rule names no cluster.
    """
    if by == NONE:
        return None
    if by is None:
        plain = {name.lower(): name for name in fields}
        by = next((plain[name] for name in NAMING_FIELDS if name in plain), None)
        return None if by is None else _of_field(items, fields, by)
    if by == FOLDER:
        return Clusters(by, {name: str(PurePosixPath(name).parent) for name in items})
    if by.startswith(PREFIX):
        return _of_prefix(items, by)
    if by not in fields:
        raise ConfigError(f"cluster_by: the annotations have no field {by!r}: give {_choices(items, fields)}")
    return _of_field(items, fields, by)


def _choices(items: Sequence[str], fields: Fields) -> str:
    """Return what names clusters of several of these items, in words."""
    able = []
    for by in (*sorted(fields.keys() - ATTRIBUTES), FOLDER, f"{PREFIX}_"):
        with suppress(ConfigError):
            clusters = clusters_of(items, fields, by)
            if clusters is not None and 1 < len(set(clusters.names.values())) < len(clusters.names):
                able.append(by)
    return f"{', '.join(able)} or none" if able else "prefix:SEPARATOR if the names of files tell, or none: nothing else does here"


def _of_field(items: Sequence[str], fields: Fields, by: str) -> Clusters | None:
    names = {name: fields[by][name] for name in items if name in fields[by]}
    return Clusters(by, names) if names else None


def _of_prefix(items: Sequence[str], by: str) -> Clusters:
    separator, _, count = by.removeprefix(PREFIX).partition(":")
    if not separator or (count and not (count.isdecimal() and int(count) > 0)):
        raise ConfigError(f"cluster_by {by!r} names no separator: write prefix:_ or, up to the second one, prefix:_:2")
    stems = {name: PurePosixPath(name).stem.split(separator) for name in items}
    first = int(count or 1)
    if absent := [name for name, words in stems.items() if len(words) <= first]:
        raise ConfigError(f"cluster_by {by!r}: {absent[0]!r} has fewer than {first} {separator!r} in its name: choose another rule")
    return Clusters(by, {name: separator.join(words[:first]) for name, words in stems.items()})
