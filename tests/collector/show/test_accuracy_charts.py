"""Facts about the charts of kept predictions: a matrix of many classes stays readable and loses no object, curves keep their runs."""

import numpy as np
import pytest

from edgemeter.collector.charts import vega
from edgemeter.collector.predictions.quality import BACKGROUND, Calibration, CalibrationBin, ConfusionMatrix, PrecisionRecallCurve
from edgemeter.collector.show.accuracy_charts import (
    CLASSES,
    MISSED,
    NOTHING_THERE,
    confusion_chart,
    precision_recall_chart,
    reliability_chart,
)


def random_matrix(seed, size=80):
    """Return a detector's matrix of as many classes, most of them without a confusion, and background against itself empty."""
    random = np.random.default_rng(seed)
    counts = np.diag(random.integers(0, 90, size + 1)) + (random.random((size + 1, size + 1)) < 0.01) * random.integers(
        1, 9, (size + 1, size + 1)
    )
    counts[-1, -1] = 0
    return ConfusionMatrix((*(f"class {index}" for index in range(size)), BACKGROUND), tuple(map(tuple, counts.tolist())))


def cells_of(chart):
    """Return the rows of a chart by truth and prediction."""
    return {(row["truth"], row["predicted"]): row for row in chart.table.dicts()}


def number(text):
    """Return the count in a cell."""
    return int(text.replace(",", "") or 0)


def test_a_matrix_of_80_classes_shows_the_most_confused_and_sums_the_others():
    """Against sums by numpy: no object is lost, and the classes are those with the most errors in their row and column."""
    matrix = random_matrix(1)
    counts = np.array(matrix.counts)
    chart = confusion_chart([matrix], has_background=True)
    cells = cells_of(chart)
    lanes = list(dict.fromkeys(truth for truth, _ in cells))
    columns = list(dict.fromkeys(predicted for _, predicted in cells))
    assert len(lanes) == len(columns) == CLASSES + 2
    assert (lanes[-1], columns[-1], lanes[-2]) == (NOTHING_THERE, MISSED, f"({80 - CLASSES} others)")
    errors = (counts.sum(axis=0) + counts.sum(axis=1) - 2 * counts.diagonal())[:80]
    numbers = [int(lane.removeprefix("class ")) for lane in lanes[:CLASSES]]
    assert [errors[index] for index in numbers] == sorted(errors, reverse=True)[:CLASSES]
    assert sum(number(row["text"]) for row in cells.values()) == counts.sum()
    first, second = numbers[:2]
    assert number(cells[f"class {first}", f"class {second}"]["text"]) == counts[first, second]
    remaining = [index for index in range(80) if index not in numbers]
    assert number(cells[lanes[-2], MISSED]["text"]) == counts[remaining, 80].sum()
    assert number(cells[NOTHING_THERE, columns[-2]]["text"]) == counts[80, remaining].sum()
    assert {row["value"] for key, row in cells.items() if key[0] == key[1]} == {0}
    assert "NaN" not in vega.svg(chart)


def test_of_two_matrices_the_changes_are_shown_with_both_counts():
    """By hand: of three cats the second run calls one a dog, and it finds no dog any more where nothing is."""
    labels = ("cat", "dog", "owl", BACKGROUND)
    before = ConfusionMatrix(labels, ((3, 0, 0, 0), (0, 2, 0, 1), (0, 0, 7, 0), (0, 1, 0, 0)))
    after = ConfusionMatrix(labels, ((2, 1, 0, 0), (0, 2, 0, 1), (0, 0, 7, 0), (0, 0, 0, 0)))
    chart = confusion_chart([before, after], has_background=True)
    cells = {key: (row["text"], row["below"], row["value"]) for key, row in cells_of(chart).items()}
    assert cells["cat", "cat"] == ("\N{MINUS SIGN}1", "3 → 2", 1)
    assert cells["cat", "dog"] == ("+1", "0 → 1", 1)
    assert cells["dog", "dog"] == ("", "2", 0)
    assert cells["dog", MISSED] == ("", "1", 0)
    assert cells[NOTHING_THERE, "dog"] == ("\N{MINUS SIGN}1", "1 → 0", 1)
    assert cells["owl", "owl"] == ("", "7", 0)
    assert "NaN" not in vega.svg(chart)
    assert confusion_chart([before, before], has_background=True) is None


def test_a_classifier_has_no_background_and_no_confusion_no_chart():
    """Its rows and columns are its classes, one of which may be called background."""
    chart = confusion_chart([ConfusionMatrix(("cat", BACKGROUND), ((4, 1), (0, 5)))], has_background=False)
    assert {truth for truth, _ in cells_of(chart)} == {BACKGROUND, "cat"}
    assert confusion_chart([ConfusionMatrix(("dog", "cat"), ((4, 0), (0, 5)))], has_background=False) is None


def test_curves_and_reliability_of_two_runs_are_in_one_chart_each():
    """Each point is its run's; empty bins are left out, and the errors and counts stand below."""
    falling = tuple(1 - step / 100 for step in range(101))
    chart = precision_recall_chart({"A": PrecisionRecallCurve(None, 9, (1.0,) * 101), "B": PrecisionRecallCurve(None, 9, falling)}, 0.05)
    points = {(row["series"], round(row["recall"], 2)): row["precision"] for row in chart.table.dicts()}
    assert len(points) == 202
    assert (points["A", 0.5], points["B", 0.25], points["B", 1.0]) == pytest.approx((1.0, 0.75, 0.0))
    assert "score is at least 0.05: A: 1.000; B: 0.500." in chart.note
    assert [name for name, *_ in chart.legend] == ["A", "B"]
    bins = (CalibrationBin(0.0, 0.1, 0, None, None), CalibrationBin(0.1, 0.2, 1200, 0.15, 0.25))
    reliability = reliability_chart({"B": Calibration(0.1, 0.02, 0.05, 0.15, 1200, bins)})
    assert reliability.table.dicts() == [{"series": "B", "score": 0.15, "right": 0.25, "count": 1200}]
    assert "B: 0.100 (0.050 to 0.150) over 1,200 predictions, 0.020 of it expected by chance" in reliability.note
    assert "NaN" not in vega.svg(chart) + vega.svg(reliability)
