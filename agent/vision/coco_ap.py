"""COCO average precision, computed by hotcoco.

hotcoco (MIT) rather than pycocotools or faster-coco-eval: it gives the COCO API's published figures to 1e-9 on that project's own
fixture (a test holds it), one wheel of the stable ABI serves every Python from 3.10 on, for x86_64 and aarch64, and a validation set
takes seconds instead of minutes (`tests/benchmarks/coco.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
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
    "AR1": "ar_1",
    "AR10": "ar_10",
    "AR100": "ar_100",
    "ARs": "ar_small",
    "ARm": "ar_medium",
    "ARl": "ar_large",
}
# Parts of the delete-a-group jackknife: so many evaluations an error costs, and one fewer are its degrees of freedom.
PARTS = 20
_SEED = 0
# COCO's own sizes have these places in the arrays of an evaluation: all, small, medium, large; the last of 1, 10, 100 detections.
_ALL, _SMALL, _MOST = 0, 1, 2
# Ranges of area that pick annotations by the number in its place. hotcoco keeps ranges apart by their values: all four must differ.
_ASKED = ((0.0, 1e10), (0.5, 1.5), (2.5, 3.5), (3.5, 4.5))


@dataclass(frozen=True, slots=True)
class Figures:
    """COCO's twelve figures by our names, 0..1, and AP by category id; None where there is no object to find."""

    overall: dict[str, float | None]
    by_category: dict[int, float | None]


class CocoAp:
    """Scores the detections of one set of images, whole or in part."""

    def __init__(self, truth: Mapping[str, Any], rows: NDArray[np.float64]) -> None:
        """Take the COCO annotation document and the detections.

        Args:
            truth: the document as plain data; `area` must be there, what else stands in it beside COCO's keys is passed over.
            rows: float64 [n, 7]: image id, x, y, width, height, score, category id of every detection.

        Raises:
            UnavailableError: hotcoco is not installed.
        """
        self._hotcoco = _hotcoco()
        self._truth, self._rows = truth, rows
        self._wanted = self._document([annotation["area"] for annotation in truth["annotations"]])
        self._found = self._wanted.load_res(rows)

    def figures(self, image_ids: Sequence[int]) -> Figures:
        """Return the figures over these images; those without detections or without annotations count too."""
        evaluation = self._evaluate(self._wanted, self._found, image_ids)
        # The figures exist only after `summarize`, which prints them; our standard output is the result and nothing else.
        with redirect_stdout(StringIO()):
            evaluation.summarize()
        said = evaluation.get_results()
        precision = evaluation.eval["precision"][:, :, :, _ALL, _MOST]
        by_category = {int(number): _mean(precision[:, :, place]) for place, number in enumerate(evaluation.params.cat_ids)}
        return Figures({ours: _figure(said[theirs]) for theirs, ours in METRICS.items()}, by_category)

    def standard_error(self, image_ids: Sequence[int]) -> float | None:
        """Return the standard error of AP over these images; None where they are too few, or all that is to be found lies in a few."""
        return _jackknife(image_ids, lambda ids: self.figures(ids).overall["ap"])

    def recall(self, annotations: Sequence[bool], image_ids: Sequence[int]) -> tuple[float | None, float | None]:
        """Return AR (100 detections) of the annotations marked, and its standard error; the others are there and not asked for.

        As COCO takes small, medium and large: what is not asked for is ignored, and so is what finds it.
        """
        # Instead of the area stands whether it is asked for: the range of "small" then picks these.
        wanted = self._document([1.0 if is_asked else 2.0 for is_asked in annotations])
        found = wanted.load_res(self._rows)

        def recall(ids: Sequence[int]) -> float | None:
            return _mean(self._evaluate(wanted, found, ids, _ASKED).eval["recall"][:, :, _SMALL, _MOST])

        return recall(image_ids), _jackknife(image_ids, recall)

    def _document(self, areas: Sequence[float]) -> Any:
        keys = ("image_id", "category_id", "bbox", "iscrowd")
        # Renumbered from 1: an annotation id of 0 reads as "not matched" in COCO's own bookkeeping.
        annotations = [
            {"id": number, "area": area, **{key: annotation[key] for key in keys}}
            for number, (annotation, area) in enumerate(zip(self._truth["annotations"], areas, strict=True), 1)
        ]
        # Only ids: the size of an image takes no part in AP, and where the document leaves it out hotcoco would refuse the image.
        images = [{"id": image["id"]} for image in self._truth["images"]]
        return self._hotcoco.COCO({"images": images, "categories": self._truth["categories"], "annotations": annotations})

    def _evaluate(self, wanted: Any, found: Any, image_ids: Sequence[int], areas: Sequence[tuple[float, float]] = ()) -> Any:
        evaluation = self._hotcoco.COCOeval(wanted, found, "bbox")
        evaluation.params.img_ids = list(image_ids)
        if areas:
            evaluation.params.area_rng = [list(area) for area in areas]
        evaluation.evaluate()
        evaluation.accumulate()
        return evaluation


def _jackknife(image_ids: Sequence[int], figure: Callable[[Sequence[int]], float | None]) -> float | None:
    """Return the standard error of a figure by leaving out one of twenty parts of the images after the other, drawn with a fixed seed.

    Not the bootstrap: images that it draws twice match themselves, which narrows AP's spread, and it takes five times as long. Over 200
    made-up sets of 100 images AP spread by 0.0100: hotcoco's bootstrap said 0.0073 (84 % of its bounds held), this says 0.0097 (90 %);
    of 30 images 95 % held.
    Source: P. S. Kott, "The delete-a-group jackknife", Journal of Official Statistics 17 (2001), 521-526.
    """
    if len(image_ids) < PARTS:
        return None
    shuffled = np.random.RandomState(_SEED).permutation(sorted(image_ids))
    left = [figure([number for number in image_ids if number not in out]) for out in map(set, np.array_split(shuffled, PARTS))]
    known = np.array([value for value in left if value is not None])
    if len(known) < PARTS:
        return None
    return float(np.sqrt((PARTS - 1) / PARTS * ((known - known.mean()) ** 2).sum()))


def _figure(value: float) -> float | None:
    return None if value < 0 else float(value)


def _mean(values: NDArray[np.float64]) -> float | None:
    """Return the mean of what is defined: COCO marks the rest with -1."""
    defined = values[values > -1]
    return float(defined.mean()) if defined.size else None


def _hotcoco() -> Any:
    try:
        return import_module("hotcoco")
    except ImportError as error:
        message = "COCO average precision needs hotcoco, which is not installed: pip install 'edgemeter[vision]'"
        raise UnavailableError(message) from error
