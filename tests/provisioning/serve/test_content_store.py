"""The content store: whole or not at all, by hash, and nothing is removed that somebody names."""

import hashlib
import time

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.serve.content_store import YOUNG_NS, ContentStore
from tests.fixtures.rows import table_row
from tests.fixtures.small_disk import small_disk


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def test_what_is_put_comes_back_by_its_hash(tmp_path):
    """Contents from a file and from memory come back by their hash, and are stored once."""
    source = tmp_path / "model.tflite"
    source.write_bytes(bytes(range(256)) * 5000)
    store = ContentStore(tmp_path / "content")
    put = store.put(source)
    assert (put.sha256, put.size_bytes, put.name) == (
        sha256(source.read_bytes()),
        1_280_000,
        "model.tflite",
    )
    assert store.path(put.sha256).read_bytes() == source.read_bytes()
    assert store.put_bytes(source.read_bytes(), "again") == type(put)(
        sha256=put.sha256, size_bytes=1_280_000, name="again"
    )
    assert [path.name for path in (tmp_path / "content").iterdir()] == [put.sha256]


def test_a_damaged_content_is_healed_when_it_is_put_again(tmp_path):
    """A content with a flipped byte or a truncated one is replaced when it is put again."""
    store = ContentStore(tmp_path / "content")
    put = store.put_bytes(b"abc", "x")
    for damaged in (b"abd", b"a"):
        (tmp_path / "content" / put.sha256).write_bytes(damaged)
        store.put_bytes(b"abc", "x")
        assert store.path(put.sha256).read_bytes() == b"abc"


def test_what_is_no_hash_is_nothing(tmp_path):
    """A name that is not a lower-case SHA-256, above all a path, gives no path."""
    store = ContentStore(tmp_path / "content")
    store.put_bytes(b"abc", "x")
    for name in (
        "../../etc/passwd",
        "",
        "A" * 64,
        "a" * 63,
        "a" * 65,
        "a" * 64 + "\n",
        "/etc/passwd",
        "\0" * 64,
    ):
        with table_row(name):
            assert store.path(name) is None


def test_only_what_is_old_and_named_by_nobody_is_removed(tmp_path):
    """Unfinished files are removed too, but files of somebody else are not."""
    store = ContentStore(tmp_path / "content")
    referenced, gone = store.put_bytes(b"kept", "x").sha256, store.put_bytes(b"gone", "x").sha256
    for name in (".unfinished-abc", "README"):
        (tmp_path / "content" / name).touch()
    assert store.collect({referenced}, time.time_ns()) == []
    assert store.collect({referenced}, time.time_ns() + 2 * YOUNG_NS) == [".unfinished-abc", gone]
    assert sorted(path.name for path in (tmp_path / "content").iterdir()) == sorted(
        [referenced, "README"]
    )
    assert ContentStore(tmp_path / "absent").collect(set(), time.time_ns()) == []


@pytest.mark.needs("mount")
def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """A full disk leaves no half content under a hash or beside it."""
    with small_disk(tmp_path / "disk", 1) as disk:
        store = ContentStore(disk / "content")
        with pytest.raises(UnavailableError, match="No space left"):
            store.put_bytes(b"x" * (2 << 20), "large")
        assert list((disk / "content").iterdir()) == []
