"""Predictions that something else made: a class for each item, as JSON lines, JSON, or a table.

JSON lines: `{"id": "a.jpg", "label": 3}` a line; JSON is a list of these, or `{"a.jpg": 3, ...}`. A table (.csv, .tsv)
has a heading with these names.

| key | holds |
|---|---|
| `id` (or `file`, `index`) | name of the item: its file, or of one inside a file its place, from 0 on |
| `label` (or `prediction`) | its class, by number or name, or several, best first; with as many `scores` in the order of these |
| `scores` | without `label`: a score for each class, in the order of the data's |
"""

import csv
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.datasets.coco import decode_problem
from edgemeter.agent.datasets.items import read_bytes, read_text

FORM = 'each is {"id": ..., "label": ..., "scores": [...]}'
_ALIASES = {"file": "id", "index": "id", "prediction": "label"}
ClassLabel = str | int | float


class Prediction(msgspec.Struct, frozen=True):
    """The prediction for one item; other keys are passed over."""

    id: str | int
    label: ClassLabel | list[ClassLabel] | None = None
    scores: list[float] | None = None

    @property
    def labels(self) -> list[ClassLabel]:
        """Return the classes, best first; of scores alone the places of all."""
        if self.label is None:
            scores = self.scores or []
            return [*sorted(range(len(scores)), key=lambda number: -scores[number])]
        labels = self.label if isinstance(self.label, list) else [self.label]
        if self.scores and len(self.scores) == len(labels):
            return [label for _, label in sorted(zip(self.scores, labels, strict=True), key=lambda pair: -pair[0])]
        return labels


def read_predictions(path: Path) -> dict[str, Prediction]:
    """Return the predictions of a file by the id of their item, as text.

    Raises:
        ConfigError: it cannot be read, holds something else, or an item twice; the message names the first.
    """
    content = read_bytes(path, "the predictions").removeprefix(BOM_UTF8)
    rows = _table(path) if path.suffix.lower() in (".csv", ".tsv") else _json(path, content)
    predictions: dict[str, Prediction] = {}
    for number, row in enumerate(rows, 1):
        try:
            prediction = msgspec.convert({_ALIASES.get(key, key): value for key, value in row.items()}, Prediction, strict=False)
        except (msgspec.ValidationError, AttributeError) as error:
            raise ConfigError(f"the predictions {str(path)!r}: number {number} is not of their form ({error}): {FORM}") from error
        if str(prediction.id) in predictions:
            raise ConfigError(f"the predictions {str(path)!r} hold {prediction.id!r} twice: leave one of them")
        predictions[str(prediction.id)] = prediction
    return predictions


def _table(path: Path) -> list[Mapping[str, Any]]:
    text = read_text(path, "the predictions")
    # Quotation marks of a .tsv stand for themselves.
    is_plain = path.suffix.lower() == ".tsv"
    rows = (line.rstrip("\r").split("\t") for line in text.split("\n")) if is_plain else csv.reader(StringIO(text, newline=""), strict=True)
    try:
        heading = next(iter(rows))
        return [{key: cell for key, cell in zip(heading, row, strict=True) if cell} for row in rows if any(row)]
    except (csv.Error, ValueError, StopIteration) as error:
        raise ConfigError(f"the predictions {str(path)!r} are no table: {error}; give a heading with id and label") from error


def _json(path: Path, content: bytes) -> Sequence[Mapping[str, Any]]:
    lines = content.split(b"\n")
    try:
        if content.lstrip()[:1] == b"[":
            return decode_json(content, list[dict[str, Any]])
        if len([line for line in lines if line.strip()]) > 1 and lines[0].rstrip().endswith(b"}"):
            return [decode_json(line, dict[str, Any]) for line in lines if line.strip()]
        document = decode_json(content, dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the predictions {str(path)!r} cannot be read: {decode_problem(content, error)}; {FORM}") from error
    if "id" in document or any(isinstance(value, dict | list) for value in document.values()):
        return [document]
    return [{"id": key, "label": value} for key, value in document.items()]
