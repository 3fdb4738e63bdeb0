"""The forms of `names` that are read give what a YAML reader gives; every other is refused."""

import pytest

from edgemeter.agent.datasets import yolo_names
from edgemeter.agent.errors import ConfigError


def read(folder, text, name="data.yaml"):
    """Return the names in a file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return yolo_names.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "names: [cat, hot dog, 'baker''s']",
        'names: ["cat", hot dog, "baker\'s"]  # three',
        "names:\n  - cat\n  - hot dog\n  - baker's\nval: x",
        "names:\n- cat\n- 'hot dog' # two\n- baker's\n",
        'train: a\nnc: 3\n\nnames:\n  0: cat\n  1: hot dog\n  # a comment\n  2: "baker\'s"\n\ntest:\n',
        "names: {0: cat, 1: 'hot dog', 2: baker's}",
        "names: [cat,\n  hot dog,\n  baker's,\n]\n",
        "names:\n  1: hot dog\n  2: baker's\n  0: cat\n",
    ],
)
def test_the_usual_forms_are_read(tmp_path, text):
    """Lists and mappings, in one line and in several, with quotes and comments."""
    assert read(tmp_path, text) == ("cat", "hot dog", "baker's")


def test_they_are_what_a_yaml_reader_gives(tmp_path):
    """Held against PyYAML where it is installed."""
    yaml = pytest.importorskip("yaml")
    for text in ("names: [a, 'b, c', \"d\"]", "names:\n  0: a b\n  1: c#d\n", "names:\n - a\n - 'b: c'\n"):
        names = yaml.safe_load(text)["names"]
        assert read(tmp_path, text) == tuple(names.values() if isinstance(names, dict) else names)


def test_a_list_of_names_is_read(tmp_path):
    """One a line."""
    assert read(tmp_path, "cat\nhot dog\n\n", "classes.txt") == ("cat", "hot dog")


@pytest.mark.parametrize(
    "text",
    [
        "", "train: a\n", "names:\n", "names: []", "names: &a [b]", "names: cat", "names: [cat,\n dog\n",
        "names:\n  0: cat\n  2: dog\n", "names:\n  - cat\n  1: dog\n", "names:\n  cat: 0\n", "nc: 3\nnames: [cat, dog]",
    ],
)  # fmt: skip
def test_other_forms_are_refused(tmp_path, text):
    """In one line that says what to write."""
    with pytest.raises(ConfigError, match=r"data\.yaml"):
        read(tmp_path, text)
