"""Facts that hold for every reader of published figures: over its fixtures, `tests/fixtures/published/READER.EXT`."""

import re

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published import READERS, create, reader_names, table_file
from edgemeter.collector.published.row import fault
from tests.fixtures.published_defaults import DEFAULTS, FIXTURES, fixtures_of, readers_by_content
from tests.fixtures.rows import table_row

# Other text that a user could give, whole and damaged.
STRANGE = (
    "",
    "\n",
    "garbage",
    "[",
    "{}",
    "[]",
    "[1, null]",
    "|",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "a,b\n1,2\n",
    "[[row]]\n",
    "=== \x00",
    "\ufeff",
)
# What becomes of a fixture in bad hands; the whole of it where the text is no part of the format.
DAMAGES = {
    "deep list": lambda _: "[" * 100_000,
    "deep object": lambda _: '{"a":' * 100_000,
    "deep value": lambda text: re.sub(r": (\d|\")", lambda matched: f": {'[' * 100_000}{matched[1]}", text, count=1),
    "integers of 5000 digits": lambda text: re.sub(r"\d+", "9" * 5000, text),
    "integers of 400 digits": lambda text: re.sub(r"\d+", "9" * 400, text),
    "integers of 30 digits": lambda text: re.sub(r"\b\d+\b", "9" * 30, text),
    "Arabic digits": lambda text: text.translate({ord("0") + digit: 0x660 + digit for digit in range(10)}),
    "superscript digits": lambda text: re.sub(r"\b\d\b", "\N{SUPERSCRIPT TWO}", text),
    "lone surrogates": lambda text: text.replace('": "', '": "\\ud800'),
    "lone surrogates in names": lambda text: re.sub(r'"(\w+)":', r'"\1\\ud800":', text),
    "escaped escape sequences": lambda text: text.replace('": "', '": "\\u001b]0;x\\u0007'),
    "escape sequences": lambda text: re.sub(r"(?<=[a-z])(?=[A-Z ])", "\x1b[31m", text),
    "no-break spaces": lambda text: text.replace(" ", "\N{NO-BREAK SPACE}"),
    "not a number": lambda text: re.sub(r"\d+\.\d+", "NaN", text),
}
FIXTURE_PAIRS = [(reader, path) for reader in readers_by_content() for path in fixtures_of(reader)]
each_fixture = pytest.mark.parametrize(("reader", "path"), FIXTURE_PAIRS, ids=[path.name for _, path in FIXTURE_PAIRS])
each_reader = pytest.mark.parametrize("reader", readers_by_content())


def read(reader, text, defaults=DEFAULTS):
    """Return the table, None where the text is refused; any other error is a failure."""
    try:
        return create(reader).read(text, defaults)
    except ConfigError:
        return None


@each_reader
def test_a_reader_has_a_fixture_of_its_format(reader):
    """That it recognises, with a figure at least; and a test of its own."""
    paths = fixtures_of(reader)
    assert paths
    assert (FIXTURES.parents[1] / "collector" / "published" / "readers" / f"test_{reader}.py").is_file()
    for path in paths:
        with table_row(path.name):
            assert create(reader).recognises(path.name, path.read_text(encoding="utf-8"))
            assert read(reader, path.read_text(encoding="utf-8")).rows


def test_a_fixture_belongs_to_a_reader():
    """One that is left behind tests nothing."""
    assert {path.stem for path in FIXTURES.iterdir()} <= set(READERS)


@each_fixture
def test_a_file_is_of_one_format(reader, path):
    """No reader recognises the fixture of another, so that the order in which they are asked is nothing to know."""
    text = path.read_text(encoding="utf-8")
    assert [name for name in reader_names() if create(name).recognises(path.name, text)] == [reader]
    assert table_file.read_any(path, None, DEFAULTS) == read(reader, text)


@each_fixture
def test_a_row_is_whole_and_comes_once(reader, path):
    """Each can be a figure; two readings agree, and no two rows are the same figure of the same case."""
    text = path.read_text(encoding="utf-8")
    rows = read(reader, text).rows
    assert not [why for row in rows if (why := fault(row))]
    assert len({row.id for row in rows}) == len(rows)
    assert [row.id for row in rows] == [row.id for row in read(reader, text).rows]


@each_fixture
@pytest.mark.parametrize("field", ["source", "address", "device"])
def test_a_row_without_a_source_or_a_device_is_left_out_and_named(reader, path, field):
    """Unless the file states it: nobody guesses the board, and every figure can be looked up."""
    text = path.read_text(encoding="utf-8")
    table = read(reader, text, {name: value for name, value in DEFAULTS.items() if name != field})
    named = [reason for reason in table.left_out if f"missing required field `{field}`" in reason]
    assert len(table.rows) + len(named) >= len(read(reader, text).rows)
    assert all(getattr(row, field) for row in table.rows)


@each_fixture
def test_the_conditions_of_the_user_are_kept(reader, path):
    """Before those of the file."""
    for row in read(reader, path.read_text(encoding="utf-8"), DEFAULTS | {"conditions": "with a fan"}).rows:
        assert row.conditions.startswith("with a fan")


@each_fixture
def test_a_cut_file_gives_the_rows_before_the_cut_or_is_refused(reader, path):
    """At any length: a row is read as in the whole file, or is left out."""
    text = path.read_text(encoding="utf-8")
    figures = {(row.figure, row.statistic, row.value) for row in read(reader, text).rows}
    for length in range(0, len(text), max(1, len(text) // 97)):
        with table_row(length):
            create(reader).recognises(path.name, text[:length])
            table = read(reader, text[:length])
            assert table is None or {(row.figure, row.statistic, row.value) for row in table.rows} <= figures


@each_reader
def test_strange_text_is_not_recognised_and_gives_no_row(reader):
    """Empty, garbage, JSON and tables of nothing: no error but one line of what to give."""
    for text in STRANGE:
        with table_row(text):
            assert not create(reader).recognises("results.txt", text)
            table = read(reader, text)
            assert table is None or table.rows == ()


@each_fixture
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_hostile_file_gives_rows_that_can_be_figures_or_one_error(reader, path, damage, tmp_path):
    """Whoever reads it, and what is left out is named in words that a terminal can show."""
    hostile = tmp_path / path.name
    hostile.write_text(DAMAGES[damage](path.read_text(encoding="utf-8")), encoding="utf-8")
    for reader_name in (reader, None):
        create(reader).recognises(path.name, hostile.read_text(encoding="utf-8"))
        try:
            table = table_file.read_any(hostile, reader_name, DEFAULTS)
        except ConfigError:
            continue
        assert not [why for row in table.rows if (why := fault(row))]
        assert all(map(str.isprintable, table.left_out))
        assert "\N{NO-BREAK SPACE}" not in repr(table.rows)


@each_fixture
def test_a_byte_order_mark_changes_nothing(reader, path, tmp_path):
    """Windows writes one."""
    marked = tmp_path / path.name
    marked.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert table_file.read_any(marked, None, DEFAULTS) == table_file.read_any(path, reader, DEFAULTS)
