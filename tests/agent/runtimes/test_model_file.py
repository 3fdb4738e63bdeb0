"""What is said of a file before any library opens it."""

import os
import zipfile
from pathlib import Path

import pytest

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import model_file


def test_the_head_of_a_file_is_returned(tmp_path):
    """Enough to recognise a format."""
    path = tmp_path / "model"
    path.write_bytes(b"abcdTFL3" + bytes(1000))
    assert model_file.head(path)[4:8] == b"TFL3"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_no_traceback(tmp_path):
    """The system's words come along."""
    path = tmp_path / "model"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        model_file.head(path)


def test_a_path_that_cannot_be_one_is_no_traceback():
    """A NUL in a path raises ValueError, not OSError."""
    with pytest.raises(ConfigError, match="cannot read the model"):
        model_file.head(Path("a\0b"))


def test_texts_are_read_and_the_rest_is_left_out(tmp_path):
    """Only UTF-8 of a size that a label file can have."""
    path = tmp_path / "model"
    path.write_bytes(b"the model itself")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.txt", "cat\nHündin\n")
        archive.writestr("weights.bin", b"\xff\xfe\x00")
        archive.writestr("bomb.txt", "a" * (2 << 20))
        archive.writestr("folder/", "")
    assert model_file.texts(path) == {"labels.txt": "cat\nHündin\n"}


def test_texts_below_a_folder_lose_its_name(tmp_path):
    """PyTorch keeps a model's texts below `extra` in a folder of the archive's name."""
    path = tmp_path / "model"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/extra/config.txt", "{}")
        archive.writestr("model/code/a.py", "x = 1")
        archive.writestr("extra/direct.txt", "d")
    assert model_file.texts(path, below="extra") == {"config.txt": "{}", "direct.txt": "d"}


def test_a_member_that_claims_less_than_it_holds_is_left_out(tmp_path):
    """A zip can lie about sizes; no more than the limit is ever unpacked."""
    path = tmp_path / "model"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("liar.txt", "a" * (3 << 20))
    size = (3 << 20).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (10).to_bytes(4, "little")))
    assert model_file.texts(path) in ({}, {"liar.txt": "a" * 10})


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + bytes(18), b"PK\x05\x06" + b"\xff" * 18])
def test_no_zip_and_a_garbled_one_hold_no_texts(tmp_path, content):
    """Texts are never a reason to fail."""
    path = tmp_path / "model"
    path.write_bytes(content)
    assert model_file.texts(path) == {}
