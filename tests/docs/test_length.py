"""Facts about the length of the documentation: whoever adds to a page takes something away."""

from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
# As `wc -w` counts. A page of the reference is looked up, not read.
WORDS, WORDS_OF_A_PAGE, WORDS_OF_A_REFERENCE = 30_900, 1_300, 3_000


def words_by_page() -> dict[str, int]:
    """Return the number of words of each page, by its path below docs."""
    return {path.relative_to(DOCS).as_posix(): len(path.read_text(encoding="utf-8").split()) for path in DOCS.rglob("*.md")}


def test_the_documentation_can_be_read():
    """All of it together: a sentence that stands twice, or that only makers need, is better cut than the limit raised."""
    assert sum(words_by_page().values()) <= WORDS


def test_no_page_is_longer_than_a_reader_stays():
    """Pages that are looked up may be longer than those that are read."""
    longest = {name: WORDS_OF_A_REFERENCE if name.startswith("reference/") else WORDS_OF_A_PAGE for name in words_by_page()}
    assert {name: words for name, words in words_by_page().items() if words > longest[name]} == {}
