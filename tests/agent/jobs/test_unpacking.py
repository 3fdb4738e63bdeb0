"""Archives of photographs have reproducible bytes, and a bad archive writes nothing."""

import io
import os
import random
import shutil
import stat
import zipfile
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.jobs import unpacking
from edgemeter.provisioning.jobs import packing
from tests.fixtures.rows import in_folders, table_row


@pytest.fixture
def folder(tmp_path):
    new_folder = tmp_path / "out" / "in"
    new_folder.mkdir(parents=True)
    return new_folder


def archive_of(tmp_path, entries, **settings):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", **settings) as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return path


def link(name):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


def everything(folder):
    return sorted(str(path.relative_to(folder.parent)) for path in folder.parent.rglob("*"))


def test_the_same_files_give_the_same_bytes(tmp_path):
    """Dates, permissions and the order of the files do not change the archive."""
    (tmp_path / "a.jpg").write_bytes(b"A" * 1000)
    (tmp_path / "b.jpg").write_bytes(b"")
    names = {"images/x y/b.jpg": tmp_path / "b.jpg", "images/x y/straße/a.jpg": tmp_path / "a.jpg"}
    first, second = io.BytesIO(), io.BytesIO()
    packing.write_archive(names, first)
    os.utime(tmp_path / "a.jpg", (1, 1))
    (tmp_path / "b.jpg").chmod(0o600)
    packing.write_archive(dict(reversed(names.items())), second)
    assert first.getvalue() == second.getvalue()


def test_what_was_put_in_comes_out(tmp_path, folder):
    """Folders, names in any script and empty files survive, and photographs are found.

    The ground truth is found too.
    """
    contents = {
        "images/set/a.jpg": b"A" * 5000,
        "images/set/below/ß 写.jpg": b"",
        "annotations/truth.json": b"{}",
    }
    for number, content in enumerate(contents.values()):
        (tmp_path / str(number)).write_bytes(content)
    with (tmp_path / "a.zip").open("wb") as file:
        packing.write_archive(
            {name: tmp_path / str(number) for number, name in enumerate(contents)}, file
        )
    unpacking.unpack(tmp_path / "a.zip", folder)
    assert {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    } == contents
    data = unpacking.find(folder)
    assert (data.images, data.annotations) == (
        folder / "images" / "set",
        folder / "annotations" / "truth.json",
    )


def test_what_leads_elsewhere_refuses_all_of_it(tmp_path, folder):
    """The archive is refused before a byte is written, even of the entries before the bad one."""
    for name in [
        "../../evil",
        "/etc/passwd",
        "images/../../evil",
        "images//a.jpg",
        "images/set/./a.jpg",
        "images/set/",
        "images",
        "other/a.jpg",
        "images/set/a\nb.jpg",
        "images/set/" + "a" * 256,
        "images/" + "d/" * 40 + "a.jpg",
        link("images/set/link.jpg"),
        link("images/set"),
    ]:
        archive = archive_of(tmp_path, [("images/set/first.jpg", b"x"), (name, b"/etc/passwd")])
        with table_row(name), pytest.raises(ConfigError, match="is refused: "):
            unpacking.unpack(archive, folder)
        assert everything(folder) == ["in"], f"{name!r}"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_cannot_be_one_data_set_is_refused(tmp_path, folder):
    """Duplicate names, a file that is also a folder, and a false size are refused."""
    for entries, settings, reason in [
        ([("images/s/a", b"1"), ("images/s/a", b"2")], {}, "twice"),
        ([("images/s/a", b"1"), ("images/s/a/b", b"2")], {}, "in another file"),
        (
            [("images/s/a", b"1" * 2_000_000)],
            {"compression": zipfile.ZIP_DEFLATED},
            "more content than it has bytes",
        ),
        (
            [("images/s/a", os.urandom(1000)), ("images/s/b", b"1" * 60)],
            {"compression": zipfile.ZIP_DEFLATED},
            "compressed",
        ),
    ]:
        with table_row(reason), pytest.raises(ConfigError, match=reason):
            unpacking.unpack(archive_of(tmp_path, entries, **settings), folder)
        assert everything(folder) == ["in"], f"{reason!r}"


def test_more_files_than_a_card_bears_are_refused(tmp_path, folder, monkeypatch):
    """The number of files is limited however small they are."""
    monkeypatch.setattr(unpacking, "MOST_FILES", 3)
    with pytest.raises(ConfigError, match="4 files, at most 3"):
        unpacking.unpack(
            archive_of(tmp_path, [(f"images/s/{number}", b"") for number in range(4)]), folder
        )


def test_space_is_checked_first(tmp_path, folder, monkeypatch):
    """Unpacking does not begin if the content does not fit."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=8000))
    with pytest.raises(UnavailableError, match="no space"):
        unpacking.unpack(archive_of(tmp_path, [("images/s/a", b"1")]), folder)
    assert everything(folder) == ["in"]


def test_broken_archives_end_in_one_line(tmp_path, folder):
    """An empty, truncated or changed archive gives our own error or the original files.

    It never writes a file outside the folder.
    """
    content = archive_of(
        tmp_path, [(f"images/s/{number}.jpg", bytes([number]) * 300) for number in range(8)]
    ).read_bytes()
    draw = random.Random(3)  # noqa: S311 - the same every time
    for attempt in range(60):
        broken = bytearray(content if attempt % 4 else content[: draw.randrange(len(content))])
        for _ in range(draw.randrange(1, 6) if attempt % 4 else 0):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        (tmp_path / "broken.zip").write_bytes(broken)
        shutil.rmtree(folder)
        folder.mkdir()
        try:
            unpacking.unpack(tmp_path / "broken.zip", folder)
        except (ConfigError, UnavailableError) as error:
            assert "\n" not in str(error)  # noqa: PT017 - some of them are whole yet
        assert all(path == "in" or path.startswith("in/") for path in everything(folder))


def test_what_holds_no_one_data_set_is_refused(tmp_path):
    """None or two data sets, no photographs, and two ground truths are refused."""
    kinds = (
        (),
        ("annotations/a",),
        ("images/a/x", "images/b/x"),
        ("images/a/x", "annotations/a", "annotations/b"),
    )
    for folder, names in in_folders(tmp_path, [(names,) for names in kinds]):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        with table_row(names), pytest.raises(ConfigError, match="it contains"):
            unpacking.find(folder)


def test_a_name_that_no_archive_can_hold_is_refused_where_it_is_packed(tmp_path):
    """Invalid UTF-8 and control characters are refused, and an unreadable file is named."""
    for name in ("images/s/\udcff.jpg", "images/s/a\tb.jpg"):
        with pytest.raises(ConfigError, match="cannot be in an archive"):
            packing.write_archive({name: tmp_path / "a"}, io.BytesIO())
    with pytest.raises(ConfigError, match=r"cannot read '.*gone\.jpg': No such file"):
        packing.write_archive({"images/s/a": tmp_path / "gone.jpg"}, io.BytesIO())
