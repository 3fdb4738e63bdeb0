import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published.published_folder import SHIPPED, PublishedFolder, shipped_rows
from edgemeter.collector.published.row import row_of
from tests.fixtures.published_rows import folder_of, published_row
from tests.fixtures.rows import table_row


def test_84_figures_ship_each_with_an_address_and_its_licence():
    """Every file says above what its licence is, and what its source does not state."""
    rows = shipped_rows()
    assert len({row.key for row in rows}) == len(rows) == 84
    assert all(row.address.startswith("https://") and row.licence and row.stated_by for row in rows)
    for path in SHIPPED.glob("*.toml"):
        assert "Licence" in path.read_text(), path.name
        assert "Not stated" in path.read_text(), path.name


def test_a_users_figures_stand_beside_those_that_ship(tmp_path):
    """A version tells when there is another file."""
    version = PublishedFolder(tmp_path / "references").version()
    row = published_row("latency_p50_ms", 10.0)
    folder = folder_of(tmp_path / "references", row)
    assert folder.rows() == [*shipped_rows(), row]
    assert folder.version() != version


def test_a_damaged_file_and_a_wrong_figure_are_named(tmp_path):
    """With the file, and the case in it."""
    for text, words in (("[{", "cannot read"), ('[[case]]\nfigures = [{ figure = "colour" }]', "case 1: no published figure")):
        (tmp_path / "own.toml").write_text(text)
        with table_row(text), pytest.raises(ConfigError, match=rf"own\.toml.*{words}|{words}.*own\.toml"):
            PublishedFolder(tmp_path).rows()


def test_what_cannot_be_a_figure_is_refused():
    """Whether to believe it is another question."""
    fields = {
        "source": "A page", "version": "1", "date": "2026-11-20", "address": "https://example.org", "model": "m", "device": "d",
        "figure": "latency_p50_ms", "value": "10", "unit": "ms",
    }  # fmt: skip
    assert row_of(fields).canonical == 10.0
    for changes, message in (
        ({"figure": "colour"}, "'colour' is not a figure"),
        ({"unit": "apples"}, "unit 'apples'"),
        ({"value": -1}, "value"),
        ({"value": float("inf")}, "out of range"),
        ({"date": "2026-13-01"}, "no published figure"),
        ({"low": 20.0}, "not within its range"),
        ({"figure": "power", "unit": "MW"}, "unit 'MW'"),
        ({"source": None}, "source"),
        ({"scope": "moon"}, "scope"),
    ):
        with table_row(changes), pytest.raises(ConfigError, match=message):
            row_of(fields | changes)
