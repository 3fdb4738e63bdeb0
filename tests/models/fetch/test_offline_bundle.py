"""Bundles for machines without a network: there and back, and what a bad one may not do."""

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
def bundle(server, home, invoke, tmp_path):
    """Return a bundle of one model whose entry is in the catalogue here; the model itself is gone."""
    write_catalogue(home / "catalogue.toml", make_entry("mine", server.put("/mine.onnx", BODY), BODY))
    invoke("fetch", "mine")
    invoke("export-bundle", tmp_path / "models.zip", "mine")
    invoke("cache", "clear")
    server.resources.clear()
    return tmp_path / "models.zip"


def file_of(home):
    """Return where the model lies once it is imported."""
    return home / "models" / "mine" / "mine.onnx"


def changed(bundle, **members):
    """Write the bundle again with other contents for some members; None leaves one out."""
    with zipfile.ZipFile(bundle) as archive:
        there = {name: archive.read(name) for name in archive.namelist()} | {
            name.replace("__", "/"): body for name, body in members.items()
        }
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in there.items():
            if body is not None:
                archive.writestr(name, body)
    return bundle


def manifest(bundle):
    """Return the manifest as a document."""
    with zipfile.ZipFile(bundle) as archive:
        return json.loads(archive.read("manifest.json"))


@pytest.mark.parametrize("kind", ["zip", "folder"])
@pytest.mark.parametrize("command", [("import-bundle",), ("fetch", "mine", "--offline-bundle")])
def test_a_model_comes_back_as_it_was(bundle, home, invoke, tmp_path, kind, command):
    """By either command, packed or unpacked, without a network; its card with it."""
    if kind == "folder":
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(tmp_path / "unpacked")
        bundle = tmp_path / "unpacked"
    assert invoke(*command, bundle).stdout == f"{file_of(home)}\n"
    assert file_of(home).read_bytes() == BODY
    assert card_beside(file_of(home)).family == "yolox"
    assert invoke("verify", "mine").exit_code == 0


def test_what_the_catalogue_does_not_know_needs_consent(bundle, home, invoke):
    """The bundle's own hashes prove nothing: whoever made it could write them. Accepted, its entry is the user's."""
    (home / "catalogue.toml").unlink()
    with pytest.raises(ConfigError, match=r"the catalogue here does not have it\); it requires --accept-unverified"):
        invoke("import-bundle", bundle)
    assert not file_of(home).exists()
    result = invoke("import-bundle", bundle, "--accept-unverified")
    assert "could not be checked" in result.stderr
    assert json.loads(invoke("show", "mine", "--json").stdout)["path"] == str(file_of(home))
    assert invoke("verify", "mine").exit_code == 0


def test_the_catalogues_hash_counts_not_the_bundles(bundle, home, invoke):
    """A bundle that is right in itself, with another file than the catalogue means."""
    document, other = manifest(bundle), content(50_000, seed=1)
    document["models"][0]["sha256"] = hashlib.sha256(other).hexdigest()
    changed(bundle, **{"manifest.json": json.dumps(document), "models/mine/mine.onnx": other})
    with pytest.raises(UnavailableError, match="the catalogue says"):
        invoke("import-bundle", bundle, "--accept-unverified")
    assert not file_of(home).exists()


def test_a_file_that_is_not_the_manifests_is_refused(bundle, home, invoke):
    """One that was swapped, is missing, or unpacks to more than the manifest says."""
    changed(bundle, **{"models/mine/mine.onnx": content(50_000, seed=1)})
    with pytest.raises(UnavailableError, match="not kept"):
        invoke("import-bundle", bundle)
    changed(bundle, **{"models/mine/mine.onnx": b"0" * 50_000_000})
    with pytest.raises(UnavailableError, match="larger than the 50000 bytes"):
        invoke("import-bundle", bundle)
    changed(bundle, **{"models/mine/mine.onnx": None})
    with pytest.raises(UnavailableError, match="which its manifest promises"):
        invoke("import-bundle", bundle)
    assert not file_of(home).exists()
    assert not list((home / "models").rglob("*part*"))


def test_a_name_that_leads_elsewhere_is_refused(bundle, home, invoke, tmp_path):
    """Entry and file name become a path: neither may leave the cache."""
    original = json.dumps(manifest(bundle))
    for field, name in product(("name", "file"), ("../../escaped", "/escaped", "..", ".hidden", "a/b", "")):
        with table_row(field, name):
            document = json.loads(original)
            document["models"][0]["entry"][field] = name
            changed(bundle, **{"manifest.json": json.dumps(document), "models/../../escaped/mine.onnx": BODY})
            with pytest.raises(ConfigError, match=r"manifest\.json"):
                invoke("import-bundle", bundle, "--accept-unverified")
            assert not list(tmp_path.rglob("*escaped*"))
            assert not file_of(home).exists()


