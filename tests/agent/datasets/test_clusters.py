"""Facts about `edgemeter.agent.datasets.clusters`: what names the clusters of items, in every kind of annotations."""

import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.clusters import clusters_of
from edgemeter.agent.datasets.dataset import open_folder
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth

ITEMS = ["a/84-121-0000.flac", "a/84-122-0001.flac", "b/17-121-0000.flac"]


def test_the_widest_field_names_the_clusters():
    """A clip is part of a video; a field that names none is left alone, and so are items without the field."""
    fields = {"clip": dict.fromkeys(ITEMS, "c"), "Video_ID": {ITEMS[0]: "v1", ITEMS[1]: "v2"}, "camera": dict.fromkeys(ITEMS, "x")}
    clusters = clusters_of(ITEMS, fields)
    assert (clusters.by, clusters.names) == ("Video_ID", {ITEMS[0]: "v1", ITEMS[1]: "v2"})
    assert clusters_of(ITEMS, fields, "camera").names == dict.fromkeys(ITEMS, "x")
    assert clusters_of(ITEMS, {"camera": dict.fromkeys(ITEMS, "x")}) is None
    assert clusters_of(ITEMS, fields, "none") is None


def test_a_file_name_names_its_cluster_by_rule():
    """LibriSpeech's speaker, or speaker and chapter; the folder."""
    for rule, names in (("prefix:-", ["84", "84", "17"]), ("prefix:-:2", ["84-121", "84-122", "17-121"]), ("folder", ["a", "a", "b"])):
        with table_row(rule):
            assert list(clusters_of(ITEMS, {}, rule).names.values()) == names


def test_a_rule_that_names_no_cluster_is_refused():
    """One line with the remedy."""
    for rule, words in (
        ("camera", "no field 'camera': give folder or none$"),
        ("prefix:_", "has fewer than 1 '_' in its name"),
        ("prefix:", "names no separator"),
        ("prefix:-:x", "names no separator"),
    ):
        with table_row(rule), pytest.raises(ConfigError, match=words):
            clusters_of(ITEMS, {}, rule)
    # What each item has of its own, or all have in common, or COCO states of every image, names no cluster.
    fields = {"license": ["1", "1", "2"], "video": ["a", "a", "b"], "hash": ["x", "y", "z"], "year": ["2020"] * 3}
    with pytest.raises(ConfigError, match=r"no field 'planet': give video, folder or none$"):
        clusters_of(ITEMS, {name: dict(zip(ITEMS, values, strict=True)) for name, values in fields.items()}, "planet")


def test_coco_names_the_videos_of_its_images(tmp_path):
    """A number or a text; the hash of the data does not depend on how they are put together."""
    truth = make_truth()
    for image in truth["images"]:
        (tmp_path / image["file_name"]).write_bytes(image["file_name"].encode())
        image |= {"video_id": 3, "date": "2020"}
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(truth))
    data, by_date = open_folder(tmp_path, path), open_folder(tmp_path, path, cluster_by="date")
    assert (data.clusters.by, data.clusters.names) == ("video_id", {"photo_0.png": "3", "photo_1.png": "3"})
    assert by_date.clusters.names == {"photo_0.png": "2020", "photo_1.png": "2020"}
    assert data.sha256 == by_date.sha256 == open_folder(tmp_path, path, cluster_by="none").sha256
    assert open_folder(tmp_path, path, cluster_by="none").clusters is None


def test_tables_name_speakers(tmp_path):
    """A column beside the classes."""
    for name in ("a.wav", "b.wav"):
        (tmp_path / name).write_bytes(name.encode())
    texts = {
        "words.csv": ("file,class,label,speaker\na.wav,0,up,s1\nb.wav,1,down,s2\n", "speaker", ["s1", "s2"]),
    }
    for name, (content, by, names) in texts.items():
        path = tmp_path / name
        path.write_text(content)
        data = open_folder(tmp_path, path)
        with table_row(name):
            assert (data.clusters.by, list(data.clusters.names.values())) == (by, names)
