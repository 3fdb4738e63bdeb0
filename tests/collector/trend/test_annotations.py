import pytest
from click.testing import CliRunner

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.trend import annotations
from edgemeter.collector.trend.annotations import Annotation
from edgemeter.collector.trend.watch_file import WatchFile, beside
from edgemeter.collector.trend_cli import annotate


def test_annotations_are_kept_listed_and_taken_back(tmp_path):
    """By day, with everything that was said."""
    with WatchFile(tmp_path / "w") as file:
        late = annotations.add(file, Annotation(9, "new supply", device="pi-1", author="ada"))
        annotations.add(file, Annotation(3, "moved", begins_level=False))
        found = annotations.read(file)
        assert [(one.day, one.text, one.begins_level, one.device, one.author) for one in found] == [
            (3, "moved", False, None, None),
            (9, "new supply", True, "pi-1", "ada"),
        ]
        assert annotations.remove(file, late)
        assert not annotations.remove(file, late)
        assert len(annotations.read(file)) == 1


def test_a_store_that_nobody_annotated_has_none(tmp_path):
    """And no file is made by looking."""
    assert annotations.of_store(str(tmp_path / "ledger.sqlite")) == []
    assert not beside(str(tmp_path / "ledger.sqlite")).exists()


@pytest.mark.parametrize("content", [b"some notes", b"", b"SQLite format 3\0 and no more"])
def test_a_file_that_is_no_store_is_not_annotated(tmp_path, content):
    """One line, and nothing is made beside it."""
    store = tmp_path / "notes.txt"
    store.write_bytes(content)
    with pytest.raises(ConfigError, match=r"notes\.txt"):
        CliRunner().invoke(annotate, ["moved", "--store", str(store)], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == [store]
