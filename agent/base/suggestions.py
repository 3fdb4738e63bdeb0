"""The known words that somebody may have meant by a word that is none of those that there are: the one place of "did you mean"."""

import difflib
from collections.abc import Iterable

ALIKE = 0.6


def near(word: str, known_words: Iterable[str]) -> str:
    """Return the known words for one that is none of them, those that resemble it first: `did you mean ...? There are ...`."""
    listed = list(known_words)
    exist = f"there are {', '.join(listed)}" if len(listed) > 1 else f"there is {''.join(listed) or 'none'}"
    suggestion = did_you_mean(word, listed)
    return f"{suggestion} T{exist[1:]}" if suggestion else exist


def did_you_mean(word: str, known_words: Iterable[str], limit: int = 2, alike: float = ALIKE) -> str | None:
    """Return `did you mean A or B?` for the known words that resemble this one, None if none does."""
    by_lower = {candidate.lower(): candidate for candidate in known_words}
    words = [by_lower[lower] for lower in difflib.get_close_matches(word.lower(), by_lower, limit, alike)]
    return f"did you mean {' or '.join(words)}?" if words else None
