"""Figures of objects equal those of pycocotools on scenes that test its rules.

The scenes are full of ties, crowds, cuts and limits.
"""

from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from pycocotools import mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from edgemeter.agent.datasets.coco import Rle
from edgemeter.agent.tasks.coco_matches import KEYPOINTS, MASKS, CocoAp
from edgemeter.agent.tasks.mask_edges import edges_of, edges_of_outline, text_of
from tests.fixtures.rows import table_row
from tests.fixtures.task_data import rows_of

CATEGORIES = (3, 9, 4)


def scene(seed, images=12, scale=1):
    """Return a document and detections: boxes on a grid, with scores in tenths.

    Overlaps are alike and areas lie at the limits; a class has up to 130 detections.
    """
    draw = np.random.default_rng(seed)
    ids = draw.permutation(images) * scale + 1
    sides = np.array([0, 8, 16, 32, 32, 64, 96])

    def boxes(count):
        return np.column_stack(
            [draw.integers(0, 12, (count, 2)) * 8, draw.choice(sides, (count, 2))]
        ).astype(float)

    annotations = []
    # The last image has no objects, the last class none but crowds.
    for image in ids[:-1].tolist():
        for box in boxes(int(draw.integers(0, 9))).tolist():
            category = int(draw.choice(CATEGORIES))
            is_crowd = category == CATEGORIES[-1] or draw.random() < 0.15
            area = float(draw.choice([box[2] * box[3], 32**2, 96**2]))
            about = {
                "id": len(annotations) + 1,
                "image_id": image,
                "category_id": category,
                "iscrowd": int(is_crowd),
            }
            annotations.append({**about, "bbox": box, "area": area})
    hits = np.array(
        [[a["image_id"], *a["bbox"], 0, a["category_id"]] for a in annotations for _ in range(3)]
    ).reshape(-1, 7)
    hits[:, 1:5] += draw.choice([0, 0, 4, 8], (len(hits), 4))
    crowded = np.column_stack(
        [np.full(130, ids[0]), boxes(130), np.zeros(130), np.full(130, CATEGORIES[0])]
    )
    strays = np.column_stack(
        [draw.choice(ids, 90), boxes(90), np.zeros(90), draw.choice(CATEGORIES, 90)]
    )
    rows = draw.permutation(np.concatenate([hits, crowded, strays]))
    rows[:, 5] = draw.integers(0, 11, len(rows)) / 10
    documents = {
        "images": [{"id": int(number)} for number in ids],
        "categories": [{"id": number} for number in CATEGORIES],
    }
    return {**documents, "annotations": annotations}, rows


def figures_of(scored, images):
    """Return the figures, and the AP of each class in the order of its id.

    A figure that does not exist is -1, as in pycocotools.
    """
    figures = scored.figures(images)
    by_category = [figures.by_category[number] for number in sorted(CATEGORIES)]
    return [
        [-1 if value is None else value for value in values]
        for values in (figures.overall.values(), by_category)
    ]


def evaluated(truth, rows, image_ids=None, area_ranges=None, kind="bbox"):
    """Return the evaluation of the reference implementation."""
    with redirect_stdout(StringIO()):
        reference = COCO()
        reference.dataset = {
            **truth,
            "annotations": [dict(annotation) for annotation in truth["annotations"]],
        }
        reference.createIndex()
        evaluation = COCOeval(
            reference,
            reference.loadRes(rows if kind == "bbox" else [dict(row) for row in rows]),
            kind,
        )
        evaluation.params.imgIds = image_ids or evaluation.params.imgIds
        evaluation.params.areaRng = area_ranges or evaluation.params.areaRng
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


@pytest.mark.parametrize("seed", range(2))
def test_all_twelve_figures_are_those_of_pycocotools(seed):
    """All twelve figures and each class's AP agree, average precisions to the last digit.

    They are tested on all images and on half of them, with small ids and with large ones.
    """
    truth, rows = scene(seed, scale=1 if seed % 2 else 10_000_000)
    ids = [image["id"] for image in truth["images"]]
    scored = CocoAp(truth, rows)
    for part in (ids, ids[::2], ids[-1:]):
        evaluation = evaluated(truth, rows, part)
        overall, by_category = figures_of(scored, part)
        assert overall[:6] == evaluation.stats.tolist()[:6]
        assert overall == pytest.approx(evaluation.stats.tolist(), abs=1e-12)
        assert by_category == pytest.approx(
            evaluation.eval["precision"][:, :, :, 0, -1].mean(axis=(0, 1))
        )


