"""The metadata of model files is read in all the forms in which they state it."""

import json

from edgemeter.agent.recognition.metadata import read_self_description


def test_names_are_read_in_every_form():
    """A Python dict, JSON and a list are read, also out of order."""
    for names in [
        "{0: 'cat', 1: 'dog'}",
        '{"0": "cat", "1": "dog"}',
        "['cat', 'dog']",
        '["cat", "dog"]',
        "{1: 'dog', 0: 'cat'}",
    ]:
        assert read_self_description({"names": names}).labels == ("cat", "dog"), f"{names!r}"


def test_what_ultralytics_writes_beside_a_model_is_read():
    """TFLite files hold a Python literal, and TorchScript files hold JSON.

    YOLOv5 calls the size shape, and Ultralytics calls it imgsz.
    """
    description = read_self_description(
        {
            "temp_meta.txt": (
                "{'task': 'detect', 'imgsz': [480, 640], 'names': {0: 'cat'}, "
                "'args': {'nms': False}}"
            )
        }
    )
    assert (description.labels, description.size, description.task) == (
        ("cat",),
        (480, 640),
        "detect",
    )
    assert read_self_description(
        {"config.txt": json.dumps({"shape": [1, 3, 320, 640], "names": {"0": "cat"}})}
    ).size == (320, 640)
    assert read_self_description(
        {"config.txt": json.dumps({"shape": [1, 3, 320, 640], "imgsz": [64, 64]})}
    ).size == (64, 64)


def test_the_size_is_read_in_every_form():
    """The size may be one number, two numbers or something that is no size."""
    for text, size in [
        ("640", (640, 640)),
        ("[320, 640]", (320, 640)),
        ("(320, 640)", (320, 640)),
        ("big", None),
        ("[0, 1]", None),
    ]:
        assert read_self_description({"imgsz": text}).size == size, f"{text!r}"


def test_a_label_file_is_read():
    """A label file has one name a line, and other texts in the zip are none.

    Coral writes the class before the name and leaves out unused classes.
    """
    assert read_self_description(
        {"notes.txt": "hello", "labelmap.txt": "cat\n???\ndog\n"}
    ).labels == ("cat", "???", "dog")
    assert read_self_description({"coco_labels.txt": "0  cat\n2  polar bear\n"}).labels == (
        "cat",
        "",
        "polar bear",
    )


def test_mean_and_sd_are_read():
    """There may be one number for all channels or one for each."""
    assert read_self_description({"input_mean": "127.5", "input_sd": "1, 2, 3"}).mean == (
        127.5,
        127.5,
        127.5,
    )
    assert read_self_description({"input_mean": "127.5", "input_sd": "1, 2, 3"}).sd == (1, 2, 3)
    assert read_self_description({"input_mean": "grey"}).mean is None


def test_what_cannot_be_made_out_is_left_out():
    """Unclear metadata gives no error and no guess, and never runs code."""
    for metadata in [
        {},
        {"names": "__import__('os')"},
        {"names": "{0: 'cat'"},
        {"names": "{'a': 'cat'}"},
        {"names": "{99999999: 'cat'}"},
        {"names": "(" * 5000},
        {"config.txt": "[1, 2]"},
        {"label.txt": ""},
        {"task": "{}", "imgsz": "[1.5, 2]"},
    ]:
        description = read_self_description(metadata)
        assert (description.labels, description.size, description.mean, description.sd) == (
            (),
            None,
            None,
            None,
        ), f"{metadata!r}"
