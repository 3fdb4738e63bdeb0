"""Model archives for machines without a network: there and back, and what a bad one may not do."""

import hashlib
import json
import os
import stat
import zipfile
from itertools import product
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from tests.fixtures.catalogue_factory import card_beside, content, make_entry, write_catalogue
from tests.fixtures.rows import table_row

BODY = content(50_000)


@pytest.fixture
def archive(server, home, invoke, tmp_path):
    """Return a model archive of one model whose entry is in the catalogue here; the model itself is gone."""
    write_catalogue(home / "catalogue.toml", make_entry("mine", server.put("/mine.onnx", BODY), BODY))
    invoke("fetch", "mine")
    invoke("export-archive", tmp_path / "models.zip", "mine")
    invoke("cache", "clear")
    server.resources.clear()
    return tmp_path / "models.zip"


def file_of(home):
    """Return where the model lies once it is imported."""
    return home / "models" / "mine" / "mine.onnx"


def changed(archive, **members):
    """Write the model archive again with other contents for some members; None leaves one out."""
    with zipfile.ZipFile(archive) as zipped:
        contents = {name: zipped.read(name) for name in zipped.namelist()} | {
            name.replace("__", "/"): body for name, body in members.items()
        }
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, body in contents.items():
            if body is not None:
                zipped.writestr(name, body)
    return archive


def manifest(archive):
    """Return the manifest as a document."""
    with zipfile.ZipFile(archive) as zipped:
        return json.loads(zipped.read("manifest.json"))


@pytest.mark.parametrize("kind", ["zip", "folder"])
@pytest.mark.parametrize("command", [("import-archive",), ("fetch", "mine", "--archive")])
def test_a_model_comes_back_as_it_was(archive, home, invoke, tmp_path, kind, command):
    """By either command, packed or unpacked, without a network; its card with it."""
    if kind == "folder":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(tmp_path / "unpacked")
        archive = tmp_path / "unpacked"
    assert invoke(*command, archive).stdout == f"{file_of(home)}\n"
    assert file_of(home).read_bytes() == BODY
    assert card_beside(file_of(home)).family == "yolox"
    assert invoke("verify", "mine").exit_code == 0


def test_what_the_catalogue_does_not_know_needs_consent(archive, home, invoke):
    """The model archive's own hashes prove nothing: whoever made it could write them. Accepted, its entry is the user's."""
    (home / "catalogue.toml").unlink()
    with pytest.raises(ConfigError, match=r"the catalogue here does not have it\); it requires --accept-unverified"):
        invoke("import-archive", archive)
    assert not file_of(home).exists()
    result = invoke("import-archive", archive, "--accept-unverified")
    assert "could not be checked" in result.stderr
    assert json.loads(invoke("show", "mine", "--json").stdout)["path"] == str(file_of(home))
    assert invoke("verify", "mine").exit_code == 0


def test_the_catalogues_hash_counts_not_the_archives(archive, home, invoke):
    """A model archive that is right in itself, with another file than the catalogue means."""
    document, other = manifest(archive), content(50_000, seed=1)
    document["models"][0]["sha256"] = hashlib.sha256(other).hexdigest()
    changed(archive, **{"manifest.json": json.dumps(document), "models/mine/mine.onnx": other})
    with pytest.raises(UnavailableError, match="the catalogue says"):
        invoke("import-archive", archive, "--accept-unverified")
    assert not file_of(home).exists()


def test_a_file_that_is_not_the_manifests_is_refused(archive, home, invoke):
    """One that was swapped, is missing, or unpacks to more than the manifest says."""
    changed(archive, **{"models/mine/mine.onnx": content(50_000, seed=1)})
    with pytest.raises(UnavailableError, match="not kept"):
        invoke("import-archive", archive)
    changed(archive, **{"models/mine/mine.onnx": b"0" * 50_000_000})
    with pytest.raises(UnavailableError, match="larger than the 50000 bytes"):
        invoke("import-archive", archive)
    changed(archive, **{"models/mine/mine.onnx": None})
    with pytest.raises(UnavailableError, match="which its manifest promises"):
        invoke("import-archive", archive)
    assert not file_of(home).exists()
    assert not list((home / "models").rglob("*part*"))


def test_a_name_that_leads_elsewhere_is_refused(archive, home, invoke, tmp_path):
    """Entry and file name become a path: neither may leave the cache."""
    original = json.dumps(manifest(archive))
    for field, name in product(("name", "file"), ("../../escaped", "/escaped", "..", ".hidden", "a/b", "")):
        with table_row(field, name):
            document = json.loads(original)
            document["models"][0]["entry"][field] = name
            changed(archive, **{"manifest.json": json.dumps(document), "models/../../escaped/mine.onnx": BODY})
            with pytest.raises(ConfigError, match=r"manifest\.json"):
                invoke("import-archive", archive, "--accept-unverified")
            assert not list(tmp_path.rglob("*escaped*"))
            assert not file_of(home).exists()


