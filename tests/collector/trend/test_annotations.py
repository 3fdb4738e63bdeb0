from edgemeter.collector.trend import annotations
from edgemeter.collector.trend.annotations import Annotation
from edgemeter.collector.trend.watch_file import WatchFile, beside


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
