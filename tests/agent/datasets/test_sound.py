"""Facts about the ground truth of sound and of visual wake words: names, groups, and what is garbled in one line."""

import json

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.dataset import open_folder
from tests.fixtures.audio_factory import labels_csv, tone, write_recording
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth


def test_mlperf_tinys_list_names_classes_and_machines(tmp_path):
    """A machine in every name makes groups; without it there are none."""
    for name in ("normal_id_01_00000003_hist.bin", "anomaly_id_02_00000003_hist.bin", "tst_000000_Stop_7.bin"):
        (tmp_path / name).write_bytes(name.encode())
    rows = ["normal_id_01_00000003_hist.bin,2,0,2560,512", "anomaly_id_02_00000003_hist.bin,2,1,2560,512"]
    data = open_folder(tmp_path, labels_csv(tmp_path / "y_labels.csv", rows))
    assert data.classes == {"anomaly_id_02_00000003_hist.bin": 1, "normal_id_01_00000003_hist.bin": 0}
    assert data.groups == {"anomaly_id_02_00000003_hist.bin": "id_02", "normal_id_01_00000003_hist.bin": "id_01"}
    data = open_folder(tmp_path, labels_csv(tmp_path / "y_labels.csv", [*rows, "tst_000000_Stop_7.bin,12,7"]))
    assert (data.classes["tst_000000_Stop_7.bin"], data.groups) == (7, None)


def test_a_garbled_list_names_the_line(tmp_path):
    """A class beyond the classes, a file outside, a file twice."""
    for line, words in [
        ("a.bin,12", "line 1 is 'a.bin,12'"),
        ("a.bin,12,12", "line 1 is 'a.bin,12,12'"),
        ("../a.bin,12,1", "leads out of the folder"),
        ("a.bin,12,1\na.bin,12,2", "line 2 names 'a.bin' a second time"),
        ("", "names no files"),
    ]:
        with table_row(line), pytest.raises(ConfigError, match=words):
            open_folder(tmp_path, labels_csv(tmp_path / "y_labels.csv", [line]))


def test_librispeech_names_texts_and_speakers(tmp_path):
    """As it lies in its folders; the speaker is the group."""
    for name in ("19/198/19-198-0000.flac", "26/495/26-495-0003.wav"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "19/198/19-198.trans.txt").write_text("19-198-0000 NORTHANGER ABBEY\n")
    (tmp_path / "26/495/26-495.trans.txt").write_text("26-495-0003 IT'S TRUE\n\n")
    data = open_folder(tmp_path)
    assert data.targets == {"19/198/19-198-0000.flac": "NORTHANGER ABBEY", "26/495/26-495-0003.wav": "IT'S TRUE"}
    assert data.groups == {"19/198/19-198-0000.flac": "19", "26/495/26-495-0003.wav": "26"}
    assert {item.kind for item in data.items} == {"audio"}
    # The transcripts travel with the recordings.
    assert {path.name for path in data.needed} >= {"19-198.trans.txt", "26-495.trans.txt", "19-198-0000.flac"}
    (tmp_path / "26/495/26-495.trans.txt").write_text("26-495-0009 NOBODY\n")
    with pytest.raises(ConfigError, match=r"26-495\.trans\.txt': line 1 is '26-495-0009 NOBODY', which names no recording"):
        open_folder(tmp_path)


def test_a_table_of_transcripts_may_be_common_voices(tmp_path):
    """Columns in any order, by the names that people give them; a cell with the separator in it in quotes."""
    for name in ("a.mp3", "b.mp3"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "test.tsv").write_text("client_id\tpath\tsentence\nann\ta.mp3\tYes, it is.\nbob\tb.mp3\t\n")
    data = open_folder(tmp_path, tmp_path / "test.tsv")
    assert (data.targets, data.groups) == ({"a.mp3": "Yes, it is.", "b.mp3": ""}, {"a.mp3": "ann", "b.mp3": "bob"})
    (tmp_path / "test.csv").write_text('text,file\n"Yes, it is.",a.mp3\n')
    assert open_folder(tmp_path, tmp_path / "test.csv").targets == {"a.mp3": "Yes, it is."}
    (tmp_path / "test.csv").write_text("text,file\nalone\n")
    with pytest.raises(ConfigError, match="line 2 has 1 cells"):
        open_folder(tmp_path, tmp_path / "test.csv")


def test_class_folders_hold_recordings_too(tmp_path):
    """As Speech Commands has them."""
    for name in ("down/a.wav", "up/b.wav"):
        write_recording(tmp_path / name, tone(440))
    data = open_folder(tmp_path)
    assert (data.classes, data.class_names, {item.kind for item in data.items}) == (
        {"down/a.wav": 0, "up/b.wav": 1},
        ("down", "up"),
        {"audio"},
    )


def test_a_folder_of_recordings_needs_no_ground_truth(tmp_path):
    """It is a data set without: what can be timed, and not scored. Among photographs recordings do not count."""
    for name in ("b.wav", "a.wav"):
        write_recording(tmp_path / name, tone(440))
    data = open_folder(tmp_path)
    assert ([item.name for item in data.items], {item.kind for item in data.items}) == (["a.wav", "b.wav"], {"audio"})
    assert (data.has_truth, len(open_folder(tmp_path, subset=1).items)) == (False, 1)
    (tmp_path / "photo.png").write_bytes(b"x")
    assert [item.name for item in open_folder(tmp_path).items] == ["photo.png"]


def test_a_person_counts_from_a_fortieth_of_the_photograph(tmp_path):
    """More than 2.5% is class 1, a crowd or nobody class 0, and a smaller person alone makes the photograph count for nothing."""
    truth = make_truth(4, ("person",), size_px=100)
    sizes = [(10, 25.1), (10, 25.0), (90, 90), (90, 90)]
    for number, (annotation, size) in enumerate(zip(truth["annotations"], sizes, strict=True)):
        annotation["bbox"], annotation["iscrowd"] = [0, 0, *size], int(number == 2)
    truth["annotations"] = truth["annotations"][:3]
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(truth))
    for number in range(4):
        (tmp_path / f"photo_{number}.png").write_bytes(b"x")
    data = open_folder(tmp_path, path, reader="visual-wake-words")
    assert data.classes == {"photo_0.png": 1, "photo_2.png": 0, "photo_3.png": 0}
    assert data.warnings == ("1 photographs show only persons of at most 2.5% of the photograph: left out",)
