"""Speech recognition: the words of a recording, scored by the word error rate over the whole data set, not the mean of recordings.

Families of models: `ctc`, one call that gives scores of the labels (the card's `output.labels`) frame by frame; `whisper`, which gives
tokens, whose texts stand in the tokenizer's file that the runtime found (`tokenizer.json`, or `vocab.json`, beside the model).
Both texts are normalised before they are compared, by the rule that the record names: `whisper-basic`, that of Whisper for any language
(OpenAI, `whisper/normalizers/basic.py`): lower case, nothing in brackets, no marks, symbols and punctuation, single spaces. Whisper's rule
for English, which MLPerf takes, also spells out numbers and unifies British and American spelling; figures by the two are not compared.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.audio.front_end import FrontEnd
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.vision.preprocess import values_of_first

METRIC = "wer"
NORMALISATION = "whisper-basic"
FAMILIES = ("ctc", "whisper")
# What label of a CTC model stands for no letter, and which for a space.
_BLANKS = ("<blank>", "<pad>", "[pad]", "<blk>", "_", "")
_SPACES = ("|", "▁", "<space>")


class SpeechRecognition:
    """Keeps how many words of every recording are wrong."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        if data.has_truth and (data.targets is None or not all(isinstance(text, str) for text in data.targets.values())):
            raise ConfigError(
                f"model {model.name!r} writes down speech, and the ground truth of {data.name!r} is another task's: give transcripts"
            )
        if model.family not in FAMILIES:
            raise ConfigError(
                f"model {model.name!r} is of family {model.family!r}, speech is recognised by {' or '.join(FAMILIES)}: correct its card"
            )
        self._loaded, self._data = loaded, data
        self._front = FrontEnd(model, loaded)
        self._text_of = text_of_scores(model, loaded) if model.family == "ctc" else text_of_tokens(model, loaded.metadata)
        # By recording: the edits of words and of letters.
        self._edits: dict[int, tuple[Edits, Edits]] = {}

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the one call for recording `index`."""
        return self._front.one_call(self._data.items[index], "text")

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Keep how far the words of recording `index` are from the transcript."""
        heard = self._text_of(calls[0])
        if self._data.targets is not None:
            self._edits[index] = text_edits(str(self._data.targets[self._data.items[index].name]), heard)

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float | None:
        """Return the share of words that two raw outputs have in common, None where both are silent."""
        del index
        first, second = (normalised(self._text_of(calls[0])).split() for calls in (calls, other))
        longest = max(len(first), len(second))
        return None if not longest else 1 - edits(first, second).errors / longest

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the word error rate over all recordings; None without transcripts, or where nothing is said in any."""
        return speech_accuracy(self._edits, self._data, parts)


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits that turn one sequence into another: elements replaced, missing and added, of so many."""

    substitutions: int
    deletions: int
    insertions: int
    length: int

    @property
    def errors(self) -> int:
        """Return all of them."""
        return self.substitutions + self.deletions + self.insertions


def text_edits(spoken: str, heard: str) -> tuple[Edits, Edits]:
    """Return the edits of words and of letters that turn the one text into the other, both normalised."""
    spoken, heard = normalised(spoken), normalised(heard)
    return edits(spoken.split(), heard.split()), edits(spoken, heard)


def speech_accuracy(edits_of: Mapping[int, tuple[Edits, Edits]], data: Dataset, parts: Parts = "all") -> Accuracy | None:
    """Return the word error rate over these recordings, by the edits of words and letters of each; None where nothing is said in any."""
    members = sorted(edits_of)
    words, letters = ({index: pair[position] for index, pair in edits_of.items()} for position in (0, 1))
    shares = {kind: rate(words, members, kind) for kind in ("substitutions", "deletions", "insertions")}
    figure = Jackknifed(lambda members: rate(words, members), limits=(0.0, float("inf")), is_mean=True)
    detail = {"cer": rate(letters, members), **shares}
    accuracy = item_accuracy(METRIC, figure, members, data, parts=parts, better="lower", detail=detail)
    return None if accuracy is None else msgspec.structs.replace(accuracy, normalisation=NORMALISATION)


def rate(edits_of: Mapping[int, Edits], members: Sequence[int], kind: str = "errors") -> float | None:
    """Return the errors of these recordings over what was said in them; None where nothing was."""
    length = sum(edits_of[index].length for index in members)
    return sum(getattr(edits_of[index], kind) for index in members) / length if length else None


