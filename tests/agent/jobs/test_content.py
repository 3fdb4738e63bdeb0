"""Data sets on a device are unpacked once, replace their archive and are cleaned up.

Cleaning follows the same limit as for other content.
"""

import os
import shutil

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.orders import Data
from edgemeter.agent.jobs import measure_order, unpacking
from edgemeter.agent.jobs.content import CONTENT_FOLDER, DeviceContent
from edgemeter.provisioning.jobs import packing
from tests.fixtures.small_disk import small_disk

SHA256 = "d" * 64


@pytest.fixture
def archive(tmp_path):
    """Return an archive of two photographs, where the device keeps it."""
    (tmp_path / CONTENT_FOLDER).mkdir()
    (tmp_path / "a.jpg").write_bytes(b"A" * 400)
    with (tmp_path / CONTENT_FOLDER / SHA256).open("wb") as file:
        packing.write_archive({f"images/set/{name}.jpg": tmp_path / "a.jpg" for name in "ab"}, file)
    return tmp_path / CONTENT_FOLDER / SHA256


def names(tmp_path):
    return sorted(path.name.removeprefix(SHA256) for path in (tmp_path / CONTENT_FOLDER).iterdir())


def content(size_bytes, sha256=SHA256):
    return Data(sha256=sha256, size_bytes=size_bytes, name="set.zip")


def test_it_is_unpacked_once_and_takes_the_place_of_its_archive(archive, tmp_path):
    """A second job finds it unpacked, and the fetching process takes it as present."""
    size_bytes = archive.stat().st_size
    assert DeviceContent(tmp_path, 10_000).is_here(content(size_bytes))
    data = measure_order.open_data(archive)
    assert sorted(path.name for path in data.images.iterdir()) == ["a.jpg", "b.jpg"]
    assert data.annotations is None
    assert names(tmp_path) == [".data"]
    assert DeviceContent(tmp_path, 10_000).is_here(content(size_bytes))
    inode = (data.images / "a.jpg").stat().st_ino
    assert measure_order.open_data(archive) == data
    assert (data.images / "a.jpg").stat().st_ino == inode


@pytest.mark.services
def test_a_power_cut_leaves_nothing_that_passes_for_whole(archive, tmp_path, monkeypatch):
    """After a cut between any two files, the next job still gets the whole data set.

    Cuts before and after the folder gets its name are tested too.
    """
    extracted = []
    take_out = unpacking._take_out

    def cut(*arguments):
        if len(extracted) == 1:
            os._exit(0)
        extracted.append(take_out(*arguments))

    monkeypatch.setattr(unpacking, "_take_out", cut)
    if (child := os.fork()) == 0:
        measure_order.open_data(archive)
    os.waitpid(child, 0)
    assert names(tmp_path) == ["", ".data.part"]
    monkeypatch.undo()
    assert len(list(measure_order.open_data(archive).images.iterdir())) == 2
    assert names(tmp_path) == [".data"]


def test_what_cannot_be_unpacked_leaves_nothing(archive, tmp_path):
    """A text file and an archive without photographs are refused, each time in the same words."""
    archive.write_bytes(b"no archive")
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot be read"):
            measure_order.open_data(archive)
    (tmp_path / "t.json").write_bytes(b"{}")
    with archive.open("wb") as file:
        packing.write_archive({"annotations/t.json": tmp_path / "t.json"}, file)
    with pytest.raises(ConfigError, match="0 folders"):
        measure_order.open_data(archive)
    assert names(tmp_path) == [""]


@pytest.mark.needs("mount")
def test_a_card_that_is_full_half_way_keeps_the_archive_and_nothing_half(
    archive, tmp_path, monkeypatch
):
    """A card that fills up gives a one-line error; with space again, all of it is unpacked."""
    with small_disk(tmp_path / "card", 1) as card:
        card_archive = card / SHA256
        card_archive.write_bytes(archive.read_bytes())
        (card / "ballast").write_bytes(b"x" * (shutil.disk_usage(card).free - 4096))
        with pytest.raises(UnavailableError, match="no space"):
            measure_order.open_data(card_archive)
        monkeypatch.setattr(unpacking, "_must_fit", lambda *_given: None)
        with pytest.raises(UnavailableError, match="No space left"):
            measure_order.open_data(card_archive)
        assert {path.name for path in card.iterdir()} == {SHA256, "ballast"}
        (card / "ballast").unlink()
        assert len(list(measure_order.open_data(card_archive).images.iterdir())) == 2


def test_it_is_cleaned_by_the_same_limit(archive, tmp_path):
    """It counts with its unpacked size and is removed whole, the least recently used first.

    It is never removed while an order names it.
    """
    measure_order.open_data(archive)
    store = DeviceContent(tmp_path, 1000)
    ordered = content(700, "e" * 64)
    store.make_room(ordered, {SHA256})
    assert names(tmp_path)[0] == ".data"
    store.make_room(content(100, "f" * 64), set())
    assert names(tmp_path)[0] == ".data"
    store.make_room(ordered, set())
    assert [name for name in names(tmp_path) if name.startswith(".")] == []
    assert not store.is_here(content(1))


def test_what_a_cut_left_while_it_was_removed_goes_too(archive, tmp_path):
    """A partly removed data set has a different name, by which it is found."""
    part = tmp_path / CONTENT_FOLDER / f"{SHA256}.data.part"
    measure_order.open_data(archive)
    archive.with_name(f"{SHA256}.data").rename(part)
    store = DeviceContent(tmp_path, 1000)
    assert not store.is_here(content(1))
    store.make_room(content(900, "e" * 64), set())
    assert not part.exists()
