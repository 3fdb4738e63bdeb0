"""A task that scores text classification on GLUE.

edgemeter run model.onnx --data dev.tsv --task glue.py:Glue

Model: inputs as BERT has them (ids, mask and token types, known by their names); a score for each
class as output, or one number for STS-B. Texts become word pieces of uncased BERT. Put the model's
vocab.txt into the folder of this file. Data: a table of SST-2, MRPC, QQP, STS-B, QNLI, RTE or MNLI
with its heading. Metric: accuracy; F1 for MRPC and QQP; Pearson's r for STS-B.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import edgemeter.plugin as em

METRICS = {
    "gold_label": "accuracy",
    "label": "accuracy",
    "Quality": "f1",
    "is_duplicate": "f1",
    "score": "pearson",
}
TEXTS = (
    "question",
    "question1",
    "sentence1",
    "#1 String",
    "sentence",
    "question2",
    "sentence2",
    "#2 String",
)
FIGURES = {
    "accuracy": lambda truth, predicted: float(np.mean(truth == predicted)),
    "f1": lambda truth, predicted: float(
        2 * np.sum(truth * predicted) / max(np.sum(truth) + np.sum(predicted), 1)
    ),
    "pearson": lambda truth, predicted: float(np.corrcoef(truth, predicted)[0, 1]),
}


class Tables:
    """Reads a table.

    An item is a line with one or two texts; its target is the label and the metric.
    """

    def read(self, folder: Path, _annotations: Path | None) -> em.GroundTruth:
        heading, *rows = (
            line.split("\t") for line in folder.read_text(encoding="utf-8").rstrip("\n").split("\n")
        )
        label = next(name for name in METRICS if name in heading)
        texts = [heading.index(name) for name in TEXTS if name in heading][:2]
        items = [
            em.Item(f"{number:06}", folder, "tensor", array=np.array([row[at] for at in texts]))
            for number, row in enumerate(rows)
        ]
        labels = {
            item.name: (row[heading.index(label)], METRICS[label])
            for item, row in zip(items, rows, strict=True)
        }
        return em.GroundTruth(em.Targets(labels), folder, items=tuple(items))


def pieces(text: str, vocabulary: dict[str, int]) -> Iterator[int]:
    """Yield the ids of the longest word pieces of a text. A word without pieces is unknown."""
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        ids, begin = [], 0
        while begin < len(word):
            end = next(
                (
                    end
                    for end in range(len(word), begin, -1)
                    if "##" * (begin > 0) + word[begin:end] in vocabulary
                ),
                0,
            )
            ids = (
                [*ids, vocabulary["##" * (begin > 0) + word[begin:end]]]
                if end
                else [vocabulary["[UNK]"]]
            )
            begin = end or len(word)
        yield from ids


class Glue:
    """Keeps the best class of every text, or its number.

    The contract is `edgemeter.plugin.Task`.
    """

    reader = Tables

    def __init__(self, model: em.Card, loaded: em.Loaded, data: em.Dataset) -> None:
        lines = Path(__file__).with_name("vocab.txt").read_text(encoding="utf-8").splitlines()
        self._ids, self._loaded, self._data = (
            {piece: number for number, piece in enumerate(lines)},
            loaded,
            data,
        )
        labels, (self._metric, *_) = zip(*data.targets.values(), strict=True)
        names = [*model.output.labels] or sorted(set(labels))
        self._truth = np.array(
            [float(label) if self._metric == "pearson" else names.index(label) for label in labels]
        )
        self._predicted = np.full(len(labels), np.nan)

    def prepare(self, index: int) -> Sequence[em.Inputs]:
        length = self._loaded.inputs[0].shape[1]
        texts = [
            [*pieces(str(text), self._ids), self._ids["[SEP]"]]
            for text in self._data.items[index].array
        ]
        ids = [self._ids["[CLS]"], *[piece for text in texts for piece in text]][: length or 128]
        types = [0, *[number for number, text in enumerate(texts) for _ in text]][: len(ids)]
        values = {"mask": [1] * len(ids), "type": types, "": ids}
        padded = {
            part: np.pad(each, (0, (length or len(ids)) - len(ids)))
            for part, each in values.items()
        }
        return [
            {
                x.name: next(padded[part] for part in padded if part in x.name)[None].astype(
                    x.dtype
                )
                for x in self._loaded.inputs
            }
        ]

    def predict(self, index: int, calls: Sequence[em.Outputs]) -> None:
        scores = em.values_of_first(calls[0], self._loaded)[0].ravel()
        self._predicted[index] = scores[0] if self._metric == "pearson" else scores.argmax()

    def same_predictions(
        self, _index: int, calls: Sequence[em.Outputs], other: Sequence[em.Outputs]
    ) -> float:
        return float(np.argmax(calls[0][0]) == np.argmax(other[0][0]))

    def score(self, parts: em.Parts = "all") -> em.Accuracy | None:
        of = em.Jackknifed(
            lambda members: FIGURES[self._metric](
                self._truth[list(members)], self._predicted[list(members)]
            )
        )
        return em.item_accuracy(
            self._metric,
            of,
            np.flatnonzero(~np.isnan(self._predicted)).tolist(),
            self._data,
            parts=parts,
        )
