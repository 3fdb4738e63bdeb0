"""Predictions kept with a run: what was found in each photograph beside what is there; enough to say why two accuracies differ."""

import base64
import zlib
from collections.abc import Collection
from typing import Annotated

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.types import Count, Ratio
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import PackedPredictions

# A collector takes a record of at most 1 MiB besides its samples; these are the predictions for about a thousand photographs of COCO.
LARGEST = 256 << 10
# Where they take more, the lowest scores are left out.
_LEAST_SCORES = (0.1, 0.2)
# What unpacks to more was not packed by us: JSON of boxes shrinks to a third or a quarter.
_LARGEST_UNPACKED_BYTES = 8 << 20
# Each is compared with each: more would take a reader's memory.
_MOST_OBJECTS = 4000
# What a user is shown of a detector where nothing else is asked for.
SHOWN_SCORE = 0.25
# Far above any photograph's side.
FARTHEST_PX = 1e6
_Pixels = Annotated[float, msgspec.Meta(ge=-FARTHEST_PX, le=FARTHEST_PX)]
_Side = Annotated[float, msgspec.Meta(ge=0, le=FARTHEST_PX)]


class KeptObject(msgspec.Struct, frozen=True, array_like=True):
    """An object in a photograph: annotated (without a score) or found.

    `label` is its index in `labels`; the box is in pixels of the upright photograph. An `ignored` annotation (a crowd) is not asked for,
    and what lies on it is not false. `group` is that of the annotation, where it has one.
    """

    label: Count
    x: _Pixels
    y: _Pixels
    width: _Side
    height: _Side
    score: Ratio | None = None
    ignored: bool = False
    group: str | None = None


class KeptPhotograph(msgspec.Struct, frozen=True, kw_only=True):
    """A photograph: its file name, size in pixels, annotated objects, and found ones, best score first."""

    name: str
    width: Count
    height: Count
    truth: tuple[KeptObject, ...] = ()
    found: tuple[KeptObject, ...] = ()
    group: str | None = None


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A classified item: its file name, its annotated label, and the best labels with their scores, best first."""

    name: str
    truth: Count
    best: tuple[tuple[Count, Ratio], ...]
    group: str | None = None


class KeptPredictions(msgspec.Struct, frozen=True, kw_only=True):
    """The kept predictions of a run: photographs of a detector, or answers of a classifier; objects below `least_score` are not kept."""

    labels: tuple[str, ...]
    least_score: Ratio
    photographs: tuple[KeptPhotograph, ...] = ()
    answers: tuple[KeptAnswer, ...] = ()


_decoder = msgspec.json.Decoder(KeptPredictions)


def pack(predictions: KeptPredictions) -> str:
    """Return them as zlib-compressed JSON in base85, boxes rounded to 0.1 px and scores to 0.001."""
    photographs = tuple(
        msgspec.structs.replace(photo, truth=tuple(map(_rounded, photo.truth)), found=tuple(map(_rounded, photo.found)))
        for photo in predictions.photographs
    )
    answers = tuple(
        msgspec.structs.replace(answer, best=tuple((label, round(score, 3)) for label, score in answer.best))
        for answer in predictions.answers
    )
    rounded = msgspec.structs.replace(predictions, photographs=photographs, answers=answers)
    return base64.b85encode(zlib.compress(msgspec.json.encode(rounded))).decode()


def fitted(predictions: KeptPredictions) -> PackedPredictions | None:
    """Return them packed for the record: where there is no room for all, without objects of low scores, then of fewer photographs.

    Those are the same in every run: half of them, a quarter, ... by the smallest SHA-256 of the file name. None where not one fits.
    A photograph of more objects than can be read back is left out.
    """
    import hashlib  # noqa: PLC0415 - it brings OpenSSL

    items = [photo for photo in predictions.photographs if not _is_overfull(photo)] or predictions.answers
    names = sorted((item.name for item in items), key=lambda name: hashlib.sha256(name.encode()).digest())
    while names:
        for least_score in (predictions.least_score, *_LEAST_SCORES):
            fewer = _part(predictions, frozenset(names), max(least_score, predictions.least_score))
            data = pack(fewer)
            if len(data) <= LARGEST:
                return PackedPredictions(items=len(names), least_score=fewer.least_score, data=data)
        names = names[: len(names) // 2]
    return None


def unpack(text: str) -> KeptPredictions:
    """Return the predictions that `pack` packed.

    Raises:
        ConfigError: the text is damaged, too large, or contradicts itself.
    """
    try:
        raw = _expanded(base64.b85decode(text[: 2 * LARGEST]))
        predictions = _decoder.decode(raw)
        _check(predictions)
    except (zlib.error, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors.
        raise ConfigError(f"the kept predictions are damaged: {error}") from error
    return predictions


def predictions_of(run: RunRecord) -> KeptPredictions:
    """Return the predictions that a run keeps; raises ConfigError if it keeps none, or damaged ones."""
    if run.predictions is None:
        reason = run.predictions_reason or "measure it with --keep-predictions"
        raise ConfigError(f"run {run.id[:8]} of {run.model.name} keeps no predictions: {reason}")
    return unpack(run.predictions.data)


def _expanded(data: bytes) -> bytes:
    expander = zlib.decompressobj()
    raw = expander.decompress(data, _LARGEST_UNPACKED_BYTES)
    if not expander.eof:
        raise ValueError("cut off, or larger than a run can be")
    return raw


def _check(predictions: KeptPredictions) -> None:
    if bool(predictions.photographs) and bool(predictions.answers):
        raise ValueError("both photographs and answers")
    labels = {thing.label for photograph in predictions.photographs for thing in (*photograph.truth, *photograph.found)}
    labels.update(label for answer in predictions.answers for label in (answer.truth, *(label for label, _ in answer.best)))
    if max(labels, default=-1) >= len(predictions.labels):
        raise ValueError(f"label {max(labels)} of {len(predictions.labels)}")
    names = [photo.name for photo in predictions.photographs] + [answer.name for answer in predictions.answers]
    if len(set(names)) < len(names):
        raise ValueError("two items have one name")
    if any(map(_is_overfull, predictions.photographs)):
        raise ValueError(f"a photograph of more than {_MOST_OBJECTS:,} objects")
    scores = [[thing.score if thing.score is not None else -1 for thing in photograph.found] for photograph in predictions.photographs]
    if any(min(of_photo, default=0) < 0 or sorted(of_photo, reverse=True) != of_photo for of_photo in scores):
        raise ValueError("a found object has no score, or a better one follows it")


def _is_overfull(photo: KeptPhotograph) -> bool:
    return max(len(photo.truth), len(photo.found)) > _MOST_OBJECTS


def _part(predictions: KeptPredictions, names: Collection[str], least_score: float) -> KeptPredictions:
    photographs = tuple(
        msgspec.structs.replace(photo, found=tuple(thing for thing in photo.found if (thing.score or 0) >= least_score))
        for photo in predictions.photographs
        if photo.name in names
    )
    answers = tuple(answer for answer in predictions.answers if answer.name in names)
    return msgspec.structs.replace(predictions, least_score=least_score, photographs=photographs, answers=answers)


def _rounded(thing: KeptObject) -> KeptObject:
    x, y, width, height = (round(pixels, 1) for pixels in (thing.x, thing.y, thing.width, thing.height))
    score = None if thing.score is None else round(thing.score, 3)
    return KeptObject(thing.label, x, y, width, height, score, thing.ignored, thing.group)
