"""Detectors that suppress by themselves are recognised without a card and scored.

They are as their exporters write them, scored in the photographs' pixels.

Each gives the same three objects wherever it looks; where these lie in its input of 64 x 64 is
worked out here by hand.
"""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import tasks
from edgemeter.agent.recognition.recognise import card_for
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.vision_factory import make_loaded, make_truth, open_with_truth

# A photograph of 128 x 96: corners in its pixels, and COCO's ids.
CORNERS = np.array([[8, 12, 40, 60], [64, 24, 120, 84], [20, 66, 52, 90]], np.float32)
IDS = (1, 3, 2)
LABELS, SCORES = np.array(IDS) - 1, np.array([0.9, 0.8, 0.7], np.float32)
# Halved to 64 x 48, and then 8 rows down where the letterbox is centred; squeezed to 64 x 64.
CENTRED, SQUEEZED = CORNERS / 2 + [0, 8, 0, 8], CORNERS * [0.5, 2 / 3, 0.5, 2 / 3]
PICTURE = TensorInfo("images", (1, 3, 64, 64), "float32")


def rt_detr(inputs):
    """Return boxes of 0..1 times the size that is asked for, width first."""
    boxes = SQUEEZED / 64 * np.tile(inputs["orig_target_sizes"], 2)
    return {"labels": LABELS[None], "boxes": boxes[None], "scores": SCORES[None]}


def efficient_nms(_):
    """Return lists of which the first is the count; what follows the objects is stale."""
    boxes = np.vstack([CENTRED, [0, 0, 64, 64]])[None]
    return {
        "num": np.array([[3]]),
        "boxes": boxes,
        "scores": np.array([[*SCORES, 0.99]]),
        "classes": np.array([[*LABELS, 1]]),
    }


MODELS = {
    "rtdetr_r18vd.onnx": (rt_detr, {"orig_target_sizes": "int64"}, "detr-lists"),
    "yolov7-tiny.engine": (efficient_nms, {}, "detr-lists"),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_exporters_write_is_recognised_and_lies_where_the_objects_are(name, tmp_path):
    """A wrong column, size, class or letterbox would lose all objects.

    Such are a size with its sides exchanged, a class counted from 1 and a letterbox in another
    place.
    """
    outputs_of, sizes, family = MODELS[name]
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (128, 96), (40, 90, 160)).save(tmp_path / "photos" / "photo_0.png")
    truth = make_truth(1)
    truth["images"][0] |= {"width": 128, "height": 96}
    truth["categories"] = [
        {"id": number, "name": name} for number, name in ((1, "person"), (2, "bicycle"), (3, "car"))
    ]
    boxes = np.column_stack([CORNERS[:, :2], CORNERS[:, 2:] - CORNERS[:, :2]]).tolist()
    truth["annotations"] = [
        {
            "id": number,
            "image_id": 100,
            "category_id": IDS[number],
            "bbox": box,
            "area": box[2] * box[3],
            "iscrowd": 0,
        }
        for number, box in enumerate(boxes)
    ]
    inputs = [PICTURE, *(TensorInfo(size, (1, 2), dtype) for size, dtype in sizes.items())]
    declared = outputs_of({size: np.ones((1, 2)) for size in sizes})
    outputs = [
        TensorInfo(key, array.shape, "int64" if array.dtype.kind == "i" else "float32")
        for key, array in declared.items()
    ]
    loaded = make_loaded(outputs, inputs)
    card, _ = card_for(Path("absent") / name, loaded)
    assert card.family == family
    task = tasks.create(card, loaded, open_with_truth(tmp_path / "photos", truth))
    (call,) = task.prepare(0)
    task.predict(
        0,
        [
            [
                array.astype(info.dtype)
                for info, array in zip(outputs, outputs_of(call).values(), strict=True)
            ]
        ],
    )
    assert task.score().value == pytest.approx(1.0)
