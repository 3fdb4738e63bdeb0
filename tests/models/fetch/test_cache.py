"""The cache: its limit, who goes first, and who stays."""

import os
import subprocess
import sys

import pytest

from edgemeter.models.fetch.cache import ModelCache, is_in_use
from tests.fixtures.catalogue_factory import content, make_entry, write_catalogue
from tests.fixtures.rows import table_row

SIZE = 400_000


@pytest.fixture
def four(server, home):
    """Return the names of four models of 0.4 MB that can be fetched."""
    names = ["a", "b", "c", "d"]
    bodies = [content(SIZE, seed) for seed in range(4)]
    write_catalogue(home / "catalogue.toml", *(make_entry(n, server.put(f"/{n}.onnx", b), b) for n, b in zip(names, bodies, strict=True)))
    return names


def used(home, name, at_s):
    """Say when a model was last used."""
    os.utime(home / "models" / name / f"{name}.onnx", (at_s, at_s))


def cached_names(home):
    """Return the names of the models in the cache."""
    return {cached.name for cached in ModelCache(home / "models").models() if cached.path}


@pytest.mark.usefixtures("four")
def test_what_was_not_used_for_longest_goes_first(home, invoke):
    """A megabyte holds two; the one that was used meanwhile stays, and the removal is reported. To fetch it again is a use."""
    invoke("fetch", "a", "b", "--limit-mb", "1")
    used(home, "a", 2_000)
    used(home, "b", 1_000)
    result = invoke("fetch", "c", "--limit-mb", "1")
    assert cached_names(home) == {"a", "c"}
    assert "removed b" in result.stderr
    used(home, "a", 1_000)
    used(home, "c", 2_000)
    invoke("fetch", "a")
    invoke("fetch", "d", "--limit-mb", "1")
    assert cached_names(home) == {"a", "d"}


@pytest.mark.usefixtures("four")
def test_what_is_fetched_together_stays_together(home, invoke):
    """Three do not fit: none of them is removed for the others, and the excess is reported."""
    result = invoke("fetch", "a", "b", "c", "--limit-mb", "1")
    assert cached_names(home) == {"a", "b", "c"}
    assert "above its limit" in result.stderr


@pytest.mark.services
@pytest.mark.usefixtures("four")
def test_a_model_in_use_stays(home, invoke):
    """Open or mapped in another process, or on its command line."""
    for how, hold in (
        ("open", "f = open(sys.argv[1].removeprefix('='), 'rb')"),
        ("mapped", "f = open(sys.argv[1].removeprefix('='), 'rb'); m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); f.close()"),
        ("named", "pass"),
    ):
        invoke("fetch", "a", "b", "--limit-mb", "1")
        used(home, "a", 1_000)
        used(home, "b", 2_000)
        path = home / "models" / "a" / "a.onnx"
        code = f"import sys, mmap; {hold}; print('ready', flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", code, str(path) if how == "named" else f"={path}"]
        with table_row(how), subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            assert is_in_use(path)
            assert "in use, kept: a" in invoke("cache", "clear", "a").stdout
            invoke("fetch", "c", "--limit-mb", "1")
            assert cached_names(home) == {"a", "c"}
        assert not is_in_use(path)
        invoke("cache", "clear", "c")


@pytest.mark.usefixtures("four")
def test_a_model_being_fetched_is_not_removed(home, invoke):
    """Its folder is locked by another process."""
    invoke("fetch", "a")
    cache = ModelCache(home / "models")
    with cache.locked("a"):
        assert not cache.remove(cache.models()[0])
    assert cached_names(home) == {"a"}


@pytest.mark.usefixtures("four")
def test_what_is_not_the_caches_is_never_removed(home, invoke):
    """Folders and files that somebody else put there."""
    photographs = home / "models" / "photographs"
    photographs.mkdir(parents=True)
    (photographs / "mine.jpg").write_bytes(b"x" * 2_000_000)
    (home / "models" / "notes.txt").write_text("mine")
    invoke("fetch", "a", "b", "c", "--limit-mb", "1")
    invoke("cache", "clear")
    assert cached_names(home) == set()
    assert (photographs / "mine.jpg").exists()
    assert (home / "models" / "notes.txt").exists()


def test_unfinished_downloads_are_listed_and_cleared(server, home, invoke):
    """They take room too: the list shows them with their size, and `clear` removes them."""
    body = content(SIZE)
    write_catalogue(home / "catalogue.toml", make_entry("a", server.put("/a.onnx", body), body))
    cache = ModelCache(home / "models")
    with cache.locked("a") as folder:
        (folder / ".a.onnx.part").write_bytes(body[:1000])
    assert "unfinished" in invoke("cache", "list").stdout
    assert cache.models()[0].size_bytes == 1000
    invoke("cache", "clear", "a")
    assert cache.models() == []
