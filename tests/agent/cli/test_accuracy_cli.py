"""`edgemeter accuracy`: what people and machines are told, and how bad input ends."""

import json
from pathlib import Path

import pytest

from tests.fixtures.command import edgemeter
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_truth

ROOT = Path(__file__).resolve().parents[3]
SCENES = ROOT / "models" / "scenes"
FIGURES = "ap ap50 ap75 ap_small ap_medium ap_large ar_1 ar_10 ar_100 ar_small ar_medium ar_large"
KEYS = [*FIGURES.split(), "images", "detections", "per_class", "warnings"]


def run(*arguments):
    """Return how `edgemeter accuracy ARGUMENTS` ended."""
    return edgemeter("accuracy", *arguments)


def written(folder, name, document):
    """Return the path of a document."""
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def perfect_detections(truth, *, score=0.9):
    """Return detections that are the truth itself."""
    keys = ("image_id", "category_id", "bbox")
    return [{**{key: annotation[key] for key in keys}, "score": score} for annotation in truth["annotations"]]


def scored(folder, truth, detections, returncode=0):
    """Return the document that `--json` prints."""
    paths = written(folder, "truth.json", truth), written(folder, "found.json", detections)
    result = run("--annotations", paths[0], "--predictions", paths[1], "--json")
    assert result.returncode == returncode, result.stderr
    return json.loads(result.stdout)


def test_json_has_the_names_that_others_script_against(tmp_path):
    """Figures, counts, classes, warnings; what has no object to find is null."""
    scores = scored(tmp_path, make_truth(), perfect_detections(make_truth()))
    assert set(KEYS) <= set(scores)
    assert (scores["ap"], scores["ap_large"], scores["images"], scores["detections"]) == (pytest.approx(1), None, 2, 4)
    assert scores["per_class"] == {"cat": pytest.approx(1), "dog": pytest.approx(1)}


def test_images_without_detections_count_and_are_reported(tmp_path):
    """Half of the objects found: recall ends at 1/2."""
    scores = scored(tmp_path, make_truth(), [d for d in perfect_detections(make_truth()) if d["image_id"] == 100])
    assert scores["ap"] == pytest.approx(51 / 101)
    assert scores["warnings"] == ["1 of 2 images have no detections; their objects count as missed"]


def crowded(count=60, **changes):
    """Return a truth of many small boxes, each in a place of its own in one photograph of 640 x 480."""
    boxes = [[10 + 60 * (k % 10), 20 + 70 * (k // 10), 40, 30] for k in range(count)]
    annotations = [
        {"id": k + 1, "image_id": 1, "category_id": 1, "bbox": box, "area": 1200, "iscrowd": 0, **changes} for k, box in enumerate(boxes)
    ]
    return {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 640, "height": 480}],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "cat"}],
    }


@pytest.mark.parametrize(
    ("written_as", "hint"),
    [
        (lambda x, y, w, h: [x + w / 2, y + h / 2, w, h], "as centre x, centre y, width, height the same boxes have AP 1.000"),
        (lambda x, y, w, h: [y, x, h, w], "as y, x, height, width the same boxes have AP 1.000"),
        (lambda x, y, w, h: [y, x, y + h, x + w], "as two corners, y1, x1, y2, x2 the same boxes have AP 1.000"),
        (lambda x, y, w, h: [x * 2, y * 2, w * 2, h * 2], "are the boxes in pixels of the photograph, not of the model's input"),
    ],
)
def test_an_ap_of_nothing_suggests_how_the_boxes_were_probably_meant(tmp_path, written_as, hint):
    """Boxes in another form overlap nothing: an AP near 0 that is not the model's is reported with the form that fits."""
    truth = crowded()
    scores = scored(tmp_path, truth, [{**d, "bbox": written_as(*d["bbox"])} for d in perfect_detections(truth)])
    assert scores["ap"] < 0.05
    assert any(hint in warning for warning in scores["warnings"])


def test_no_detections_are_an_ap_of_zero(tmp_path):
    """A model that finds nothing is not without a figure."""
    scores = scored(tmp_path, make_truth(), [])
    assert [scores[key] for key in ("ap", "ap50", "ar_100", "detections")] == [0, 0, 0, 0]


