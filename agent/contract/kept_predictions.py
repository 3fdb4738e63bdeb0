"""Predictions kept with a run: what was found in each photograph beside what is there; enough to say why two accuracies differ."""

import base64
import zlib
from typing import Annotated

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import count
from edgemeter.agent.base.types import Count, Ratio
from edgemeter.agent.contract.record_accuracy import PackedPredictions

# The record has room for so many characters of packed predictions: about a thousand photographs of COCO.
LARGEST = 256 << 10
# Where they take more, the lowest scores are left out step by step.
_LEAST_SCORES = (0.1, 0.2, 0.3, 0.5)
# What unpacks to more was not packed by us: JSON of boxes shrinks to a third or a quarter.
_LARGEST_UNPACKED_BYTES = 8 << 20
# Far above any photograph's side.
FARTHEST_PX = 1e6
_Pixels = Annotated[float, msgspec.Meta(ge=-FARTHEST_PX, le=FARTHEST_PX)]
_Side = Annotated[float, msgspec.Meta(ge=0, le=FARTHEST_PX)]


class KeptObject(msgspec.Struct, frozen=True, array_like=True):
    """An object in a photograph: annotated (without a score) or found.

    `label` is its index in `labels`; the box is in pixels of the upright photograph. An `ignored` annotation (a crowd) is not asked for,
    and what lies on it is not false.
    """

    label: Count
    x: _Pixels
    y: _Pixels
    width: _Side
    height: _Side
    score: Ratio | None = None
    ignored: bool = False


class KeptPhotograph(msgspec.Struct, frozen=True, kw_only=True):
    """A photograph: its file name, size in pixels, annotated objects, and found ones, best score first."""

    name: str
    width: Count
    height: Count
    truth: tuple[KeptObject, ...] = ()
    found: tuple[KeptObject, ...] = ()


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A classified item: its file name, its annotated label, and the best labels with their scores, best first."""

    name: str
    truth: Count
    best: tuple[tuple[Count, Ratio], ...]


class KeptPredictions(msgspec.Struct, frozen=True, kw_only=True):
    """The kept predictions of a run: photographs of a detector, or answers of a classifier; objects below `least_score` are not kept."""

    labels: tuple[str, ...]
    least_score: Ratio
    photographs: tuple[KeptPhotograph, ...] = ()
    answers: tuple[KeptAnswer, ...] = ()


_decoder = msgspec.json.Decoder(KeptPredictions)


def pack(predictions: KeptPredictions) -> str:
    """Return them as zlib-compressed JSON in base85, boxes rounded to 0.1 px and scores to 0.001."""
    return base64.b85encode(zlib.compress(msgspec.json.encode(_rounded(predictions)), 9)).decode()


def fitted(predictions: KeptPredictions) -> tuple[PackedPredictions | None, str | None]:
    """Return them packed for the record, objects of low scores left out where there is no room for them; else why they do not fit."""
    items = len(predictions.photographs) or len(predictions.answers)
    for least_score in (predictions.least_score, *_LEAST_SCORES):
        fewer = _from_score(predictions, max(least_score, predictions.least_score))
        data = pack(fewer)
        if len(data) <= LARGEST:
            return PackedPredictions(items=items, least_score=fewer.least_score, data=data), None
    return None, f"those of {count(items, 'item')} take more than {LARGEST >> 10} kB: evaluate on fewer (--subset)"


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
    names = [item.name for item in (*predictions.photographs, *predictions.answers)]
    if len(set(names)) < len(names):
        raise ValueError("two items have one name")
    if any(thing.score is None for photograph in predictions.photographs for thing in photograph.found):
        raise ValueError("a found object has no score")


def _from_score(predictions: KeptPredictions, least_score: float) -> KeptPredictions:
    photographs = tuple(
        msgspec.structs.replace(photo, found=tuple(thing for thing in photo.found if (thing.score or 0) >= least_score))
        for photo in predictions.photographs
    )
    return msgspec.structs.replace(predictions, least_score=least_score, photographs=photographs)


def _rounded(predictions: KeptPredictions) -> KeptPredictions:
    photographs = tuple(
        msgspec.structs.replace(photo, truth=tuple(map(_rounded_object, photo.truth)), found=tuple(map(_rounded_object, photo.found)))
        for photo in predictions.photographs
    )
    answers = tuple(
        msgspec.structs.replace(answer, best=tuple((label, round(score, 3)) for label, score in answer.best))
        for answer in predictions.answers
    )
    return msgspec.structs.replace(predictions, photographs=photographs, answers=answers)


def _rounded_object(thing: KeptObject) -> KeptObject:
    x, y, width, height = (round(pixels, 1) for pixels in (thing.x, thing.y, thing.width, thing.height))
    return KeptObject(thing.label, x, y, width, height, None if thing.score is None else round(thing.score, 3), thing.ignored)
