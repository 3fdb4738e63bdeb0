"""`edgemeter models`: list, show, and what is said when something is missing."""

import json
import re
import shutil

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_card
from edgemeter.models.catalogue import catalogue, shipped_models
from edgemeter.models.catalogue.catalogue import CatalogueEntry
from edgemeter.models.cli.main import models
from edgemeter.models.fetch import local_files
from tests.fixtures.rows import table_row


def copied_model(folder):
    """Return the first shipped model, copied to the folder with its card."""
    model = shipped_models.shipped_models()[0]
    for path in (model.path, model_card.card_path(model.path)):
        shutil.copy(path, folder)
    return model


def test_the_list_names_every_file_within_80_columns():
    """Each file has one line of at most 80 columns, with its AP and the start of its hash."""
    printed = (
        CliRunner()
        .invoke(
            models,
            ["list"],
            env={"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"},
            catch_exceptions=False,
        )
        .output
    )
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines()
    for model in shipped_models.shipped_models():
        (line,) = [line for line in lines if line.startswith(model.path.name)]
        assert f"{model.about.accuracy['value']:.3f}" in line
        assert model.about.sha256[:8] in line
    assert max(map(len, lines)) <= 80


def test_the_list_says_licence_and_what_is_unverified(invoke):
    """The list says each licence, and `unverified` where we did not check the hash.

    Our own score has the number of images, a published one has a tilde.
    """
    lines = {line.partition(" ")[0]: line for line in invoke("list").output.splitlines()}
    assert "0.933 top-1 (60)" in lines["mobilenet-v2"]
    assert "~0.373 AP" in lines["yolov8n"]
    for entry in catalogue.read_catalogue(catalogue.CATALOGUE_FILE).entry:
        with table_row(entry.name):
            assert lines[entry.name].split()[1:3] == [
                entry.licence,
                entry.sha256[:8] if entry.sha256 else "unverified",
            ]
            assert lines[entry.name].endswith("fetch" if entry.address else "export")


def test_the_list_is_json_for_machines(invoke):
    """The JSON has the same models with exact figures, and every catalogue entry.

    An entry has its licence, status and hash.
    """
    listed = json.loads(invoke("list", "--format", "json").output)
    rows = listed["models"]
    assert [row["sha256"] for row in rows] == [
        model.about.sha256 for model in shipped_models.shipped_models()
    ]
    assert all(row["accuracy"]["metric"] == "coco_ap" for row in rows)
    for row in listed["catalogue"]:
        assert row.pop("status") == ("verified" if row["sha256"] else "unverified")
        assert msgspec.convert(row, CatalogueEntry, strict=False) == catalogue.find_entry(
            row["name"]
        )


def test_show_prints_the_card_or_the_entry_of_the_catalogue(invoke):
    """`show` prints a model's card or a catalogue entry, as text or as JSON.

    A model is named by its shipped name or by its path; the text of an entry is TOML that reads
    back.
    """
    model = shipped_models.shipped_models()[0]
    text = model_card.card_path(model.path).read_text(encoding="utf-8")
    assert invoke("show", model.path.name).output == invoke("show", str(model.path)).output == text
    assert (
        json.loads(invoke("show", model.path.name, "--format", "json").output)["card"]["sha256"]
        == model.about.sha256
    )
    entry = msgspec.toml.decode(invoke("show", "yolox-nano").output)
    assert msgspec.convert(entry, CatalogueEntry) == catalogue.find_entry("yolox-nano")
    assert json.loads(invoke("show", "yolox-nano", "--format", "json").output)["path"] is None


def test_show_refuses_what_is_no_model_with_its_card(tmp_path, invoke):
    """A file longer than its card says, one without a card, and an unknown name are refused."""
    changed = tmp_path / copied_model(tmp_path).path.name
    changed.write_bytes(changed.read_bytes() + b"\0")
    (tmp_path / "own.onnx").write_bytes(b"x")
    for name, message in (
        (changed, f"{changed.name}.*sha256"),
        (tmp_path / "own.onnx", r"own\.onnx\.toml"),
        ("absent", "models list"),
    ):
        with table_row(name), pytest.raises(ConfigError, match=message):
            invoke("show", name)
    with pytest.raises(ConfigError, match="'absent'"):
        invoke("verify", "absent")


def test_what_ships_is_verified(monkeypatch, tmp_path, invoke):
    """Each of the five shipped files has its card's hash, and a changed one fails the command."""
    rows = json.loads(invoke("verify", "--format", "json").output)["files"]
    assert [row["state"] for row in rows] == ["ok"] * 5
    assert invoke("fetch", "edgemeter-shapes_int8.tflite").exit_code == 0
    model = copied_model(tmp_path)
    (tmp_path / model.path.name).write_bytes(b"changed")
    monkeypatch.setattr(
        local_files,
        "shipped_models",
        lambda: [shipped_models.find_model(tmp_path / model.path.name)],
    )
    result = invoke("verify", model.path.name)
    assert (result.exit_code, model.about.sha256 in result.stderr) == (1, True)
