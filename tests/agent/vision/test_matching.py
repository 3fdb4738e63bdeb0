"""Facts about `edgemeter.agent.vision.matching`: whether two sets of boxes show the same objects."""

import numpy as np
import pytest

from edgemeter.agent.vision.decoder import Detections
from edgemeter.agent.vision.matching import matched_ratio


def found(*rows):
    """Return detections of rows x1, y1, x2, y2, score, class."""
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(np.int32))


CAT, DOG = (10, 10, 50, 50, 0.9, 0), (60, 60, 90, 90, 0.8, 1)


@pytest.mark.parametrize(
    ("other", "ratio"),
    [
        (found(CAT, DOG), 1.0),
        (found(DOG, CAT), 1.0),
        (found((12, 10, 52, 50, 0.6, 0), DOG), 1.0),
        (found(CAT), 2 / 3),
        (found(CAT, (60, 60, 90, 90, 0.8, 0)), 0.5),
        (found(CAT, (75, 75, 105, 105, 0.8, 1)), 0.5),
        (found(CAT, CAT, DOG), 4 / 5),
        (found((10, 10, 50, 50, 0.2, 0), DOG), 1.0),
        (found((10, 10, 50, 50, 0.1, 0), DOG), 2 / 3),
        (found(), 0.0),
    ],
)
def test_boxes_match_by_class_and_overlap_one_to_one(other, ratio):
    """Order and small moves do not matter; a class, a place, a missing and a doubled box do; just below the threshold still counts."""
    assert matched_ratio(found(CAT, DOG), other) == pytest.approx(ratio)
    assert matched_ratio(other, found(CAT, DOG)) == pytest.approx(ratio)


def test_two_answers_without_boxes_say_nothing():
    """Nothing shown on either side is no agreement: a model that finds nothing would always agree with itself."""
    assert matched_ratio(found(), found()) is None
    assert matched_ratio(found((1, 1, 2, 2, 0.2, 0)), found()) is None


def test_boxes_without_area_match_nothing():
    """Where there is no area there is no overlap, and no division by zero."""
    assert matched_ratio(found((5, 5, 5, 5, 0.9, 0)), found((5, 5, 5, 5, 0.9, 0))) == 0.0
