"""The cache: what it lists, and what is removed of it."""

import fcntl

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.models.fetch.fetching import LOCK
from tests.fixtures.catalogue_factory import content, make_entry, write_catalogue

BODY = content(40_000)


@pytest.fixture(autouse=True)
def fetched(server, home, invoke):
    write_catalogue(
        home / "catalogue.toml",
        *(make_entry(name, server.put(f"/{name}.onnx", BODY), BODY) for name in ("a", "b")),
    )
    invoke("fetch", "a", "b")


def test_what_is_fetched_is_listed_and_cleared(home, invoke):
    """Fetched models are listed and cleared by name or all; an unknown name is a one-line error."""
    assert [line.split()[:2] for line in invoke("cache", "list").stdout.splitlines()[-2:]] == [
        ["a", "fetched"],
        ["b", "fetched"],
    ]
    assert invoke("cache", "clear", "a").stdout == "removed: a\n"
    assert [folder.name for folder in (home / "models").iterdir()] == ["b"]
    with pytest.raises(ConfigError, match="has no a"):
        invoke("cache", "clear", "a")
    assert invoke("cache", "clear").stdout == "removed: b\n"
    assert not list((home / "models").iterdir())
    assert "is empty" in invoke("cache", "list").stderr


def test_a_model_being_fetched_is_not_removed(home, invoke):
    """A model that another process is fetching is not removed, because its folder is locked."""
    with (home / "models" / "a" / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert invoke("cache", "clear").stdout == "being fetched, kept: a\nremoved: b\n"
    assert (home / "models" / "a" / "a.onnx").exists()


def test_what_is_not_the_caches_is_never_removed(home, invoke):
    """Folders and files that somebody else put into the cache are never removed."""
    photographs = home / "models" / "photographs"
    photographs.mkdir(parents=True)
    (photographs / "mine.jpg").write_bytes(b"x")
    (home / "models" / "notes.txt").write_text("mine")
    invoke("cache", "clear")
    assert sorted(path.name for path in (home / "models").iterdir()) == ["notes.txt", "photographs"]


def test_unfinished_downloads_are_listed_and_cleared(home, invoke):
    """Unfinished downloads are listed with their size, and `clear` removes them."""
    folder = home / "models" / "c"
    folder.mkdir()
    (folder / LOCK).touch()
    (folder / ".c.onnx.part").write_bytes(BODY)
    assert "unfinished" in invoke("cache", "list").stdout
    invoke("cache", "clear", "c")
    assert not folder.exists()
