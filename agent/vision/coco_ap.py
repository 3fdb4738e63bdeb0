"""COCO average precision, computed by hotcoco.

hotcoco (MIT) rather than pycocotools or faster-coco-eval: it gives the COCO API's published figures to 1e-9 on that project's own
fixture (a test holds it), and one wheel of the stable ABI serves every Python from 3.10 on, for x86_64 and aarch64.
"""

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.errors import UnavailableError

# Our names by hotcoco's.
METRICS: Mapping[str, str] = {
    "AP": "ap",
    "AP50": "ap50",
    "AP75": "ap75",
    "APs": "ap_small",
    "APm": "ap_medium",
    "APl": "ap_large",
    "AR1": "ar1",
    "AR10": "ar10",
    "AR100": "ar100",
    "ARs": "ar_small",
    "ARm": "ar_medium",
    "ARl": "ar_large",
}


def evaluate(truth: Mapping[str, Any], rows: NDArray[np.float64], image_ids: Sequence[int]) -> dict[str, float | None]:
    """Return COCO's twelve figures by our names, 0..1; None where COCO has none (no object of that size in the truth).

    Args:
        truth: the COCO annotation document.
        rows: float64 [n, 7]: image id, x, y, width, height, score, category id of every detection.
        image_ids: the images that count; those without detections or without annotations count too.

    Raises:
        UnavailableError: hotcoco is not installed.
    """
    hotcoco = _hotcoco()
    # Renumbered from 1: an annotation id of 0 reads as "not matched" in COCO's own bookkeeping.
    annotations = [{**annotation, "id": number} for number, annotation in enumerate(truth["annotations"], 1)]
    # Only ids: the size of an image takes no part in AP, and where the document leaves it out hotcoco would refuse the image.
    images = [{"id": image["id"]} for image in truth["images"]]
    wanted = hotcoco.COCO({"images": images, "categories": truth["categories"], "annotations": annotations})
    evaluation = hotcoco.COCOeval(wanted, wanted.load_res(rows), "bbox")
    evaluation.params.img_ids = list(image_ids)
    evaluation.evaluate()
    evaluation.accumulate()
    # The figures exist only after `summarize`, which prints them; our standard output is the result and nothing else.
    with redirect_stdout(StringIO()):
        evaluation.summarize()
    figures = evaluation.get_results()
    return {ours: (None if figures[theirs] < 0 else float(figures[theirs])) for theirs, ours in METRICS.items()}


def _hotcoco() -> Any:
    try:
        return import_module("hotcoco")
    except ImportError as error:
        message = "COCO average precision needs hotcoco, which is not installed: pip install 'edgemeter[vision]'"
        raise UnavailableError(message) from error
