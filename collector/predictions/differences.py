"""The differences between the kept predictions of two runs on the same photographs: object by object, by size and label, by photograph."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.contract.kept_predictions import SHOWN_SCORE, KeptObject, KeptPhotograph, KeptPredictions
from edgemeter.collector.predictions.matching import FALSE, MatchedObjects, match_all, overlaps, photographs_of

Kind = Literal["both", "moved", "other-class", "missed", "gained", "neither", "false-both", "false", "false-gone"]
Side = Literal["truth", "reference", "device"]
SIDES: tuple[Side, ...] = get_args(Side)
# In the order in which they are listed.
KINDS: Mapping[Kind, str] = {
    "both": "both are right",
    "moved": "both are right, but their boxes overlap by less than 0.9",
    "other-class": "the reference is right, the device gives another class",
    "missed": "the reference is right, the device finds nothing",
    "gained": "the device is right, the reference is not",
    "neither": "neither is right",
    "false-both": "both find something that is not there",
    "false": "the device alone finds something that is not there",
    "false-gone": "the reference alone finds something that is not there",
}
WORSE: frozenset[Kind] = frozenset({"other-class", "missed", "false"})
SAME: frozenset[Kind] = frozenset({"both", "neither", "false-both"})
MOVED_IOU = 0.9
SIZES = ("small", "medium", "large")
# COCO's limits of areas in square pixels; here of the boxes.
_SMALL, _MEDIUM = 32**2, 96**2


@dataclass(frozen=True, slots=True)
class ObjectMark:
    """An object as one side has it: the kind of difference it is part of, its label, score (None of truth), and box (None of an answer).

    `thing` counts from 0 in its photograph; the marks of one object on several sides share it.
    """

    thing: int
    side: Side
    kind: Kind
    label: str
    score: float | None
    box: tuple[float, float, float, float] | None


@dataclass(frozen=True, slots=True)
class PhotographDifferences:
    """A photograph, width and height in px, with all marks: `worse` objects in which the device is worse, `differing` ones that differ."""

    name: str
    width: int | None
    height: int | None
    worse: int
    differing: int
    marks: tuple[ObjectMark, ...]


@dataclass(frozen=True, slots=True)
class PredictionDifferences:
    """All differences: counts by kind, and by label, group and size (of the annotated box, else of the found one) and kind.

    Photographs are in order, the worst first; `lowered` are the missed objects that the device finds with a score below the threshold.
    """

    score: float
    photographs: tuple[PhotographDifferences, ...]
    counts: dict[Kind, int]
    by_size: dict[str, dict[Kind, int]]
    by_label: dict[str, dict[Kind, int]]
    by_group: dict[str, dict[Kind, int]]
    lowered: int
    note: str | None

    def worst(self, limit: int) -> tuple[PhotographDifferences, ...]:
        """Return at most so many of the photographs that differ, the worst first."""
        return tuple(photograph for photograph in self.photographs[:limit] if photograph.differing)


@dataclass(frozen=True, slots=True)
class _Compared:
    """An object on all sides that have it; `lowered` is whether the device has it with too low a score."""

    kind: Kind
    marks: Mapping[Side, KeptObject]
    lowered: bool = False

    @property
    def thing(self) -> KeptObject:
        """The annotated object, else the found one."""
        return self.marks.get("truth") or next(iter(self.marks.values()))


def differences(reference: KeptPredictions, device: KeptPredictions, score: float = SHOWN_SCORE) -> PredictionDifferences:
    """Return where the device's predictions differ from the reference's, of objects with at least this score on either side.

    Raises:
        ConfigError: they are not of the same photographs, annotations and labels; the message says how they differ.
    """
    is_of_boxes = not reference.answers
    score = max(score, reference.least_score, device.least_score) if is_of_boxes else 0.0
    total: Counter[Kind] = Counter()
    by_size, by_label, by_group = (defaultdict[str, Counter[Kind]](Counter) for _ in range(3))
    photographs, lowered = [], 0
    pairs, note = _pairs(reference, device)
    for photo, of_device in pairs:
        compared = list(_compared(photo, of_device, score))
        for entry in compared:
            lowered += entry.lowered
            total[entry.kind] += 1
            by_label[reference.labels[entry.thing.label]][entry.kind] += 1
            group = entry.thing.group or photo.group
            if group is not None:
                by_group[group][entry.kind] += 1
            if is_of_boxes:
                by_size[size_of(entry.thing)][entry.kind] += 1
        photographs.append(_marked(photo, compared, reference.labels, is_of_boxes=is_of_boxes))
    photographs.sort(key=lambda photograph: (-photograph.worse, -photograph.differing, photograph.name))
    return PredictionDifferences(
        score=score,
        photographs=tuple(photographs),
        counts=_in_order(total),
        by_size={size: _in_order(by_size[size]) for size in SIZES if size in by_size},
        by_label={label: _in_order(by_label[label]) for label in reference.labels if label in by_label},
        by_group={group: _in_order(by_group[group]) for group in sorted(by_group)},
        lowered=lowered,
        note=note,
    )


def _marked(photo: KeptPhotograph, compared: Sequence[_Compared], labels: Sequence[str], *, is_of_boxes: bool) -> PhotographDifferences:
    marks = tuple(
        ObjectMark(
            number, side, entry.kind, labels[mark.label], mark.score, (mark.x, mark.y, mark.width, mark.height) if is_of_boxes else None
        )
        for number, entry in enumerate(compared)
        for side, mark in entry.marks.items()
    )
    worse, differing = sum(entry.kind in WORSE for entry in compared), sum(entry.kind not in SAME for entry in compared)
    width, height = (photo.width, photo.height) if is_of_boxes else (None, None)
    return PhotographDifferences(photo.name, width, height, worse, differing, marks)


def size_of(thing: KeptObject) -> str:
    """Return COCO's size of an object, by the area of its box."""
    area = thing.width * thing.height
    return SIZES[0] if area < _SMALL else SIZES[1] if area < _MEDIUM else SIZES[2]


