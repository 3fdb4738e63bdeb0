"""Facts about links that lead out of a folder that the user named.

They show which links are followed, and which end in one line.
"""

import os
import stat

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.links import links_out_of
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.sandbox.run_grant import data_files, model_files
from tests.fixtures.rows import table_row

KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU=\n"
PNG, JPEG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\xff\xd8\xff\xe0\0\x10JFIF"
HASH = "5d41402abc4b2a76b9719d911017c592" * 2


@pytest.fixture
def outside(tmp_path):
    """Return a folder beside the named one, with one file of each type."""
    folder = tmp_path / "outside"
    folder.mkdir()
    contents = {
        "id_rsa": KEY, "photo.png": PNG, "a.npy": b"\x93NUMPY\1\0",
        "classes.txt": b"cat\n\xc3\xa9toile\n", "part.bin": b"\0\1\xff",
        "key.bin": KEY, "Cookies": b"SQLite format 3\0", f"{HASH}": PNG, f"text-{HASH}": b"cat\n",
        f"SHA256E-s3--{HASH}.txt": b"cat\n",
        "empty.txt": b"",
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)
    return folder


@pytest.fixture
def named(tmp_path):
    """Return the folder that the user names."""
    (tmp_path / "named").mkdir()
    return tmp_path / "named"


def test_a_link_is_followed_to_a_file_of_the_type_of_its_name(named, outside):
    """The target's type is judged by its content where files of that type have a signature.

    The type of text and weights is judged by the ending of the target's name, or by the name that a
    store gave it.
    """
    for name, target in [
        ("x.jpg", "photo.png"), ("X.JPEG", HASH), ("x.npy", "a.npy"), ("x.txt", "classes.txt"),
        ("x.txt", "empty.txt"),
        ("x.txt", f"text-{HASH}"), ("x.txt", f"SHA256E-s3--{HASH}.txt"), ("x.bin", "part.bin"),
    ]:  # fmt: skip
        with table_row(name, target):
            link = named / name
            link.symlink_to(outside / target)
            assert links_out_of(named) == [link]
            assert link in set(data_files(named, None))
            link.unlink()


def test_a_link_to_anything_else_is_refused_by_its_name(named, outside):
    """The error names the link and what is wrong with its target.

    The targets are a key, a database, a folder, a device, a pipe, a socket, the variables of a
    process, and text whose name ends otherwise than the link's.
    """
    for name, target, fault in [
        ("x.jpg", "id_rsa", "not known to be a .jpg file"),
        ("x.npy", "id_rsa", "not known to be a .npy file"),
        ("x.txt", "id_rsa", "not known to be a .txt file"),
        ("x.txt", "photo.png", "not known to be a .txt file"),
        ("x.bin", "id_rsa", "not known to be a .bin file"),
        ("x.bin", "key.bin", "not known to be a .bin file"),
        ("x.bin", "Cookies", "not known to be a .bin file"),
        ("x.txt", "/proc/self/environ", "not known to be a .txt file"),
        ("cat", "folder", "which is a folder"), ("x.jpg", "folder", "which is a folder"),
        (".hidden", "folder", "which is a folder"),
        ("x.jpg", "fifo", "no regular file"), ("x", "/dev/zero", "no regular file"),
        ("x.npy", "socket", "no regular file"),
    ]:  # fmt: skip
        with table_row(name, target):
            link = named / name
            link.symlink_to(outside / target)
            for refuse in (
                links_out_of,
                open_folder,
                lambda folder: list(data_files(folder, None)),
            ):
                with pytest.raises(ConfigError, match=fault) as refusal:
                    refuse(named)
                assert repr(str(link)) in str(refusal.value)
                assert "\n" not in str(refusal.value)
            link.unlink()


def test_links_that_nobody_reads_are_left_alone(named, outside):
    """Links that stay within the folder, lead nowhere or loop are no danger.

    Neither are links to files of names that no reader of data has. A link that the user names is
    followed.
    """
    (named / "real.jpg").write_bytes(JPEG)
    for name, target in [
        ("in.jpg", "real.jpg"),
        ("loop.jpg", "loop.jpg"),
        ("gone.jpg", "nowhere"),
        ("README.md", outside / "id_rsa"),
    ]:
        (named / name).symlink_to(target)
    (named / "deep").mkdir()
    (named / "deep" / "up.jpg").symlink_to("../real.jpg")
    (named / "all").symlink_to("deep")
    assert links_out_of(named) == []
    (outside / "link").symlink_to(named)
    assert links_out_of(outside / "link") == []
    assert next(data_files(outside / "link", None)) == outside / "link"


def test_a_link_in_a_folder_of_classes_or_labels_is_followed_too(named, outside):
    """Links are followed at any depth, in the annotations' folder, and in `labels`.

    The folder `labels` lies beside `images`; where it is itself a link, it is not followed.
    """
    (named / "images").mkdir()
    (named / "labels").mkdir()
    for folder, name, target in (
        ("images", "a.jpg", "photo.png"),
        ("labels", "a.txt", "classes.txt"),
    ):
        (named / folder / name).symlink_to(outside / target)
    files = set(data_files(named / "images", None))
    assert {named / "images/a.jpg", named / "labels", named / "labels/a.txt"} <= files
    (named / "labels/a.txt").unlink()
    (named / "labels").rmdir()
    (named / "labels").symlink_to(outside)
    assert {file.name for file in data_files(named / "images", None)} == {"images", "a.jpg"}
    (named / "classes.txt").write_text("cat\n")
    with pytest.raises(ConfigError, match="no labels for"):
        open_folder(named / "images", named / "classes.txt")


def test_a_link_beside_a_model_is_followed_likewise(named, outside):
    """The model's card, its weights and files that begin with its name are checked.

    So are those within its folder. A file that no format reads is not.
    """
    model, location = named / "net.onnx", b"folder/w.bin"
    model.write_bytes(b"\n\x08location\x12" + bytes([len(location)]) + location)
    (named / "id_rsa").write_bytes(KEY)
    for name, target in [
        ("net.onnx.toml", outside / "id_rsa"), ("net.bin", outside / "key.bin"),
        ("vocab.txt", outside / "id_rsa"),
        ("tokenizer.json", outside / "folder"), ("net.bin", "id_rsa"),
    ]:  # fmt: skip
        with table_row(name, target):
            (named / name).symlink_to(target)
            with pytest.raises(ConfigError, match=f"the link .*{name}.* leads to "):
                list(model_files(model))
            (named / name).unlink()
    (named / "net.bin").symlink_to(outside / "part.bin")
    (named / "net_key").symlink_to(outside / "id_rsa")
    assert set(model_files(model)) == {model, named / "net.bin"}
    (named / "folder").symlink_to(outside / "folder")
    (outside / "folder" / "w.bin").write_bytes(b"\0")
    assert named / "folder" / "w.bin" in set(model_files(model))
    (outside / "folder" / "w.bin").write_bytes(KEY)
    with pytest.raises(ConfigError, match=r"not known to be a \.bin file"):
        list(model_files(model))
