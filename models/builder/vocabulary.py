"""The vocabulary of the tiny language model: byte pairs merged within words, in the form that llama.cpp and tokenizers both know.

Ids: `<unk>`, `<s>`, `</s>`, 256 bytes, the single characters, then one token per merge. A space is written as U+2581.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

SPECIAL = ("<unk>", "<s>", "</s>")
BOS, EOS = 1, 2
SPACE = "\u2581"
_WORD = re.compile(rf"{SPACE}?[A-Za-z]+|.", re.DOTALL)


@dataclass(frozen=True)
class Vocabulary:
    """Characters and merges, in the order of their ids; the earlier of two merges goes first."""

    characters: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    _known: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """All tokens by id."""
        return (*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *self.characters, *(first + right for first, right in self.merges))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without the beginning-of-text token; what is no token becomes its UTF-8 bytes."""
        ids: list[int] = []
        for word in _WORD.findall(text.replace(" ", SPACE)):
            if word not in self._known:
                self._known[word] = self._encode_word(word)
            ids += self._known[word]
        return ids

    def _encode_word(self, word: str) -> list[int]:
        pieces = list(word)
        while len(pieces) > 1:
            ranked = [(self._ranks.get(pair, len(self.merges)), at) for at, pair in enumerate(pairwise(pieces))]
            rank, at = min(ranked)
            if rank == len(self.merges):
                break
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return [index for token in pieces for index in self._piece_ids(token)]

    def _piece_ids(self, token: str) -> list[int]:
        if token in self._ids:
            return [self._ids[token]]
        return [len(SPECIAL) + byte for byte in token.encode()]


def learn_vocabulary(text: str, size: int) -> Vocabulary:
    """Return a vocabulary of `size` tokens: the most frequent pair of neighbours within words is merged, again and again."""
    counts = Counter(_WORD.findall(text.replace(" ", SPACE)))
    words: dict[str, list[str]] = {word: list(word) for word in counts if len(word) > 1}
    # A newline stays the byte that llama.cpp's vocabularies of this kind make of it.
    characters = tuple(sorted({character for word in counts for character in word} - {"\n"}))
    merges: list[tuple[str, str]] = []
    while len(SPECIAL) + 256 + len(characters) + len(merges) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        if not pairs:
            break
        # The first in the alphabet of equals: the same text gives the same vocabulary.
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = {word: _merged(pieces, best) for word, pieces in words.items()}
    return Vocabulary(characters, tuple(merges))


def _merged(pieces: Sequence[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for part in pieces:
        if merged and (merged[-1], part) == pair:
            merged[-1] += part
        else:
            merged.append(part)
    return merged
