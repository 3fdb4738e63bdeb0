"""Readers of other packages, as the protocol lets them in."""

from unittest.mock import Mock

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.collector import published
from edgemeter.collector.published import RowCollector, table_file
from edgemeter.collector.published.readers.mapped_table import MappedTable
from tests.fixtures.plugin_site import install
from tests.fixtures.published_defaults import DEFAULTS, FIXTURES
from tests.fixtures.published_factory import make_published
from tests.fixtures.rows import table_row

MODULE = """
from edgemeter.plugin import ConfigError, PublishedReader, ReadTable, RowCollector

class Plain:
    def recognises(self, name, text):
        return text.startswith("plain figures")
    def read(self, text, defaults) -> ReadTable:
        collector = RowCollector(defaults)
        for number, line in enumerate(text.splitlines()[1:], start=2):
            model, _, value = line.partition(" ")
            if not value:
                raise ConfigError(f"line {number} has no value")
            collector.add(f"line {number}", model=model, figure="latency-mean", value=float(value), unit="ms", conditions="plain")
        return collector.table()

reader: PublishedReader = Plain()
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a site folder with a package that registers the reader `plain`."""
    folder = tmp_path / "site"
    install(folder, "plainfigures", [(published.ENTRY_POINTS, "plain", "plainfigures:Plain")], MODULE)
    monkeypatch.delitem(__import__("sys").modules, "plainfigures", raising=False)
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.mark.usefixtures("site")
def test_a_reader_of_another_package_is_asked_after_ours(tmp_path):
    """And its damage is named with the file."""
    assert published.reader_names()[-1] == "plain"
    path = tmp_path / "figures.txt"
    path.write_text("plain figures\nyolo 12.5\nresnet 0\n")
    table = table_file.read_any(path, None, DEFAULTS)
    assert [(row.model, row.value) for row in table.rows] == [("yolo", 12.5)]
    assert table.left_out == ("line 3: value 0.0 is not a number above 0",)
    path.write_text("plain figures\nyolo\n")
    with pytest.raises(ConfigError, match=r"figures.txt', as plain: line 2 has no value$"):
        table_file.read_any(path, None, DEFAULTS)


def test_a_broken_reader_does_not_affect_files_that_ours_read(site, tmp_path):
    """It is named where it is asked for, and where nobody recognises the file."""
    install(site, "spoilt", [(published.ENTRY_POINTS, "broken", "spoilt:X")], "this is no Python\n")
    assert table_file.read_any(FIXTURES / "benchncnn.txt", None, DEFAULTS).rows
    path = tmp_path / "own.toml"
    path.write_text("row = []\n")
    assert table_file.read_any(path, None, DEFAULTS).rows == ()
    for reader, name in (("broken", "own.toml"), (None, "notes.txt")):
        (tmp_path / name).write_text("row = []\n")
        with pytest.raises(UnavailableError, match=r"reader of published figures 'broken'.*spoilt.*uninstall that package"):
            table_file.read_any(tmp_path / name, reader, DEFAULTS)


def test_the_conditions_of_the_user_and_of_the_file_stand_together():
    """Neither replaces the other."""
    for of_user, conditions in (({}, "batch 1"), ({"conditions": "fan on"}, "fan on; batch 1")):
        collector = RowCollector(DEFAULTS | of_user)
        collector.add("line 1", model="yolo", figure="latency", value=1, unit="ms", conditions="batch 1")
        assert collector.rows[0].conditions == conditions


def test_a_figure_that_comes_twice_is_named():
    """An edition has one of a case; the first counts."""
    collector = RowCollector(DEFAULTS)
    for value in (1.0, 2.0):
        collector.add(f"at {value}", model="yolo", figure="latency", value=value, unit="ms", conditions="batch 1")
    assert [row.value for row in collector.table().rows] == [1.0]
    assert collector.table().left_out == ("at 2.0: latency of yolo under these conditions appears before",)


def test_two_metrics_scopes_or_data_sets_of_a_run_are_two_figures():
    """F1 beside top-1, the wall beside the rails: neither is a second value of the other."""
    for figure, unit, field, values in (
        ("accuracy", "ratio", "accuracy_metric", ("f1", "top1")),
        ("accuracy", "ratio", "dataset", ("COCO", "ImageNet")),
        ("power", "W", "scope", ("wall-ac", "module")),
    ):
        with table_row(field):
            collector = RowCollector(DEFAULTS)
            for value in values:
                collector.add(value, model="yolo", figure=figure, value=0.5, unit=unit, conditions="batch 1", images=500, **{field: value})
            assert collector.left_out == []
            assert len({row.case for row in collector.rows}) == 1


def test_results_of_mlperf_stand_apart_however_their_source_writes_it():
    """A company's page on its results is one of them."""
    for source in ("MLPerf Tiny v1.2, closed", "MLCommons, mlperf inference v6.0", "A vendor on its MLPERF results"):
        assert make_published(source=source).is_mlperf
    assert not make_published(source="a blog").is_mlperf


def test_conditions_that_are_too_long_are_cut_visibly():
    """The figure counts; the user's conditions, which come first, stay."""
    collector = RowCollector(DEFAULTS | {"conditions": "fan on"})
    collector.add("line 1", model="yolo", figure="latency", value=1, unit="ms", conditions="x" * 600)
    (row,) = collector.rows
    assert (row.conditions[:8], row.conditions[-4:], len(row.conditions)) == ("fan on; ", " ...", 500)


def test_a_reader_that_fails_is_one_line_with_the_file(tmp_path, monkeypatch):
    """Whatever number or depth it did not expect, also while it looks whether the file is its own."""
    path = tmp_path / "figures.txt"
    path.write_text("figures")
    for error in (ValueError("no number"), OverflowError("too large"), RecursionError("too deep")):
        for method, reader, message in (
            ("read", "table", rf"figures.txt', as table: it is damaged \({error}\)"),
            ("recognises", None, "no reader recognises"),
        ):
            with table_row(error, method), monkeypatch.context() as patch:
                patch.setattr(MappedTable, method, Mock(side_effect=error))
                with pytest.raises(ConfigError, match=message):
                    table_file.read_any(path, reader, DEFAULTS)