def test_without_anything_to_find_there_is_no_ap(tmp_path):
    """Null in every figure, status 1, and a reason: no objects, or crowds, which nobody has to find."""
    for truth, detections, why in (
        ({**make_truth(), "annotations": []}, perfect_detections(make_truth()), "no objects"),
        (crowded(iscrowd=1), [], "crowds only, which need not be detected"),
    ):
        scores = scored(tmp_path, truth, detections, returncode=1)
        assert {scores[key] for key in (*KEYS[:12], "value")} == {None}
        assert scores["reason"] == f"the annotations contain {why}, so there is no AP"
        result = run("--annotations", tmp_path / "truth.json", "--predictions", tmp_path / "found.json")
        assert (result.returncode, result.stderr.splitlines()[0]) == (1, f"no accuracy: {scores['reason']}")


def test_images_need_no_file_names_and_categories_no_order(tmp_path):
    """Only ids take part; ids may be anything up to 2^53."""
    truth = make_truth()
    truth["categories"].reverse()
    for image in truth["images"]:
        del image["file_name"]
    large = 2**53 - 1
    truth["images"][0]["id"] = large
    for annotation in truth["annotations"]:
        annotation["image_id"] = large if annotation["image_id"] == 100 else annotation["image_id"]
    assert scored(tmp_path, truth, perfect_detections(truth))["ap"] == pytest.approx(1)


def test_odd_boxes_are_warned_of_and_counted(tmp_path):
    """A negative width: an object not found, in words."""
    truth = make_truth(2, ("cat",))
    detections = perfect_detections(truth)[1:]
    truth["annotations"][0]["bbox"] = [20, 20, -16, 16]
    scores = scored(tmp_path, truth, detections)
    assert scores["ap"] == pytest.approx(51 / 101)
    assert "1 of 2 annotations have a box whose width or height is not above 0" in scores["warnings"][0]


def test_people_get_a_table(tmp_path):
    """On standard output, notes on standard error; classes when asked for."""
    paths = written(tmp_path, "truth.json", make_truth()), written(tmp_path, "found.json", perfect_detections(make_truth())[:2])
    result = run("--annotations", paths[0], "--predictions", paths[1])
    assert "AP50" in result.stdout
    assert "objects in the image" in result.stdout
    assert "dog" not in result.stdout
    assert result.stderr == "note: 1 of 2 images have no detections; their objects count as missed\n"
    assert "dog" in run("--annotations", paths[0], "--predictions", paths[1], "--classes").stdout


def test_wrong_usage_is_one_line_with_the_remedy():
    """No traceback, nothing on standard output, status 2."""
    for arguments, text in [
        ((), "give either --predictions FILE or --model FILE"),
        (("--predictions", "a"), "--annotations is missing"),
        (("--model", "b.onnx"), "--data is missing: what the score is made of, such as --data photos/"),
        (("--model", "b.onnx", "--data", "c", "--bounds", "never"), "--bounds has no effect with --model"),
        (("--predictions", "absent.json", "--annotations", "absent.json"), "cannot read the annotations 'absent.json'"),
    ]:
        with table_row(arguments):
            result = run(*arguments)
            assert (result.returncode, result.stdout) == (2, "")
            assert text in result.stderr
            assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_model_with_worthless_outputs_has_a_note_with_its_figure(tmp_path):
    """Pixels times 1e37 are infinite: the outputs are no numbers, and the AP of 0 is not left alone with its reader."""
    pytest.importorskip("ai_edge_litert")
    shipped = ROOT / "models" / "shipped" / "edgemeter-shapes_fp32.tflite"
    model = tmp_path / "shapes.tflite"
    model.write_bytes(shipped.read_bytes())
    card = shipped.with_name(shipped.name + ".toml").read_text()
    model.with_name(model.name + ".toml").write_text(card.replace("[input]\n", "[input]\nsd = [1e-37, 1e-37, 1e-37]\n"))
    arguments = ("--model", model, "--data", SCENES / "images", "--annotations", SCENES / "annotations.json")
    result = run(*arguments, "--json")
    scores = json.loads(result.stdout)
    assert (scores["ap"], scores["verdict"]) == (0.0, "invalid")
    assert any(reason.startswith("not-finite: the outputs for ") for reason in scores["reasons"])
    in_words = run(*arguments)
    assert "invalid: not-finite: " in in_words.stderr
    assert (result.returncode, in_words.returncode) == (1, 1)


