import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.trend import annotate
from edgemeter.collector.trend import watch_file
from edgemeter.collector.trend.watch_file import Annotation, WatchFile, watch_file_beside
from tests.fixtures.rows import table_row


def test_annotations_are_kept_listed_and_taken_back(tmp_path):
    """By day, with every annotation; a store that nobody annotated has none, and no file is made by looking."""
    with WatchFile(tmp_path / "w") as file:
        late = watch_file.add_annotation(file, Annotation(9, "new supply", device="pi-1", author="ada"))
        watch_file.add_annotation(file, Annotation(3, "moved", begins_level=False))
        annotations = watch_file.read_annotations(file)
        assert [
            (annotation.day, annotation.text, annotation.begins_level, annotation.device, annotation.author) for annotation in annotations
        ] == [
            (3, "moved", False, None, None),
            (9, "new supply", True, "pi-1", "ada"),
        ]
        assert watch_file.remove_annotation(file, late)
        assert not watch_file.remove_annotation(file, late)
        assert len(watch_file.read_annotations(file)) == 1
    assert watch_file.annotations_of(str(tmp_path / "ledger.sqlite")) == []
    assert not watch_file_beside(str(tmp_path / "ledger.sqlite")).exists()


def test_a_file_that_is_no_store_is_not_annotated(tmp_path):
    """One line, and nothing is made beside it."""
    for content in (b"some notes", b"", b"SQLite format 3\0 and no more"):
        with table_row(content):
            store = tmp_path / "notes.txt"
            store.write_bytes(content)
            with pytest.raises(ConfigError, match=r"notes\.txt"):
                CliRunner().invoke(annotate, ["moved", "--ledger", str(store)], catch_exceptions=False)
            assert list(tmp_path.iterdir()) == [store]
