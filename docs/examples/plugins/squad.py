"""A task that scores answers on SQuAD.

edgemeter run model.onnx --data dev-v2.0.json --task squad.py:Squad

Model: inputs as BERT has them (ids, mask and token types, known by their names); as outputs the
scores of each token as the start and as the end of the answer. Texts become word pieces of uncased
BERT. Put the model's vocab.txt into the folder of this file. A passage that is too long for the
model is cut off. Metric: F1 of the words of the answer.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import edgemeter.plugin as em


class Questions:
    """Reads SQuAD's JSON.

    An item is a question with its passage; its target is the list of right answers.
    """

    def read(self, folder: Path, _annotations: Path | None) -> em.GroundTruth:
        parts = [
            part
            for article in json.loads(folder.read_bytes())["data"]
            for part in article["paragraphs"]
        ]
        asked = [(each, part["context"]) for part in parts for each in part["qas"]]
        items = tuple(
            em.Item(each["id"], folder, "tensor", array=np.array([each["question"], context]))
            for each, context in asked
        )
        right = {
            each["id"]: [answer["text"] for answer in each["answers"]] or [""] for each, _ in asked
        }
        return em.GroundTruth(em.Targets(right), folder, items=items)


def pieces(text: str, vocabulary: dict[str, int]) -> Iterator[tuple[int, int, int]]:
    """Yield the longest word pieces of a text: id, begin and end in the text."""
    for word in re.finditer(r"\w+|[^\w\s]", text.lower()):
        begin = word.start()
        while begin < word.end():
            names = {
                end: "##" * (begin > word.start()) + word.string[begin:end]
                for end in range(word.end(), begin, -1)
            }
            end = next((end for end, name in names.items() if name in vocabulary), word.end())
            yield vocabulary.get(names[end], vocabulary["[UNK]"]), begin, end
            begin = end


def f1(answer: str, right: str) -> float:
    """Return the F1 of the words of two answers, as SQuAD's scripts compare them."""
    words, others = (
        re.sub(r"\b(a|an|the)\b", " ", re.sub(r"[!-/:-@\[-`{-~]", "", text.lower())).split()
        for text in (answer, right)
    )
    return (
        2 * (Counter(words) & Counter(others)).total() / (len(words) + len(others))
        if words and others
        else float(words == others)
    )


class Squad:
    """Keeps the F1 of the best span of at most 30 pieces for every question.

    The contract is `edgemeter.plugin.Task`.
    """

    reader = Questions

    def __init__(self, _model: em.Card, loaded: em.Loaded, data: em.Dataset) -> None:
        lines = enumerate(
            Path(__file__).with_name("vocab.txt").read_text(encoding="utf-8").splitlines()
        )
        self._ids, self._loaded, self._data = (
            {piece: number for number, piece in lines},
            loaded,
            data,
        )
        self._length, self._right, self._passages, self._f1 = (
            loaded.inputs[0].shape[1],
            list(data.targets.values()),
            {},
            {},
        )

    def prepare(self, index: int) -> Sequence[em.Inputs]:
        question, passage = (
            [*pieces(str(text), self._ids)] for text in self._data.items[index].array
        )
        begin, sep = len(question) + 2, self._ids["[SEP]"]
        passage = passage[: (self._length or 384) - begin - 1]
        self._passages[index] = slice(begin, begin + len(passage)), passage
        ids = [
            self._ids["[CLS]"],
            *[piece[0] for piece in question],
            sep,
            *[piece[0] for piece in passage],
            sep,
        ]
        values = {"mask": [1] * len(ids), "type": [0] * begin + [1] * (len(ids) - begin), "": ids}
        padded = {
            name: np.pad(each, (0, (self._length or len(ids)) - len(ids)))
            for name, each in values.items()
        }
        return [
            {
                x.name: next(padded[name] for name in padded if name in x.name)[None].astype(
                    x.dtype
                )
                for x in self._loaded.inputs
            }
        ]

    def predict(self, index: int, calls: Sequence[em.Outputs]) -> None:
        inside, passage = self._passages[index]
        start, end = (values.ravel() for values in em.values_of_first(calls[0], self._loaded)[:2])
        sums = np.where(
            np.tril(np.triu(np.ones((len(passage),) * 2)), 29) > 0,
            start[inside, None] + end[inside],
            -np.inf,
        )
        first, last = np.unravel_index(sums.argmax(), sums.shape)
        is_there = [""] not in self._right or start[0] + end[0] <= sums.max()
        answer = (
            str(self._data.items[index].array[1])[passage[first][1] : passage[last][2]]
            if is_there
            else ""
        )
        self._f1[index] = max(f1(answer, right) for right in self._right[index])

    def same_predictions(
        self, _index: int, calls: Sequence[em.Outputs], other: Sequence[em.Outputs]
    ) -> float:
        return float(all(map(np.allclose, calls[0], other[0])))

    def score(self, parts: em.Parts = "all") -> em.Accuracy | None:
        of = em.Jackknifed(
            lambda members: sum(self._f1[index] for index in members) / len(members), is_mean=True
        )
        return em.item_accuracy("squad_f1", of, sorted(self._f1), self._data, parts=parts)
