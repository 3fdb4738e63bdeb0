"""The differences between the kept predictions of two runs on the same photographs: object by object, by size and label, by photograph."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.contract.kept_predictions import KeptAnswer, KeptObject, KeptPhotograph, KeptPredictions
from edgemeter.collector.predictions.matching import FALSE, MatchedObjects, match_all, overlaps
from edgemeter.collector.predictions.quality import SCORE

Kind = Literal["both", "moved", "other-class", "missed", "gained", "neither", "false-both", "false", "false-gone"]
Side = Literal["truth", "reference", "device"]
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
    counts: dict[str, int]
    by_size: dict[str, dict[str, int]]
    by_label: dict[str, dict[str, int]]
    by_group: dict[str, dict[str, int]]
    lowered: int
    note: str | None

    def worst(self, item_count: int) -> tuple[PhotographDifferences, ...]:
        """Return at most so many of the photographs that differ, the worst first."""
        return tuple(photograph for photograph in self.photographs[:item_count] if photograph.differing)


@dataclass(frozen=True, slots=True)
class _Compared:
    """An object, or an answer, on all sides that have it; `lowered` is whether the device has it with too low a score."""

    kind: Kind
    marks: Mapping[Side, KeptObject]
    lowered: bool = False

    @property
    def thing(self) -> KeptObject:
        """The annotated object, else the found one."""
        return self.marks.get("truth") or next(iter(self.marks.values()))


def differences(reference: KeptPredictions, device: KeptPredictions, score: float = SCORE) -> PredictionDifferences:
    """Return where the device's predictions differ from the reference's, of objects with at least this score on either side.

    Raises:
        ConfigError: they are not of the same photographs, annotations and labels; the message says how they differ.
    """
    reference, device = _with_sorted_truth(reference), _with_sorted_truth(device)
    names, note = _common_names(reference, device)
    score = max(score, reference.least_score, device.least_score)
    total: Counter[str] = Counter()
    by_size, by_label, by_group = (defaultdict[str, Counter[str]](Counter) for _ in range(3))
    photographs, lowered = [], 0
    for item, compared in _by_item(reference, device, names, score):
        for entry in compared:
            lowered += entry.lowered
            total[entry.kind] += 1
            by_label[reference.labels[entry.thing.label]][entry.kind] += 1
            group = entry.thing.group or item.group
            if group is not None:
                by_group[group][entry.kind] += 1
            if isinstance(item, KeptPhotograph):
                by_size[size_of(entry.thing)][entry.kind] += 1
        photographs.append(_of_item(item, compared, reference.labels))
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


def _with_sorted_truth(predictions: KeptPredictions) -> KeptPredictions:
    """Return them with the annotations of each photograph in one order: another is no difference."""
    photographs = tuple(msgspec.structs.replace(photo, truth=tuple(sorted(photo.truth, key=repr))) for photo in predictions.photographs)
    return msgspec.structs.replace(predictions, photographs=photographs)


def _of_item(item: KeptPhotograph | KeptAnswer, compared: Sequence[_Compared], labels: Sequence[str]) -> PhotographDifferences:
    width, height = (item.width, item.height) if isinstance(item, KeptPhotograph) else (None, None)
    marks = tuple(
        ObjectMark(
            number, side, entry.kind, labels[mark.label], mark.score, None if width is None else (mark.x, mark.y, mark.width, mark.height)
        )
        for number, entry in enumerate(compared)
        for side, mark in entry.marks.items()
    )
    worse, differing = sum(entry.kind in WORSE for entry in compared), sum(entry.kind not in SAME for entry in compared)
    return PhotographDifferences(item.name, width, height, worse, differing, marks)


def size_of(thing: KeptObject) -> str:
    """Return COCO's size of an object, by the area of its box."""
    area = thing.width * thing.height
    return SIZES[0] if area < _SMALL else SIZES[1] if area < _MEDIUM else SIZES[2]


def _in_order(counts: Mapping[str, int]) -> dict[str, int]:
    return {kind: counts[kind] for kind in KINDS if kind in counts}


