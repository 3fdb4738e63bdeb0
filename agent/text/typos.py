"""Typos in five severities, for asking how much accuracy careless typing costs.

Letters only are touched, each with the probability of the severity, drawn by a seed: `character_swap` exchanges a letter with the next one
of its word, `character_drop` leaves it out; the last letter of a word is never dropped, so that no word vanishes. The kinds are those of
Y. Belinkov and Y. Bisk (arXiv:1711.02173: swap) and D. Pruthi et al. (arXiv:1905.11268: swap, drop); the rates are ours.
"""

import re

import numpy as np

from edgemeter.agent.base.corruption_draw import corruption_draw

# Share of the letters that are hit, by severity.
RATES = (0.02, 0.05, 0.1, 0.15, 0.2)
_WORD = re.compile(r"[^\W\d_]+")


def with_typos(text: str, name: str, severity: int, seed: int, identity: str) -> str:
    """Return the text with typos.

    Args:
        text: as it came.
        name: character_swap or character_drop.
        severity: 1 to 5.
        seed: of the run.
        identity: of the text (its hash): every text has typos of its own, the same on every machine.
    """
    draw = corruption_draw(name, severity, seed, identity)
    typo = {"character_swap": _swapped, "character_drop": _dropped}[name]
    return _WORD.sub(lambda word: typo(word[0], draw.random_sample(len(word[0])) < RATES[severity - 1]), text)


def _swapped(word: str, is_hit: np.ndarray) -> str:
    letters, index = list(word), 0
    while index < len(letters) - 1:
        if is_hit[index]:
            letters[index : index + 2] = letters[index + 1], letters[index]
            # A letter moves once.
            index += 1
        index += 1
    return "".join(letters)


def _dropped(word: str, is_hit: np.ndarray) -> str:
    letters = [letter for letter, hit in zip(word[:-1], is_hit, strict=False) if not hit]
    return "".join([*letters, word[-1]])