@pytest.mark.slow
def test_a_model_on_annotations_without_objects_is_not_valid(tmp_path):
    """`accuracy` and `run`: no figure, the reason by name, and not the verdict `valid`."""
    pytest.importorskip("ai_edge_litert")
    model = ROOT / "models" / "shipped" / "edgemeter-shapes_int8.tflite"
    truth = json.loads((SCENES / "annotations.json").read_text())
    empty = written(tmp_path, "empty.json", {**truth, "annotations": []})
    arguments = ("--model", model, "--data", SCENES / "images", "--annotations", empty, "--subset", 4)
    result = run(*arguments, "--json")
    scores = json.loads(result.stdout)
    assert (result.returncode, scores["value"], scores["verdict"]) == (1, None, "suspect")
    assert scores["reason"].startswith("the ground truth holds nothing to find")
    assert scores["reasons"] == [f"nothing-to-find: {scores['reason']}"]
    result = edgemeter("run", *arguments, "--mode", "rapid", "--repeats", "1", "--json", cwd=tmp_path)
    (record,) = json.loads(result.stdout)["runs"]
    assert (record["accuracy"], record["accuracy_reason"]) == (None, scores["reason"])
    assert record["verdict"]["state"] != "valid"
    assert scores["reasons"][0] in record["verdict"]["reasons"]


@pytest.mark.realdata
def test_the_coco_apis_own_fixture_gives_its_published_figures(realdata):
    """AP 0.5045806987249628 to 1e-9 through the command, with the image that has no detections."""
    folder = realdata / "annotations" / "cocoapi_val2014_100"
    files = folder / "instances_val2014_100.json", folder / "instances_val2014_fakebbox100_results.json"
    scores = json.loads(run("--annotations", files[0], "--predictions", files[1], "--json").stdout)
    assert scores["ap"] == pytest.approx(0.5045806987249628, abs=1e-9)
    # Source: val2014_fake_eval_res.txt, type=bbox.
    printed = [0.505, 0.697, 0.573, 0.586, 0.519, 0.501, 0.387, 0.594, 0.595, 0.640, 0.566, 0.564]
    assert [round(scores[key], 3) for key in KEYS[:12]] == printed
    assert scores["low"] < scores["ap"] < scores["high"]
    assert scores["warnings"] == ["1 of 100 images have no detections; their objects count as missed"]


def of_videos(videos, frames=6, *, field="video_id"):
    """Return a truth of frames of videos, and detections that miss the objects of every third video."""
    truth = make_truth(images=videos * frames)
    for index, image in enumerate(truth["images"]):
        image |= {field: index // frames, "file_name": f"v{index // frames}_{index % frames:03}.png"}
    missed = {image["id"] for image in truth["images"] if image[field] % 3 == 0}
    # A stray box in each of the other frames, so that precision varies too.
    detections = [d for d in perfect_detections(truth) if d["image_id"] not in missed]
    return truth, detections


def test_frames_of_videos_are_bounded_by_video(tmp_path):
    """Annotations that name videos give bounds over these, several times as wide as those over frames that are taken as independent."""
    truth, detections = of_videos(24)
    paths = written(tmp_path, "truth.json", truth), written(tmp_path, "found.json", detections)
    options = ["--annotations", paths[0], "--predictions", paths[1]]
    scores, frames, prefixed = (
        json.loads(run(*options, "--json", *options_of_clusters).stdout)
        for options_of_clusters in ([], ["--cluster-by", "none"], ["--cluster-by", "prefix:_"])
    )
    assert scores["clusters"] == {"count": 24, "by": "video_id"}
    assert (frames["clusters"], prefixed["clusters"]) == (None, {"count": 24, "by": "prefix:_"})
    assert frames["interval"].endswith("; images taken as independent")
    assert scores["high"] - scores["low"] > 2 * (frames["high"] - frames["low"])
    assert (prefixed["low"], prefixed["high"]) == (scores["low"], scores["high"])
    assert "24 videos" in run(*options).stdout
    result = run(*options, "--cluster-by", "camera")
    assert result.returncode == 2
    assert "no field 'camera': give video_id, prefix:_ or none" in result.stderr


def test_four_videos_are_too_few_for_bounds(tmp_path):
    """However many frames they have: the reason comes with the remedy."""
    truth, detections = of_videos(4, 30, field="clip")
    scores = scored(tmp_path, truth, detections)
    assert (scores["low"], scores["clusters"]) == (None, {"count": 4, "by": "clip"})
    assert scores["interval_reason"] == (
        "4 clips, and bounds need 5: score images of more of them; if they are independent all the same, --cluster-by none"
    )
