"""Indices of classes as text."""

import pytest

from edgemeter.agent.datasets import class_index
from edgemeter.agent.errors import ConfigError


def read(folder, name, text):
    """Return the index in a file of this name and content."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return class_index.read(path)


def test_a_text_has_file_and_class_on_a_line(tmp_path):
    """As ImageNet's val.txt; blank lines are passed over, file names may hold folders and spaces."""
    index = read(tmp_path, "val.txt", "a.JPEG 65\n\nn01/b c.jpg\t0\n")
    assert (index.classes, index.groups, index.names) == ({"a.JPEG": 65, "n01/b c.jpg": 0}, {}, None)


def test_a_table_may_have_a_heading_and_groups(tmp_path):
    """A group is the third column; an empty one is none."""
    index = read(tmp_path, "val.csv", '\ufefffile,class,group\n"a, b.jpg",3,night\nc.jpg,4,\n')
    assert index.classes == {"a, b.jpg": 3, "c.jpg": 4}
    assert index.groups == {"a, b.jpg": "night"}
    assert read(tmp_path, "val.tsv", "a.jpg\t3\n").classes == {"a.jpg": 3}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("i.txt", "a.jpg 1\nb.jpg cat\n", r"line 2 is 'b\.jpg cat': each line is"),
        ("i.txt", "a.jpg -1\n", "line 1"),
        ("i.txt", "a.jpg 1.5\n", "line 1"),
        ("i.txt", "a.jpg\n", "line 1"),
        ("i.csv", "file,class\na.jpg,1,x,y\n", "line 2"),
        ("i.csv", "file,class\na.jpg,\n", "line 2"),
        ("i.txt", "a.jpg 1\na.jpg 2\n", r"line 2 names 'a\.jpg' a second time"),
        ("i.txt", "../a.jpg 1\n", "leads out of the image folder"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, name, text, said):
    """Its number, what it is and what it should be."""
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, name, text)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    """One line, not a traceback."""
    (tmp_path / "i.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="are no UTF-8 text"):
        class_index.read(tmp_path / "i.txt")
    with pytest.raises(ConfigError, match="cannot read the annotations"):
        class_index.read(tmp_path / "absent.txt")
