"""Facts about the length of the documentation: whoever adds to a page takes something away."""

from tests.fixtures.own_imports import ROOT

DOCS = ROOT / "docs"
# As `wc -w` counts: README with all pages, and the reference by itself.
WORDS, WORDS_OF_THE_REFERENCE = 22_000, 9_000
WORDS_OF_A_PAGE = {
    "docs/explain/": 900,
    "docs/start/": 900,
    "docs/tasks/": 1_050,
    "docs/reference/": 2_800,
    "CHANGELOG.md": 720,
    "CONTRIBUTING.md": 900,
}


def words_by_page() -> dict[str, int]:
    """Return the number of words of each page, by its path; an example's README is no page."""
    pages = [*ROOT.glob("*.md"), *(path for path in DOCS.rglob("*.md") if DOCS / "examples" not in path.parents)]
    return {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").split()) for path in pages}


def test_the_documentation_can_be_read():
    """All of it together: a sentence that is there twice, or that only makers need, is better cut than the limit raised."""
    words = words_by_page()
    of_reference = {name: count for name, count in words.items() if name.startswith("docs/reference/")}
    assert sum(count for name, count in words.items() if name == "README.md" or name.startswith("docs/")) <= WORDS
    assert sum(of_reference.values()) <= WORDS_OF_THE_REFERENCE


def test_no_page_is_longer_than_a_reader_stays():
    """Pages that are looked up may be longer than those that are read."""
    too_long = {
        name: count
        for name, count in words_by_page().items()
        for beginning, most_words in WORDS_OF_A_PAGE.items()
        if name.startswith(beginning) and count > most_words
    }
    assert too_long == {}
