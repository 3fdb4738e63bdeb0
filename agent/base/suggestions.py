"""Suggestions for unknown words: the one place of "did you mean"."""

from collections.abc import Iterable

ALIKE = 0.6
MOST_LISTED = 8  # If there are more words, only the most similar are listed.
MOST_SIMILAR = 3


def near(word: str, known_words: Iterable[str]) -> str:
    """Return `did you mean A?` for a similar known word.

    If none is similar, it is the known words, or the most similar ones.
    """
    listed = list(known_words)
    if suggestion := did_you_mean(word, listed, limit=1):
        return suggestion
    if len(listed) > MOST_LISTED:
        return f"the most similar of {len(listed)} are {', '.join(_resembling(word, listed, 0.0))}"
    return (
        f"there are {', '.join(listed)}"
        if len(listed) > 1
        else f"there is {''.join(listed) or 'none'}"
    )


def did_you_mean(
    word: str, known_words: Iterable[str], limit: int = 2, alike: float = ALIKE
) -> str | None:
    """Return `did you mean A or B?` for the known words that resemble this one.

    None if none does.
    """
    by_lower = {candidate.lower(): candidate for candidate in known_words}
    close = _resembling(word.lower(), by_lower, alike)
    # Swapped letters are the most common slip, and difflib does not know them: to it `modle` is
    # nearer to `model` than to `mode`.
    close.sort(key=lambda lower: sorted(lower) != sorted(word.lower()))
    words = [by_lower[lower] for lower in close[:limit]]
    return f"did you mean {' or '.join(words)}?" if words else None


def _resembling(word: str, known_words: Iterable[str], alike: float) -> list[str]:
    import difflib  # noqa: PLC0415 - only a mistake needs it

    return difflib.get_close_matches(word, [*known_words], MOST_SIMILAR, alike)
