"""`edgemeter accuracy`: what people and machines are told, and how bad input ends."""

import json
from pathlib import Path

import pytest

from tests.fixtures.command import edgemeter
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth

ROOT = Path(__file__).resolve().parents[3]
SCENES = ROOT / "models" / "scenes"
needs_litert = pytest.mark.needs(module="ai_edge_litert")
FIGURES = "ap ap50 ap75 ap_small ap_medium ap_large ar_1 ar_10 ar_100 ar_small ar_medium ar_large"
KEYS = [*FIGURES.split(), "images", "per_class", "warnings"]


def run(*arguments):
    return edgemeter("accuracy", *arguments)


def written(folder, name, document):
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@needs_litert
def test_json_has_the_names_that_others_script_against_and_people_get_a_table():
    """The table shows figures, counts and warnings, and the classes when asked for."""
    model = ROOT / "models" / "shipped" / "edgemeter-shapes_int8.tflite"
    arguments = (
        model,
        "--data",
        SCENES / "images",
        "--annotations",
        SCENES / "annotations.json",
        "--subset",
        24,
    )
    scores = json.loads(run(*arguments, "--format", "json").stdout)
    assert set(KEYS) <= set(scores)
    assert (scores["images"], scores["low"] < scores["ap"] < scores["high"]) == (24, True)
    printed = run(*arguments, "--classes").stdout
    assert all(text in printed for text in ("AP50", *scores["per_class"]))


@needs_litert
def test_a_model_with_worthless_outputs_has_a_note_with_its_figure(tmp_path):
    """A note tells the reader why the AP is 0: the outputs are not finite numbers.

    The model gets pixels times 1e37, which make them infinite.
    """
    shipped = ROOT / "models" / "shipped" / "edgemeter-shapes_fp32.tflite"
    model = tmp_path / "shapes.tflite"
    model.write_bytes(shipped.read_bytes())
    card = shipped.with_name(shipped.name + ".toml").read_text()
    model.with_name(model.name + ".toml").write_text(
        card.replace("[input]\n", "[input]\nsd = [1e-37, 1e-37, 1e-37]\n")
    )
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
    """`accuracy` and `run` state a reason and no figure, and `accuracy` fails."""
    model = ROOT / "models" / "shipped" / "edgemeter-shapes_int8.tflite"
    truth = json.loads((SCENES / "annotations.json").read_text())
    empty = written(tmp_path, "empty.json", {**truth, "annotations": []})
    arguments = (model, "--data", SCENES / "images", "--annotations", empty, "--subset", 4)
    result = run(*arguments, "--format", "json")
    scores = json.loads(result.stdout)
    assert (result.returncode, scores["value"]) == (1, None)
    assert scores["reason"].startswith("the ground truth has nothing to find")
    result = edgemeter(
        "run", *arguments, "--mode", "rapid", "--repeats", "1", "--format", "json", cwd=tmp_path
    )
    (record,) = json.loads(result.stdout)["runs"]
    assert (record["accuracy"], record["reasons"]["accuracy"]) == (None, scores["reason"])


def test_predictions_of_others_get_the_same_table_and_json(tmp_path):
    """Predictions are scored without a model and its photographs.

    A lenient reading is a warning, and annotations with nothing to find end with status 1.
    """
    truth = make_truth(24)
    predictions = [
        {
            "image_id": f"photo_{a['image_id'] - 100}",
            "category_id": a["category_id"],
            "bbox": a["bbox"],
            "score": 0.9,
        }
        for a in truth["annotations"]
    ]
    arguments = ("--predictions", written(tmp_path, "p.json", predictions), "--annotations")
    annotations = written(tmp_path, "truth.json", truth)
    result = run(*arguments, annotations, "--format", "json")
    scores = json.loads(result.stdout)
    assert set(KEYS) <= set(scores)
    assert (result.returncode, scores["images"], scores["ap"], scores["verdict"]) == (
        0,
        24,
        pytest.approx(1, abs=1e-12),
        "ok",
    )
    assert [warning.rsplit("'", 1)[1] for warning in scores["warnings"]] == [
        " are matched by stems of file names (all 24)"
    ]
    printed = run(*arguments, annotations, "--classes")
    assert all(text in printed.stdout for text in ("24 images", "AP50", "cat", "dog"))
    assert "stems of file names" in printed.stderr
    empty = run(
        *arguments,
        written(tmp_path, "empty.json", {**truth, "annotations": []}),
        "--format",
        "json",
    )
    assert (empty.returncode, json.loads(empty.stdout)["value"]) == (1, None)
    nothing = run(
        "--predictions",
        written(tmp_path, "none.json", []),
        "--annotations",
        annotations,
        "--format",
        "json",
    )
    assert (
        nothing.returncode,
        json.loads(nothing.stdout)["ap"],
        json.loads(nothing.stdout)["verdict"],
    ) == (1, 0.0, "invalid")


def test_a_model_and_predictions_are_not_scored_together(tmp_path):
    """Each of them needs annotations, and a file of predictions has no runtime."""
    for arguments in [
        (),
        ("m.onnx",),
        ("m.onnx", "--predictions", "p.json", "-a", "a.json"),
        ("--predictions", "p.json"),
    ]:
        with table_row(*arguments):
            result = edgemeter("accuracy", *arguments, cwd=tmp_path)
            assert result.returncode == 2
            assert "--annotations" in result.stderr
