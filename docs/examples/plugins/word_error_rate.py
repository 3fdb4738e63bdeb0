"""A task that scores speech recognition by its word error rate.

edgemeter run model.onnx --data recordings/ --annotations text.tsv --task word_error_rate.py:Words

Model: the samples of a recording (-1..1) as input, a score for each frame and character as output
(CTC). `output.labels` in its card names the characters: `|` is a space, `<blank>` is no character.
Recordings are WAV files of 16 bits and one channel, at the model's rate. Ground truth: lines
`FILE<tab>TEXT`. Metric: word error rate by jiwer (lower is better), and the character error rate.
"""

import math
import wave
from collections.abc import Sequence
from pathlib import Path

import jiwer
import numpy as np

import edgemeter.plugin as em


class Transcripts:
    """Reads lines `FILE<tab>TEXT`."""

    def read(self, folder: Path, annotations: Path | None) -> em.GroundTruth:
        texts = dict(
            line.split("\t")
            for line in annotations.read_text(encoding="utf-8").splitlines()
            if line
        )
        items = tuple(em.Item(name, folder / name, "tensor") for name in texts)
        return em.GroundTruth(em.Targets(texts), annotations, items=items)


class Words:
    """Keeps the recognised text of every recording. The contract is `edgemeter.plugin.Task`."""

    reader = Transcripts

    def __init__(self, model: em.Card, loaded: em.Loaded, data: em.Dataset) -> None:
        self._labels, self._loaded, self._data = model.output.labels, loaded, data
        self._said, self._heard = [str(text).lower() for text in data.targets.values()], {}

    def prepare(self, index: int) -> Sequence[em.Inputs]:
        item, (info,) = self._data.items[index], self._loaded.inputs
        with wave.open(str(item.file)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(32768)
        length = info.shape[-1] or len(samples)
        return [
            {
                info.name: em.fitted(
                    np.pad(samples[:length], (0, max(0, length - len(samples)))), info, item
                )
            }
        ]

    def predict(self, index: int, calls: Sequence[em.Outputs]) -> None:
        self._heard[index] = self._text(calls)

    def same_predictions(
        self, _index: int, calls: Sequence[em.Outputs], other: Sequence[em.Outputs]
    ) -> float:
        return float(self._text(calls) == self._text(other))

    def score(self, parts: em.Parts = "all") -> em.Accuracy | None:
        def rate(members: Sequence[int], of: object = jiwer.wer) -> float:
            return float(
                of(
                    [self._said[index] for index in members],
                    [self._heard[index] for index in members],
                )
            )

        figure, members = em.Jackknifed(rate, limits=(0.0, math.inf)), sorted(self._heard)
        detail = {"cer": rate(members, jiwer.cer)} if members else {}
        return em.item_accuracy(
            "wer", figure, members, self._data, parts=parts, better="lower", detail=detail
        )

    def _text(self, calls: Sequence[em.Outputs]) -> str:
        best = em.values_of_first(calls[0], self._loaded)[0][0].argmax(axis=-1)
        kept = best[np.append(True, best[1:] != best[:-1])]
        return (
            "".join(self._labels[number] for number in kept)
            .replace("<blank>", "")
            .replace("|", " ")
            .strip()
            .lower()
        )
