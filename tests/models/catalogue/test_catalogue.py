"""The models that ship: each file is what its card says, and scores what its card says."""

import msgspec
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.base.progress import no_progress
from edgemeter.agent.contract import model_card, model_file
from edgemeter.agent.contract.suite import runtime_for
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.models.catalogue import shipped_models
from edgemeter.models.convert import drawn_scenes
from edgemeter.models.convert.parity import image_inputs, run_on
from tests.fixtures.rows import table_row
from tests.shipped_models import build

MODELS = shipped_models.shipped_models()
MODULES = {"tflite": "ai_edge_litert", "onnx": "onnxruntime", "torchscript": "torch"}


def by_file(models):
    """Return pytest parameters, one per model; those that need PyTorch are marked."""
    return [pytest.param(m, id=m.path.name, marks=[pytest.mark.torch] if m.format == "torchscript" else []) for m in models]


@pytest.fixture(scope="module")
def scenes():
    """Return the shipped scenes as a data set."""
    return open_folder(drawn_scenes.SCENES_FOLDER / drawn_scenes.IMAGES, drawn_scenes.SCENES_FOLDER / drawn_scenes.ANNOTATIONS)


def test_one_model_ships_in_every_format_and_precision():
    """Five files of one name."""
    assert {m.about.name for m in MODELS} == {"edgemeter-shapes"}
    kinds = {(m.format, m.about.precision) for m in MODELS}
    assert kinds == {("onnx", "fp32"), ("onnx", "int8"), ("tflite", "fp32"), ("tflite", "int8"), ("torchscript", "fp32")}
    assert len(MODELS) == 5


@pytest.mark.slow
@pytest.mark.parametrize("model", by_file(MODELS))
def test_a_shipped_file_scores_what_its_card_states(model, scenes):
    """The very file, run by its runtime on the shipped scenes, within 0.002."""
    pytest.importorskip(MODULES[model.format])
    accuracy = run_on(model.path, runtime_for(model.path), image_inputs(model.about, scenes), lambda *_: None, no_progress).accuracy
    assert accuracy.metric == model.about.accuracy["metric"] == "coco_ap"
    assert accuracy.value == pytest.approx(model.about.accuracy["value"], abs=0.002)
    assert accuracy.images == model.about.accuracy["images"]
    assert accuracy.dataset_sha256 == model.about.accuracy["dataset_sha256"]


def test_a_shipped_file_is_the_one_its_card_describes():
    """Its hash, at most 1 MB, and how it was made."""
    for model in MODELS:
        with table_row(model.path.name):
            assert model_file.sha256(model.path) == model.about.sha256
            assert model.size_bytes <= 1_000_000
            assert {"by", "seed", "steps", "threads", "parameters", "with"} <= model.about.made.keys()
            assert ("calibration_scenes" in model.about.made) == (model.about.precision == "int8")
            assert (model.about.task, model.about.family, model.about.licence) == ("detection", "edgemeter", "Apache-2.0")


def test_the_network_finds_enough_and_quantisation_costs_little():
    """AP at least 0.60 in fp32, leaving room above; every int8 within 0.03 of it."""
    scores = {(m.format, m.about.precision): m.about.accuracy["value"] for m in MODELS}
    for (kind, precision), score in scores.items():
        if precision == "fp32":
            assert 0.60 <= score <= 0.90, kind
        else:
            assert abs(score - scores[kind, "fp32"]) <= 0.03, kind
    build.check_drift(sorted(MODELS, key=lambda m: m.format != "torchscript"))


def test_a_card_is_read_back_as_it_was_written(tmp_path):
    """Text and card agree both ways."""
    for model in MODELS:
        with table_row(model.path.name):
            text = shipped_models.card_text(model.about)
            (tmp_path / "card.toml").write_text(text, encoding="utf-8")
            assert model_card.read_card(tmp_path / "card.toml") == model.about
            assert text == model_card.card_path(model.path).read_text(encoding="utf-8")


def test_any_character_of_a_card_is_read_back(tmp_path):
    """DEL too, which TOML wants escaped."""
    for text in ("a\x7fb", "tab\there", 'quote"', "back\\slash", "line\nbreak", "\u00e9\U0001f600"):
        with table_row(text):
            about = msgspec.structs.replace(MODELS[0].about, licence=text, made={"note": text})
            (tmp_path / "card.toml").write_text(shipped_models.card_text(about), encoding="utf-8")
            assert model_card.read_card(tmp_path / "card.toml") == about


def test_integer_models_take_and_give_integers():
    """The int8 LiteRT file has no float at either end; each output has a scale of its own."""
    pytest.importorskip("ai_edge_litert")
    runtime = runtimes.create("litert")
    loaded = runtime.load(shipped_models.find_model("edgemeter-shapes_int8.tflite").path, runtimes.Options())
    runtime.close()
    assert {info.dtype for info in (*loaded.inputs, *loaded.outputs)} == {"int8"}
    boxes, scores = (info.scale for info in loaded.outputs)
    assert boxes > 2 * scores > 0


def test_a_model_that_is_not_there_is_named_with_those_that_are():
    """Neither a path nor a shipped name."""
    with pytest.raises(ConfigError, match=r"absent\.onnx.*edgemeter-shapes_fp32\.onnx"):
        shipped_models.find_model("absent.onnx")


def test_a_file_that_scores_otherwise_than_the_first_is_refused():
    """Drift beyond what the precision explains ends a build."""
    first, *further = sorted(MODELS, key=lambda m: m.format != "torchscript")
    worse = shipped_models.ModelFile(further[0].path, card_with_score(further[0].about, first.about.accuracy["value"] - 0.05))
    with pytest.raises(MeasurementError, match=further[0].path.name):
        build.check_drift([first, worse])


def card_with_score(about, score):
    """Return the card with another AP."""
    return msgspec.structs.replace(about, accuracy={**about.accuracy, "value": score})