def test_of_two_objects_that_are_overlapped_alike_the_later_is_matched():
    """The next detection, which lies on the later object, is left with the earlier one.

    It then matches at the lower thresholds alone.
    """
    boxes = ([0, 0, 10, 10], [2, 0, 10, 10])
    annotations = [
        {"id": n, "image_id": 1, "category_id": 3, "iscrowd": 0, "area": 100, "bbox": box}
        for n, box in enumerate(boxes, 1)
    ]
    truth = {"images": [{"id": 1}], "categories": [{"id": 3}], "annotations": annotations}
    rows = np.array([[1, 1, 0, 10, 10, 0.9, 3], [1, *boxes[1], 0.8, 3]], float)
    expected = evaluated(truth, rows).stats[0]
    assert 0 < expected < 1
    assert CocoAp(truth, rows).figures([1]).overall["ap"] == pytest.approx(expected, abs=1e-12)


def test_a_recall_is_reached_by_the_hit_that_pycocotools_names():
    """Rounding puts the product of count and recall above or below the hit that reaches it.

    The tested numbers of objects have such products.
    """
    about = {"category_id": 3, "iscrowd": 0, "area": 100, "bbox": [0, 0, 10, 10]}
    for objects in (20, 25, 50, 100):
        numbers = range(1, objects + 1)
        annotations = [{**about, "id": number, "image_id": number} for number in numbers]
        truth = {
            "images": [{"id": number} for number in numbers],
            "categories": [{"id": 3}],
            "annotations": annotations,
        }
        # After each hit a false one: every hit has a precision of its own.
        rows = np.array(
            [[n, x, 0, 10, 10, 1 - (n + x / 100) / 200, 3] for n in numbers for x in (0, 50)], float
        )
        ap = CocoAp(truth, rows).figures(list(numbers)).overall["ap"]
        assert ap == pytest.approx(evaluated(truth, rows).stats[0], abs=1e-12), objects


def test_detections_of_images_and_classes_that_the_document_lacks_count_for_nothing():
    """They are neither hits nor false alarms, and a document without images has no figures."""
    truth, rows = scene(2)
    ids = [image["id"] for image in truth["images"]]
    strangers = np.array(
        [[999, 0, 0, 8, 8, 1, 3], [ids[0], 0, 0, 8, 8, 1, 77], [-5, 0, 0, 8, 8, 1, 3]]
    )
    assert CocoAp(truth, np.concatenate([strangers, rows])).figures(ids) == CocoAp(
        truth, rows
    ).figures(ids)
    nothing = {"images": [], "categories": [], "annotations": []}
    figures = CocoAp(nothing, rows).figures([])
    assert (set(figures.overall.values()), figures.by_category) == ({None}, {})


# Pixels of the images whose objects have shapes; numbers of which powers of two are few.
HEIGHT, WIDTH = 90, 110


def with_shapes(shaped):
    """Return a scene with `shaped` applied to each box of annotations and results.

    Many of the resulting shapes are exactly alike.
    """
    truth, rows = scene(1)
    draw = np.random.default_rng(1)
    sized = [{**image, "height": HEIGHT, "width": WIDTH} for image in truth["images"]]
    annotations = [{**each, **shaped(draw, each["bbox"])} for each in truth["annotations"]]
    results = [
        {
            "image_id": int(row[0]),
            "category_id": int(row[6]),
            "score": float(row[5]),
            **shaped(draw, row[1:5].tolist()),
        }
        for row in rows
    ]
    # Boxes alone have the key: of results with boxes pycocotools takes the area of those.
    return {**truth, "images": sized, "annotations": annotations}, results


def outlined(draw, box):
    """Return one or two polygons about a box, which may leave the image or have corners alike."""
    x, y, width, height = box
    corners = np.array(
        [[x, y], [x + width, y], [x + width * draw.choice([0.5, 1.0]), y + height], [x, y + height]]
    )
    return {
        "segmentation": [
            corners.ravel().tolist(),
            (corners / 2 - draw.integers(0, 3)).ravel().tolist(),
        ][: draw.integers(1, 3)]
    }


def posed(draw, box):
    places = (
        np.column_stack([np.linspace(0.1, 0.9, 17), np.linspace(0.9, 0.1, 17)]) * box[2:] + box[:2]
    )
    visibility = draw.choice([0, 1, 2], 17) * draw.choice([0, 1, 1])
    points = np.column_stack([places + draw.choice([0, 0, 2], (17, 1)), visibility])
    return {"keypoints": points.ravel().tolist(), "num_keypoints": int((visibility > 0).sum())}


