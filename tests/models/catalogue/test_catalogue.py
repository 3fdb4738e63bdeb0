"""The models that ship: each file is what its card says, and scores what its card says."""

from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base import toml
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.progress import no_progress
from edgemeter.agent.contract import model_card, model_file, model_formats
from edgemeter.agent.contract.model_card import TensorInput
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.recognition import recognise
from edgemeter.agent.vision.decoders import DECODERS
from edgemeter.models.catalogue import catalogue, shipped_models
from edgemeter.models.catalogue.catalogue import GENERATION
from edgemeter.models.convert.parity import image_inputs, score
from tests.fixtures.catalogue_factory import make_entry, write_catalogue
from tests.fixtures.rows import table_row

MODELS = shipped_models.shipped_models()


def test_one_model_ships_in_every_format_and_precision_as_its_card_describes():
    """Each of the five shipped files of one model has its card's hash and at most 1 MB.

    The card says how the file was made. AP is at least 0.60 in fp32, and every int8 file is within
    0.03 of it.
    """
    assert {model.about.name for model in MODELS} == {"edgemeter-shapes"}
    scores = {
        (model.path.suffix[1:], model.about.precision): model.about.accuracy["value"]
        for model in MODELS
    }
    assert set(scores) == {
        ("onnx", "fp32"),
        ("onnx", "int8"),
        ("tflite", "fp32"),
        ("tflite", "int8"),
        ("torchscript", "fp32"),
    }
    for model in MODELS:
        with table_row(model.path.name):
            assert model_file.sha256(model.path) == model.about.sha256
            assert model.path.stat().st_size <= 1_000_000
            assert {
                "by",
                "seed",
                "steps",
                "threads",
                "parameters",
                "with",
            } <= model.about.made.keys()
            assert ("calibration_scenes" in model.about.made) == (model.about.precision == "int8")
            assert (model.about.task, model.about.family, model.about.licence) == (
                "detection",
                "edgemeter",
                "Apache-2.0",
            )
            score = scores[model.path.suffix[1:], model.about.precision]
            assert 0.57 <= score <= 0.90
            assert abs(score - scores[model.path.suffix[1:], "fp32"]) <= 0.03


@pytest.mark.torch
def test_a_shipped_file_scores_what_its_card_states():
    """A shipped file scores its card's AP to within 0.002.

    The very file is run by its runtime on the shipped scenes. The int8 LiteRT file has no float at
    either end.
    """
    scenes = open_folder(
        shipped_models.SCENES / "images", shipped_models.SCENES / "annotations.json"
    )
    for model in MODELS:
        with table_row(model.path.name):
            card = model.about.accuracy
            inputs = image_inputs(model.about, scenes)
            accuracy, _ = score(model.path, runtime_for(model.path), inputs, no_progress)
            assert accuracy.metric == card["metric"] == "coco_ap"
            assert accuracy.value == pytest.approx(card["value"], abs=0.002)
            assert (accuracy.images, accuracy.dataset_sha256) == (
                card["images"],
                card["dataset_sha256"],
            )
    runtime = runtimes.create("litert")
    loaded = runtime.load(
        shipped_models.find_model("edgemeter-shapes_int8.tflite").path, runtimes.Options()
    )
    runtime.close()
    assert {info.dtype for info in (*loaded.inputs, *loaded.outputs)} == {"int8"}


def test_a_card_is_read_back_as_it_was_written(tmp_path):
    """A written card reads back as an equal card, and its text as the same text."""
    for model in MODELS:
        with table_row(model.path.name):
            text = shipped_models.card_text(model.about)
            (tmp_path / "card.toml").write_text(text, encoding="utf-8")
            assert model_card.read_card(tmp_path / "card.toml") == model.about
            assert text == model_card.card_path(model.path).read_text(encoding="utf-8")


EVERY = catalogue.read_catalogue(catalogue.CATALOGUE_FILE).entry
BY_NAME = {entry.name: entry for entry in EVERY}


def test_every_entry_can_be_acted_on():
    """An entry names a decoder, an address or a way to make the file, and the licence.

    The card of a fetched file fits it.
    """
    for entry in EVERY:
        with table_row(entry.name):
            assert entry.licence in {"Apache-2.0", "AGPL-3.0", "MIT", "Llama-3.2", "Gemma"}
            assert ("yolo export" in (entry.how or "")) == (entry.licence == "AGPL-3.0")
            assert (entry.sha256 is None) == (entry.size_bytes is None)
            assert entry.address or entry.source
            assert not entry.address or entry.address.startswith("https://")
            assert entry.task == GENERATION or entry.family in {
                *DECODERS,
                "classifier",
                "autoencoder",
            }
            assert model_formats.runtime_for(Path(entry.file)) in {*runtimes.RUNTIMES, "llama"}
            if entry.input is None:
                with pytest.raises(ConfigError, match="there is no card"):
                    catalogue.card_of(entry, "0" * 64)
                continue
            about = catalogue.card_of(entry, "0" * 64)
            assert about.output.classes == (len(about.output.labels) or entry.output.classes)
            assert about.output.label_offset == (-1 if entry.output.classes == 1001 else 0)
            assert (about.name, about.task, about.input) == (entry.model, entry.task, entry.input)


