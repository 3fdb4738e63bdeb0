"""`edgemeter models score`: what people and machines are told, and how bad input ends."""

import json
from pathlib import Path

import pytest

from tests.fixtures.command import edgemeter

ROOT = Path(__file__).resolve().parents[3]
SCENES = ROOT / "models" / "scenes"
needs_litert = pytest.mark.needs(module="ai_edge_litert")
FIGURES = "ap ap50 ap75 ap_small ap_medium ap_large ar_1 ar_10 ar_100 ar_small ar_medium ar_large"
KEYS = [*FIGURES.split(), "images", "per_class", "warnings"]


def run(*arguments):
    """Return how `edgemeter models score ARGUMENTS` ended."""
    return edgemeter("models", "score", *arguments)


def written(folder, name, document):
    """Return the path of a document."""
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@needs_litert
def test_json_has_the_names_that_others_script_against_and_people_get_a_table():
    """Figures, counts, classes, warnings; classes in the table when asked for."""
    model = ROOT / "models" / "shipped" / "edgemeter-shapes_int8.tflite"
    arguments = (model, "--data", SCENES / "images", "--annotations", SCENES / "annotations.json", "--subset", 24)
    scores = json.loads(run(*arguments, "--format", "json").stdout)
    assert set(KEYS) <= set(scores)
    assert (scores["images"], scores["low"] < scores["ap"] < scores["high"]) == (24, True)
    printed = run(*arguments, "--classes").stdout
    assert all(text in printed for text in ("AP50", *scores["per_class"]))


@needs_litert
def test_a_model_with_worthless_outputs_has_a_note_with_its_figure(tmp_path):
    """Pixels times 1e37 are infinite: the outputs are no numbers, and the AP of 0 is not left alone with its reader."""
    shipped = ROOT / "models" / "shipped" / "edgemeter-shapes_fp32.tflite"
    model = tmp_path / "shapes.tflite"
    model.write_bytes(shipped.read_bytes())
    card = shipped.with_name(shipped.name + ".toml").read_text()
    model.with_name(model.name + ".toml").write_text(card.replace("[input]\n", "[input]\nsd = [1e-37, 1e-37, 1e-37]\n"))
    arguments = (model, "--data", SCENES / "images", "--annotations", SCENES / "annotations.json")
    result = run(*arguments, "--format", "json")
    scores = json.loads(result.stdout)
    assert (scores["ap"], scores["verdict"]) == (0.0, "invalid")
    assert "not-finite" in {violation["rule"] for violation in scores["violations"]}
    in_words = run(*arguments)
    assert "invalid: the outputs for " in in_words.stderr
    assert (result.returncode, in_words.returncode) == (1, 1)


@needs_litert
def test_a_model_on_annotations_without_objects_has_no_accuracy(tmp_path):
    """`score` and `run`: no figure and the reason; `score` fails."""
    model = ROOT / "models" / "shipped" / "edgemeter-shapes_int8.tflite"
    truth = json.loads((SCENES / "annotations.json").read_text())
    empty = written(tmp_path, "empty.json", {**truth, "annotations": []})
    arguments = (model, "--data", SCENES / "images", "--annotations", empty, "--subset", 4)
    result = run(*arguments, "--format", "json")
    scores = json.loads(result.stdout)
    assert (result.returncode, scores["value"]) == (1, None)
    assert scores["reason"].startswith("the ground truth holds nothing to find")
    result = edgemeter("run", *arguments, "--mode", "rapid", "--repeats", "1", "--format", "json", cwd=tmp_path)
    (record,) = json.loads(result.stdout)["runs"]
    assert (record["accuracy"], record["reasons"]["accuracy"]) == (None, scores["reason"])