def _in_order(counts: Mapping[Kind, int]) -> dict[Kind, int]:
    return {kind: counts[kind] for kind in KINDS if kind in counts}


def _pairs(reference: KeptPredictions, device: KeptPredictions) -> tuple[list[tuple[KeptPhotograph, KeptPhotograph]], str | None]:
    """Return the photographs that both keep, by name, and a remark where one keeps fewer of them (to fit into its record)."""
    if bool(reference.answers) != bool(device.answers):
        raise ConfigError("one of the runs is of a detector, the other of a classifier: compare two of one task")
    labels, device_labels = reference.labels, device.labels
    if labels != device_labels:
        pairs = (f"number {index} is {a!r} and {b!r}" for index, (a, b) in enumerate(zip(labels, device_labels, strict=False)) if a != b)
        how = next(pairs, f"{len(labels)} and {len(device_labels)}")
        raise ConfigError(f"the runs have different labels, {how}: compare runs on the same annotations")
    # The order of annotations is no difference.
    photos, device_photos = (
        {photo.name: msgspec.structs.replace(photo, truth=tuple(sorted(photo.truth, key=repr))) for photo in photographs_of(predictions)}
        for predictions in (reference, device)
    )
    common = sorted(photos.keys() & device_photos.keys())
    if len(common) < min(len(photos), len(device_photos)):
        only = "; ".join(
            f"{count(len(alone), 'photograph')} of the {side} only, such as {min(alone)!r}"
            for side, alone in (("reference", photos.keys() - common), ("device", device_photos.keys() - common))
        )
        raise ConfigError(f"the runs are of different photographs: {only}: compare runs on the same data")
    for name in common:
        if msgspec.structs.replace(photos[name], found=()) != msgspec.structs.replace(device_photos[name], found=()):
            raise ConfigError(f"the annotations of {name!r} differ between the runs: compare runs on the same annotations")
    most_items = max(len(photos), len(device_photos))
    note = None if len(common) == most_items else f"of {most_items:,} photographs, the {len(common):,} that both runs keep"
    return [(photos[name], device_photos[name]) for name in common], note


def _compared(a: KeptPhotograph, b: KeptPhotograph, score: float) -> Iterator[_Compared]:
    """Yield every annotated object, then what is found where nothing is."""
    of_a, of_b, at_any_score = match_all(a, score), match_all(b, score), match_all(b, 0.0)
    for index, truth in enumerate(a.truth):
        if truth.ignored:
            continue
        by_side = {"truth": truth, "reference": _match(a, of_a, index), "device": _match(b, of_b, index)}
        kind = _kind(truth, by_side["reference"], by_side["device"])
        low = _match(b, at_any_score, index) if kind == "missed" else None
        marks = {side: thing for side in SIDES if (thing := by_side[side]) is not None}
        yield _Compared(kind, marks, low is not None and low.label == truth.label)
    yield from _compared_false(_false(a, of_a), _false(b, of_b))


def _match(photo: KeptPhotograph, matched: MatchedObjects, index: int) -> KeptObject | None:
    match = matched.found_of[index]
    return None if match is None else photo.found[match]


def _kind(truth: KeptObject, of_reference: KeptObject | None, of_device: KeptObject | None) -> Kind:
    is_right, is_theirs_right = (thing is not None and thing.label == truth.label for thing in (of_reference, of_device))
    if of_reference is not None and of_device is not None and is_right and is_theirs_right:
        return "both" if overlaps([of_reference], [of_device])[0, 0] >= MOVED_IOU else "moved"
    if is_right:
        return "missed" if of_device is None else "other-class"
    return "gained" if is_theirs_right else "neither"


def _false(photo: KeptPhotograph, matched: MatchedObjects) -> tuple[KeptObject, ...]:
    return tuple(thing for thing, match in zip(photo.found, matched.truth_of, strict=False) if match == FALSE)


def _compared_false(of_reference: tuple[KeptObject, ...], of_device: tuple[KeptObject, ...]) -> Iterator[_Compared]:
    """Yield what both find falsely in one place, by the label, then what one of them does."""
    shared = match_all(KeptPhotograph(name="", width=0, height=0, truth=of_reference, found=of_device), 0.0)
    for thing, match in zip(of_reference, shared.found_of, strict=True):
        if match is not None and of_device[match].label == thing.label:
            yield _Compared("false-both", {"reference": thing, "device": of_device[match]})
        else:
            yield _Compared("false-gone", {"reference": thing})
    for thing, match in zip(of_device, shared.truth_of, strict=True):
        if match == FALSE or of_reference[match].label != thing.label:
            yield _Compared("false", {"device": thing})