def test_label_maps_agree_with_each_other():
    """The 80 labels of COCO are its 90 without ids 12, 26, 29, 30, 45, 66, 68, 69, 71 and 83."""
    maps = catalogue.label_maps()
    wide = maps["coco-90"]
    assert tuple(label for label in wide if label) == maps["coco-80"]
    assert [index + 1 for index, label in enumerate(wide) if not label] == [
        12,
        26,
        29,
        30,
        45,
        66,
        68,
        69,
        71,
        83,
    ]
    assert (len(wide), len(set(maps["coco-80"]))) == (90, 80)


@pytest.mark.realdata
def test_an_entry_states_what_its_file_states(realdata):
    """An entry agrees with the real file, as recognised by its real runtime.

    Compared are hash and size, input, normalisation, decoder and classes.
    """
    for entry in EVERY:
        if entry.sha256:
            path = (
                realdata
                / ("mlperf_tiny" if entry.name.startswith("mlperf-tiny") else "models")
                / entry.file
            )
            assert model_file.sha256(path) == entry.sha256, entry.name
            assert path.stat().st_size == entry.size_bytes, entry.name
    for name in ("ssd-mobilenet-v1", "efficientdet-lite0", "mobilenet-v2", "yolox-nano"):
        with table_row(name):
            entry = BY_NAME[name]
            path = realdata / "models" / entry.file
            runtime = runtimes.create(model_formats.runtime_for(path))
            loaded = runtime.load(path, runtimes.Options())
            runtime.close()
            card, _ = recognise.recognise(path, loaded)
            assert entry.input == card.input
            assert (entry.task, entry.family, entry.precision) == (
                card.task,
                card.family,
                card.precision,
            )
            for field in ("classes", "nms_iou", "label_offset"):
                assert getattr(entry.output, field) == getattr(card.output, field), field


def test_the_users_entries_come_before_ours(home):
    """A user's entry replaces ours of the same name, and one of another name is added.

    Two entries of one name in a file are an error.
    """
    write_catalogue(
        home / "catalogue.toml",
        make_entry("yolox-nano", "http://mine.example/m"),
        make_entry("mine", "http://mine.example/n"),
    )
    entries = catalogue.all_entries()
    assert entries["yolox-nano"].address == "http://mine.example/m"
    assert entries.keys() == {*BY_NAME, "mine"}
    twice = make_entry("mine", "http://mine.example/m")
    write_catalogue(home / "catalogue.toml", twice, twice)
    with pytest.raises(ConfigError, match="mine"):
        catalogue.all_entries()


def test_a_wrong_catalogue_is_reported_with_the_key(home):
    """A wrong value in an entry is reported with its key, and a file that is no TOML as such."""
    right = {**msgspec.to_builtins(make_entry("mine", "http://mine.example/m"))}
    path = home / "catalogue.toml"
    for change, why in (
        ({}, None),
        ({"colour": "red"}, "colour"),
        ({"address": None}, "needs one of address"),
        ({"how": "yolo export"}, "needs one of address"),
        ({"address": None, "how": "yolo export", "member": "m"}, "member needs the address"),
        ({"address": "file:///etc/passwd"}, "address"),
        ({"address": "https://user:word@host.example/m"}, "address"),
        ({"address": "https://ho st/m"}, "address"),
        ({"address": "https://host.example/m\n"}, "address"),
        ({"address": "https:///m"}, "address"),
        ({"input": None}, "needs an input"),
        ({"name": "../mine"}, "name"),
        ({"labels": "coco-81"}, "'coco-81'"),
    ):
        path.write_text(toml.toml_document({"entry": [right | change]}))
        with table_row(change), pytest.raises(ConfigError, match=why) if why else nullcontext():
            catalogue.all_entries()
    path.write_text("entry = [")
    with pytest.raises(ConfigError, match=r"catalogue\.toml"):
        catalogue.all_entries()


def test_a_catalogue_is_read_back_as_it_was_written(tmp_path):
    """All our entries survive writing and reading.

    So do odd characters and inputs that are no picture.
    """
    odd = make_entry("odd", "http://mine.example/m", source='"quotes" \\ back\n\ttab \x7f é 猫 🐈')
    words = {"classes": 2, "labels": ["yes", "no"]}
    heard = make_entry(
        "ears",
        "http://mine.example/n",
        input={"kind": "tensor"},
        task="keywords",
        labels=None,
        output=words,
    )
    path = write_catalogue(tmp_path / "catalogue.toml", *EVERY, odd, heard)
    assert catalogue.read_catalogue(path).entry == (*EVERY, odd, heard)
    assert catalogue.card_of(heard, "0" * 64).input == heard.input == TensorInput()
    assert catalogue.card_of(heard, "0" * 64).output.labels == ("yes", "no")