def test_a_link_in_an_unpacked_bundle_is_not_followed_out(bundle, home, invoke, tmp_path):
    """It would copy a file of ours into the cache."""
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "unpacked")
    (tmp_path / "secret").write_bytes(BODY)
    inside = tmp_path / "unpacked" / "models" / "mine" / "mine.onnx"
    inside.unlink()
    inside.symlink_to(tmp_path / "secret")
    with pytest.raises(UnavailableError, match="promises"):
        invoke("import-bundle", tmp_path / "unpacked")
    assert not file_of(home).exists()


def test_what_is_no_bundle_is_reported(invoke, tmp_path):
    """Empty, garbled, another kind of file."""
    for content_of in (b"", b"PK\x03\x04 garbled", b"<html>"):
        with table_row(content_of):
            (tmp_path / "x.zip").write_bytes(content_of)
            with pytest.raises(ConfigError, match="broken or not a bundle"):
                invoke("import-bundle", tmp_path / "x.zip")


def test_a_truncated_bundle_is_reported(bundle, invoke):
    """A copy that broke off in the middle is refused, and not unpacked in part."""
    bundle.write_bytes(bundle.read_bytes()[:-1000])
    with pytest.raises(ConfigError, match="broken or not a bundle"):
        invoke("import-bundle", bundle)


def test_a_wrong_manifest_is_reported(bundle, invoke):
    """Garbled, another format, a later version, an unknown key."""
    for text in ("", "{", "[]", '{"format": "other", "models": []}', '{"version": 2, "models": []}', '{"models": [], "x": 1}'):
        with table_row(text):
            changed(bundle, **{"manifest.json": text})
            with pytest.raises(ConfigError, match=r"manifest\.json"):
                invoke("import-bundle", bundle)


def test_a_zip_without_manifest_and_an_absent_bundle_are_reported(invoke, tmp_path):
    """What a bundle is, and how one is made."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("readme", "x")
    with pytest.raises(ConfigError, match=r"is not a bundle of models: it has no manifest\.json"):
        invoke("import-bundle", tmp_path / "x.zip")
    with pytest.raises(ConfigError, match="No such file"):
        invoke("import-bundle", tmp_path / "absent.zip")


def test_a_name_that_the_bundle_lacks_is_reported(bundle, invoke):
    """The message lists the names that the bundle has."""
    with pytest.raises(ConfigError, match="has no other, but mine"):
        invoke("import-bundle", bundle, "other")


def test_only_what_is_here_and_unchanged_is_exported(home, invoke, bundle, tmp_path):
    """Neither an absent model nor a changed one, and no half-written bundle stays."""
    with pytest.raises(UnavailableError, match="models fetch mine"):
        invoke("export-bundle", tmp_path / "again.zip", "mine")
    invoke("import-bundle", bundle)
    with file_of(home).open("ab") as file:
        file.write(b"x")
    with pytest.raises(ConfigError, match="it was changed"):
        invoke("export-bundle", tmp_path / "again.zip", "mine")
    with pytest.raises(EdgemeterError):
        invoke("export-bundle", tmp_path / "absent" / "again.zip", "mine")
    assert not list(tmp_path.glob("*again*"))


def test_a_bundle_holds_nothing_of_this_machine(home, bundle):
    """No path of the user's is in the manifest, and the file is ordinary."""
    assert str(home) not in json.dumps(manifest(bundle))
    assert stat.S_ISREG(os.lstat(bundle).st_mode)


def test_an_export_of_the_users_own_reaches_another_machine(home, invoke, tmp_path, monkeypatch):
    """`yolov8n`, which everybody makes himself: from his catalogue to a cache where only ours is known, and found there by its name."""
    body = content(10_000)
    (tmp_path / "yolov8n.onnx").write_bytes(body)
    entry = make_entry("yolov8n", None, body, form="own", file="yolov8n.onnx", path=str(tmp_path / "yolov8n.onnx"))
    write_catalogue(home / "catalogue.toml", entry)
    invoke("export-bundle", tmp_path / "own.zip", "yolov8n")
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="accept-unverified"):
        invoke("import-bundle", tmp_path / "own.zip")
    (path,) = invoke("import-bundle", tmp_path / "own.zip", "--accept-unverified").stdout.split()
    assert Path(path).read_bytes() == body
    assert invoke("fetch", "yolov8n").stdout.split() == [path]
    assert invoke("verify", "yolov8n").exit_code == 0


@pytest.mark.slow
def test_a_garbled_bundle_never_ends_in_a_traceback(bundle, invoke, home):
    """Any byte of the zip's structure turned: refused in our words, or the file is right."""
    good = bundle.read_bytes()
    places = [*range(0, 100, 7), *range(len(good) - 400, len(good), 11)]
    for place in places:
        bundle.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            invoke("import-bundle", bundle, "--accept-unverified")
        except EdgemeterError as error:
            assert str(error)  # noqa: PT017 - whichever it is, it is ours
        else:
            assert file_of(home).read_bytes() == BODY