def edits(reference: Sequence[str], hypothesis: Sequence[str]) -> Edits:
    """Return the fewest edits that make `hypothesis` of `reference` (Levenshtein); of equally few those that replace most."""
    # A cell: cost, then substitutions, deletions, insertions; compared as tuples.
    row = [(column, column, 0, 0, column) for column in range(len(hypothesis) + 1)]
    for number, expected in enumerate(reference, 1):
        above, row = row, [(number, number, 0, number, 0)]
        for column, other in enumerate(hypothesis, 1):
            corner, before, top = above[column - 1], row[column - 1], above[column]
            if expected == other:
                row.append(corner)
                continue
            row.append(
                min(
                    (corner[0] + 1, corner[1], corner[2] + 1, corner[3], corner[4]),
                    (top[0] + 1, top[1] + 1, top[2], top[3] + 1, top[4]),
                    (before[0] + 1, before[1] + 1, before[2], before[3], before[4] + 1),
                )
            )
    _, _, substitutions, deletions, insertions = row[-1]
    return Edits(substitutions, deletions, insertions, len(reference))


def normalised(text: str) -> str:
    """Return a text by the rule `whisper-basic`."""
    text = re.sub(r"[<\[][^>\]]*[>\]]", "", text.lower())
    text = re.sub(r"\(([^)]+?)\)", "", text)
    plain = (" " if unicodedata.category(letter)[0] in "MSP" else letter for letter in unicodedata.normalize("NFKC", text))
    return re.sub(r"\s+", " ", "".join(plain).lower()).strip()


def text_of_scores(model: Card, loaded: Loaded) -> Callable[[Outputs], str]:
    """Return what reads a CTC model's scores [1, frames, labels]: the best label of each frame, repetitions joined, blanks left out."""
    labels = model.output.labels
    blank = next((index for index, label in enumerate(labels) if label.strip().lower() in _BLANKS), None)
    if blank is None:
        raise ConfigError(
            f"model {model.name!r} has no label for a blank among its {len(labels)}: give output.labels in its card, with `<blank>`"
        )

    def text(outputs: Outputs) -> str:
        scores = values_of_first(outputs, loaded)[0]
        scores = scores.reshape(-1, scores.shape[-1])
        if scores.shape[-1] != len(labels):
            raise ConfigError(f"model {model.name!r} gives scores of {scores.shape[-1]} labels, not {len(labels)}: correct output.labels")
        best = np.argmax(np.nan_to_num(scores, nan=-np.inf), axis=1)
        changed = best[np.append(True, best[1:] != best[:-1])]
        parts = (labels[index] for index in changed if index != blank)
        return "".join(" " + part[1:] if part[:1] in _SPACES else " " if part in _SPACES else part for part in parts)

    return text


def text_of_tokens(model: Card, metadata: Mapping[str, str]) -> Callable[[Outputs], str]:
    """Return what writes tokens [1, n] as text: byte-level, as Whisper's and GPT-2's tokenizers have them; special tokens are left out.

    Bytes that are no UTF-8 become U+FFFD.
    """
    texts = _bytes_of(model, metadata)
    return lambda outputs: b"".join(texts.get(int(token), b"") for token in np.asarray(outputs[0]).ravel()).decode(errors="replace")


def _bytes_of(model: Card, metadata: Mapping[str, str]) -> dict[int, bytes]:
    text = metadata.get("tokenizer.json") or metadata.get("vocab.json")
    if text is None:
        raise ConfigError(f"model {model.name!r} has no tokenizer: put tokenizer.json, or vocab.json, beside its file")
    try:
        document = decode_json(text, dict[str, Any])
        is_whole = isinstance(document.get("model"), dict)
        vocabulary = msgspec.convert(document["model"]["vocab"] if is_whole else document, dict[str, int])
        added = {int(entry["id"]) for entry in document.get("added_tokens", ())} if is_whole else set()
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"the tokenizer of model {model.name!r} holds no vocabulary: fetch tokenizer.json again") from error
    plain = _byte_letters()
    # Special tokens are `<|...|>`; what is not written in the letters of bytes is special too.
    return {
        number: bytes(plain[letter] for letter in token)
        for token, number in vocabulary.items()
        if number not in added and not (token.startswith("<|") and token.endswith("|>")) and all(letter in plain for letter in token)
    }


def _byte_letters() -> dict[str, int]:
    """Return the byte of each letter of a byte-level vocabulary. Source: openai/gpt-2 `src/encoder.py`, bytes_to_unicode."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(hidden)}