def _common_names(reference: KeptPredictions, device: KeptPredictions) -> tuple[list[str], str | None]:
    """Return the names of the items that both kept, and a remark where one kept fewer of them (to fit into its record)."""
    if bool(reference.answers) != bool(device.answers):
        raise ConfigError("one of the runs is of a detector, the other of a classifier: compare two of one task")
    labels, device_labels = reference.labels, device.labels
    if labels != device_labels:
        pairs = (f"number {index} is {a!r} and {b!r}" for index, (a, b) in enumerate(zip(labels, device_labels, strict=False)) if a != b)
        how = next(pairs, f"{len(labels)} and {len(device_labels)}")
        raise ConfigError(f"the runs have different labels, {how}: compare runs on the same annotations")
    names, device_names = _names(reference), _names(device)
    common = names.keys() & device_names.keys()
    if len(common) < min(len(names), len(device_names)):
        only = "; ".join(
            f"{count(len(alone), 'photograph')} of the {side} only, such as {min(alone)!r}"
            for side, alone in (("reference", names.keys() - common), ("device", device_names.keys() - common))
        )
        raise ConfigError(f"the runs are of different photographs: {only}: compare runs on the same data")
    for name in sorted(common):
        if names[name] != device_names[name]:
            raise ConfigError(f"the annotations of {name!r} differ between the runs: compare runs on the same annotations")
    item_count = max(len(names), len(device_names))
    return sorted(common), None if len(common) == item_count else f"of {item_count:,} photographs, the {len(common):,} that both runs keep"


def _names(predictions: KeptPredictions) -> dict[str, object]:
    of_answers = {answer.name: answer.truth for answer in predictions.answers}
    return of_answers | {photo.name: (photo.width, photo.height, photo.truth) for photo in predictions.photographs}


def _by_item(
    reference: KeptPredictions, device: KeptPredictions, names: Sequence[str], score: float
) -> Iterator[tuple[KeptPhotograph | KeptAnswer, list[_Compared]]]:
    answers, other_answers = ({answer.name: answer for answer in predictions.answers} for predictions in (reference, device))
    photos, other_photos = ({photo.name: photo for photo in predictions.photographs} for predictions in (reference, device))
    for name in names:
        if name in answers:
            yield answers[name], [_compared_answers(answers[name], other_answers[name])]
        else:
            yield photos[name], list(_compared(photos[name], other_photos[name], score))


def _compared_answers(a: KeptAnswer, b: KeptAnswer) -> _Compared:
    is_right = tuple(bool(answer.best) and answer.best[0][0] == a.truth for answer in (a, b))
    kinds: Mapping[tuple[bool, ...], Kind] = {(True, True): "both", (True, False): "other-class", (False, True): "gained"}
    sides: dict[Side, tuple[int, float | None]] = {"truth": (a.truth, None)}
    if a.best:
        sides["reference"] = a.best[0]
    if b.best:
        sides["device"] = b.best[0]
    marks: dict[Side, KeptObject] = {side: KeptObject(label, 0, 0, 0, 0, score) for side, (label, score) in sides.items()}
    return _Compared(kinds.get(is_right, "neither"), marks)


def _compared(a: KeptPhotograph, b: KeptPhotograph, score: float) -> Iterator[_Compared]:
    """Yield every annotated object, then what is found where nothing is."""
    of_a, of_b = match_all(a, score), match_all(b, score)
    at_any_score = match_all(b, 0.0)
    for index, truth in enumerate(a.truth):
        if truth.ignored:
            continue
        of_reference, of_device = (_match(photo, matched, index) for photo, matched in ((a, of_a), (b, of_b)))
        kind = _kind(truth, of_reference, of_device)
        sides: dict[Side, KeptObject | None] = {"truth": truth, "reference": of_reference, "device": of_device}
        low = _match(b, at_any_score, index) if kind == "missed" else None
        is_lowered = low is not None and low.label == truth.label
        yield _Compared(kind, {side: thing for side, thing in sides.items() if thing is not None}, is_lowered)
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
