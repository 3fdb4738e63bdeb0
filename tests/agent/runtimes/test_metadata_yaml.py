"""Reading the metadata.yaml beside a model: what exporters write, and what they do not."""

import pytest

from edgemeter.agent.recognition import self_description
from edgemeter.agent.runtimes import metadata_yaml

ULTRALYTICS = """\
description: Ultralytics YOLOv8n model trained on coco.yaml
author: Ultralytics
date: '2026-11-01T10:00:00.000000'
version: 8.3.39
license: AGPL-3.0 License (https://ultralytics.com/license)
stride: 32
task: detect
batch: 1
imgsz:
- 480
- 640
names:
  0: person
  1: 'dog''s lead'
  2: "no: colon"
args:
  batch: 1
  half: false
"""


def test_what_ultralytics_writes_is_understood(tmp_path):
    """Task, size and names reach the recognition of models in the form that the other formats have."""
    (tmp_path / "metadata.yaml").write_text(ULTRALYTICS)
    said = metadata_yaml.read(tmp_path)
    assert said["description"] == "Ultralytics YOLOv8n model trained on coco.yaml"
    assert said["license"] == "AGPL-3.0 License (https://ultralytics.com/license)"
    assert (said["date"], said["imgsz"], said["stride"]) == ("2026-11-01T10:00:00.000000", "[480, 640]", "32")
    described = self_description.read(said)
    assert (described.task, described.size) == ("detect", (480, 640))
    assert described.labels == ("person", "dog's lead", "no: colon")


def test_indented_lists_and_blank_lines_are_the_same(tmp_path):
    """YAML allows both."""
    (tmp_path / "metadata.yaml").write_text("imgsz:\n  - 640\n\n  - 640\n# a remark\ntask: segment\n")
    assert metadata_yaml.read(tmp_path) == {"imgsz": "[640, 640]", "task": "segment"}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[1, 2]", b": :\n- \n", b"names:\n" * 3, b"x" * (1 << 21)])
def test_what_is_not_understood_is_nothing(tmp_path, content):
    """It is what a file says of itself, not what it needs."""
    (tmp_path / "metadata.yaml").write_bytes(content)
    assert metadata_yaml.read(tmp_path) == {}


def test_no_file_says_nothing(tmp_path):
    """Most models have none."""
    assert metadata_yaml.read(tmp_path) == {}