def test_a_link_in_an_unpacked_archive_is_not_followed_out(archive, home, invoke, tmp_path):
    """It would copy a file of ours into the cache."""
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(tmp_path / "unpacked")
    (tmp_path / "secret").write_bytes(BODY)
    inside = tmp_path / "unpacked" / "models" / "mine" / "mine.onnx"
    inside.unlink()
    inside.symlink_to(tmp_path / "secret")
    with pytest.raises(UnavailableError, match="promises"):
        invoke("import-archive", tmp_path / "unpacked")
    assert not file_of(home).exists()


def test_what_is_no_archive_is_reported(archive, invoke):
    """Empty, garbled, another kind of file, a copy that broke off in the middle."""
    for number, body in enumerate((b"", b"PK\x03\x04 garbled", b"<html>", archive.read_bytes()[:-1000])):
        archive.write_bytes(body)
        with table_row(number), pytest.raises(ConfigError, match="broken or not a model archive"):
            invoke("import-archive", archive)


def test_a_wrong_manifest_is_reported(archive, invoke):
    """Garbled, another format, a later version, an unknown key."""
    for text in ("", "{", "[]", '{"format": "other", "models": []}', '{"version": 2, "models": []}', '{"models": [], "x": 1}'):
        with table_row(text):
            changed(archive, **{"manifest.json": text})
            with pytest.raises(ConfigError, match=r"manifest\.json"):
                invoke("import-archive", archive)


def test_a_zip_without_manifest_and_an_absent_archive_are_reported(invoke, tmp_path):
    """What a model archive is, and how one is made."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr("readme", "x")
    with pytest.raises(ConfigError, match=r"is not a model archive: it has no manifest\.json"):
        invoke("import-archive", tmp_path / "x.zip")
    with pytest.raises(ConfigError, match="No such file"):
        invoke("import-archive", tmp_path / "absent.zip")


def test_a_name_that_the_archive_lacks_is_reported(archive, invoke):
    """The message lists the names that the model archive has."""
    with pytest.raises(ConfigError, match="has no other, but mine"):
        invoke("import-archive", archive, "other")


def test_only_what_is_here_and_unchanged_is_exported(home, invoke, archive, tmp_path):
    """Neither an absent model nor a changed one, and no half-written archive stays."""
    with pytest.raises(UnavailableError, match="models fetch mine"):
        invoke("export-archive", tmp_path / "again.zip", "mine")
    invoke("import-archive", archive)
    with file_of(home).open("ab") as file:
        file.write(b"x")
    with pytest.raises(ConfigError, match="it was changed"):
        invoke("export-archive", tmp_path / "again.zip", "mine")
    with pytest.raises(EdgemeterError):
        invoke("export-archive", tmp_path / "absent" / "again.zip", "mine")
    assert not list(tmp_path.glob("*again*"))


def test_an_archive_holds_nothing_of_this_machine(home, archive):
    """No path of the user's is in the manifest, and the file is ordinary."""
    assert str(home) not in json.dumps(manifest(archive))
    assert stat.S_ISREG(os.lstat(archive).st_mode)


def test_an_export_of_the_users_own_reaches_another_machine(home, invoke, tmp_path, monkeypatch):
    """`yolov8n`, which everybody makes himself: from his catalogue to a cache where only ours is known, and found there by its name."""
    body = content(10_000)
    (tmp_path / "yolov8n.onnx").write_bytes(body)
    entry = make_entry("yolov8n", None, body, form="own", file="yolov8n.onnx", path=str(tmp_path / "yolov8n.onnx"))
    write_catalogue(home / "catalogue.toml", entry)
    invoke("export-archive", tmp_path / "own.zip", "yolov8n")
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="accept-unverified"):
        invoke("import-archive", tmp_path / "own.zip")
    (path,) = invoke("import-archive", tmp_path / "own.zip", "--accept-unverified").stdout.split()
    assert Path(path).read_bytes() == body
    assert invoke("fetch", "yolov8n").stdout.split() == [path]
    assert invoke("verify", "yolov8n").exit_code == 0


@pytest.mark.slow
def test_a_garbled_archive_never_ends_in_a_traceback(archive, invoke, home):
    """Any byte of the zip's structure turned: refused in our words, or the file is right."""
    good = archive.read_bytes()
    places = [*range(0, 100, 7), *range(len(good) - 400, len(good), 11)]
    for position in places:
        archive.write_bytes(good[:position] + bytes([good[position] ^ 0xFF]) + good[position + 1 :])
        try:
            invoke("import-archive", archive, "--accept-unverified")
        except EdgemeterError as error:
            assert str(error)  # noqa: PT017 - whichever it is, it is ours
        else:
            assert file_of(home).read_bytes() == BODY