def coded(outline):
    """Return the run-length code of an outline by pycocotools, its runs as a text."""
    code = mask.merge(mask.frPyObjects(outline, HEIGHT, WIDTH))
    return {"size": code["size"], "counts": code["counts"].decode()}


@pytest.mark.parametrize("kind", [MASKS, KEYPOINTS], ids=["segm", "keypoints"])
def test_all_figures_of_shapes_are_those_of_pycocotools(kind):
    """Twelve figures of masks, ten of keypoints and the AP of each class agree.

    They are tested on all images and on half of them.
    """
    truth, results = with_shapes(outlined if kind is MASKS else posed)
    annotated, shapes = truth, [result[kind.key] for result in results]
    if kind is MASKS:
        results = [{**result, "segmentation": coded(result["segmentation"])} for result in results]
        shapes = [edges_of_outline(shape, HEIGHT, WIDTH) for shape in shapes]
        in_edges = [
            {**each, "segmentation": edges_of_outline(each["segmentation"], HEIGHT, WIDTH)}
            for each in truth["annotations"]
        ]
        annotated = {**truth, "annotations": in_edges}
    ids = [image["id"] for image in truth["images"]]
    scored = CocoAp(annotated, rows_of(results), kind, shapes)
    for part in (ids, ids[::2]):
        evaluation = evaluated(truth, results, part, kind="segm" if kind is MASKS else "keypoints")
        overall, by_category = figures_of(scored, part)
        assert overall == pytest.approx(evaluation.stats.tolist(), abs=1e-12)
        assert by_category == pytest.approx(
            evaluation.eval["precision"][:, :, :, 0, -1].mean(axis=(0, 1)), abs=1e-12
        )


def random_outline(draw):
    """Return polygons of any form, for example thin or crossing themselves.

    They may leave the image on any side, have equal corners, or lie on whole pixels.
    """
    polygons = []
    for _ in range(draw.integers(1, 4)):
        corners = draw.uniform(-30, 140, (draw.integers(3, 12), 2)) * draw.choice(
            [0.01, 0.3, 1.0]
        ) + draw.choice([-5, 0, 40])
        if draw.random() < 0.5:
            corners = corners.round(draw.integers(0, 2))
        if draw.random() < 0.3:
            corners[1] = corners[0]
        polygons.append(corners.ravel().tolist())
    return polygons


# pycocotools has not heard of numpy 2.
@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_a_mask_has_the_pixels_that_pycocotools_draws():
    """Masks of polygons, of run-length codes and of pixels agree to the pixel.

    Codes are texts or lists; the pixels' own code is the same text.
    """
    draw = np.random.default_rng(0)
    for _ in range(100):
        outline = random_outline(draw)
        pixels = mask.decode(coded(outline))
        expected = edges_of(pixels)
        assert text_of(expected, HEIGHT * WIDTH) == coded(outline)["counts"]
        runs = np.diff(np.concatenate([[0], expected, [HEIGHT * WIDTH]])).tolist()
        for form in (
            outline,
            Rle((HEIGHT, WIDTH), coded(outline)["counts"]),
            Rle((HEIGHT, WIDTH), runs),
        ):
            filled = np.zeros(HEIGHT * WIDTH + 1, int)
            edges = edges_of_outline(form, HEIGHT, WIDTH)
            assert len(edges) % 2 == 0
            np.add.at(filled, edges[::2], 1)
            np.add.at(filled, edges[1::2], -1)
            assert (pixels == filled.cumsum()[:-1].reshape(WIDTH, HEIGHT).T).all()


def test_a_shape_that_cannot_be_drawn_is_refused():
    """No polygon, half a corner and a side that exceeds the memory are refused.

    So are codes with other characters, runs below 0, and too many or too few pixels.
    """
    for outline, words in [
        ([], "it is empty"),
        ([[1, 2, 3, 4, 5, 6, 7]], "an x without y"),
        ([[0, 0, 1e12, 0, 5, 5]], "further out than 1,000,000 pixels"),
        *(
            (Rle((HEIGHT, WIDTH), counts), "invalid RLE")
            for counts in ("", "abc", "0p", "~", [100] * 2000, [HEIGHT * WIDTH + 5, -5], [5])
        ),
    ]:
        with table_row(outline), pytest.raises(ValueError, match=words):
            edges_of_outline(outline, HEIGHT, WIDTH)
