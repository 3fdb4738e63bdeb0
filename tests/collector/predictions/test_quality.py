"""Facts about the quality of kept predictions, beside pycocotools, figures counted by hand, and models whose error is known."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.kept_predictions import pack, unpack
from edgemeter.collector.predictions.quality import BACKGROUND, best_threshold, calibration, confusion, precision_recall
from tests.fixtures.kept_factory import LABELS, kept_answers, kept_of, precisions_of_pycocotools, random_kept, thing
from tests.fixtures.rows import table_row


def test_the_curve_is_that_of_pycocotools():
    """Every label's and their mean to 1e-9, with crowds, objects found twice, and equal scores."""
    for seed in range(4):
        with table_row(seed):
            predictions = unpack(pack(random_kept(seed)))
            expected = precisions_of_pycocotools(predictions)
            assert (expected > -1).all()
            for index, label in enumerate(LABELS):
                np.testing.assert_allclose(precision_recall(predictions, label).precisions, expected[:, index], atol=1e-9)
            overall = precision_recall(predictions)
            np.testing.assert_allclose(overall.precisions, expected.mean(axis=1), atol=1e-9)
            assert overall.ap50 == pytest.approx(expected.mean(), abs=1e-9)
            assert 0.2 < overall.ap50 < 0.9
            assert overall.objects == sum(not item.ignored for photo in predictions.photographs for item in photo.truth)


def test_a_label_without_objects_has_no_curve():
    """It does not count in the mean either; a label that there is not is an error."""
    predictions = kept_of(([thing("cat", 0.0)], [thing("cat", 0.0, score=0.9), thing("dog", 200.0, score=0.8)]))
    assert precision_recall(predictions, "dog") is None
    assert precision_recall(predictions).precisions == precision_recall(predictions, "cat").precisions == (1.0,) * 101
    assert precision_recall(kept_of(([], [thing("dog", 0.0, score=0.5)]))) is None
    with pytest.raises(ConfigError, match=r"no label is called 'cart'.*cat"):
        precision_recall(predictions, "cart")


def test_the_confusion_matrix_counts_each_object_once():
    """Right, another class in its place, missed, found where nothing is, found twice, on a crowd, and below the score."""
    predictions = kept_of(
        ([thing("cat", 0.0), thing("dog", 100.0), thing("owl", 200.0)], [
            thing("cat", 1.0, score=0.9), thing("cat", 2.0, score=0.8), thing("fox", 100.0, score=0.7), thing("owl", 200.0, score=0.2),
        ]),
        ([thing("cat", 0.0, side=400.0, ignored=True)], [thing("cat", 9.0, score=0.6), thing("dog", 9.0, score=0.5)]),
    )  # fmt: skip
    matrix = confusion(predictions, 0.25)
    assert matrix.labels == (*LABELS, BACKGROUND)
    cells = {
        (matrix.labels[row], matrix.labels[column]): count
        for row, counts in enumerate(matrix.counts) for column, count in enumerate(counts) if count
    }  # fmt: skip
    assert cells == {
        ("cat", "cat"): 1, ("dog", "fox"): 1, ("owl", BACKGROUND): 1, (BACKGROUND, "cat"): 1, (BACKGROUND, "dog"): 1,
    }  # fmt: skip
    assert confusion(predictions, 0.1).counts[2] == (0, 0, 1, 0, 0)


def test_rows_and_columns_of_the_matrix_add_up():
    """Rows to the annotated objects, columns to those found but for the ones on crowds; the diagonal to what pycocotools finds right."""
    for seed in range(4):
        with table_row(seed):
            predictions = random_kept(seed)
            counts = np.array(confusion(predictions, 0.05).counts)
            truth = [item.label for photo in predictions.photographs for item in photo.truth if not item.ignored]
            np.testing.assert_array_equal(counts[:-1].sum(axis=1), np.bincount(truth, minlength=4))
            recalls = precisions_of_pycocotools(predictions)
            assert counts[-1, -1] == 0
            for index in range(4):
                # The last recall that has a precision is that of all found objects.
                reached = np.flatnonzero(recalls[:, index]).max() / 100
                assert counts[index, index] / counts[index].sum() == pytest.approx(reached, abs=0.01)


def test_the_best_threshold_is_that_of_a_search_over_all():
    """Counted anew at every score, by the confusion matrix's other way: the objects at or above it, matched once more."""
    predictions = random_kept(5, photographs=15)
    best = {threshold.label: threshold for threshold in best_threshold(predictions)}
    assert list(best) == [None, *LABELS]
    scores = sorted({item.score for photo in predictions.photographs for item in photo.found})
    for label in (None, "owl"):
        figures = []
        for score in scores:
            counts = np.array(confusion(predictions, score).counts)
            rows = range(4) if label is None else [LABELS.index(label)]
            right = sum(counts[row, row] for row in rows)
            objects, found_count = sum(counts[row].sum() for row in rows), sum(counts[:, row].sum() for row in rows)
            figures.append((2 * right / (objects + found_count), score, right, found_count - right, objects - right))
        f1, score, right, false, missed = max(figures)
        threshold_of_label = best[label]
        assert (threshold_of_label.score, threshold_of_label.right, threshold_of_label.false, threshold_of_label.missed) == (
            score,
            right,
            false,
            missed,
        )
        assert (threshold_of_label.f1, threshold_of_label.precision, threshold_of_label.recall) == pytest.approx(
            (f1, right / (right + false), right / (right + missed))
        )


def test_nothing_found_rightly_has_no_threshold():
    """Of a label or of all; nor has a classifier one, which says so."""
    assert best_threshold(kept_of(([thing("cat", 0.0)], [thing("cat", 300.0, score=0.9)]))) == ()
    for ask in (best_threshold, precision_recall):
        with pytest.raises(ConfigError, match="a classifier finds no objects"):
            ask(kept_answers(("cat", "cat", 0.5)))


def test_the_calibration_error_is_that_of_its_definition():
    """Ten bins of equal width, the gap of mean score and share of right ones weighted by counts, as torchmetrics' l1 norm."""
    draw = np.random.default_rng(7)
    answers = [("cat", str(draw.choice(LABELS)), round(float(draw.uniform(0, 1)), 3)) for _ in range(500)]
    calibrated = calibration(kept_answers(*answers))
    scores, is_right = np.array([answer[2] for answer in answers]), np.array([answer[1] == "cat" for answer in answers])
    expected = 0.0
    for low in range(10):
        members = (scores >= low / 10) & ((scores < (low + 1) / 10) | (low == 9))
        entry = calibrated.bins[low]
        assert (entry.count, entry.low, entry.high) == (members.sum(), low / 10, (low + 1) / 10)
        assert (entry.mean_score, entry.right_ratio) == pytest.approx((scores[members].mean(), is_right[members].mean()))
        expected += members.mean() * abs(scores[members].mean() - is_right[members].mean())
    assert calibrated.error == pytest.approx(expected)
    assert (calibrated.count, calibrated.reason) == (500, None)
    assert calibrated.low < calibrated.error < calibrated.high


def test_of_a_detector_every_object_counts_that_is_not_on_a_crowd():
    """Right is what has its annotated object at IoU 0.5; an object found twice is false the second time."""
    photo = ([thing("cat", 0.0), thing("dog", 200.0, side=300.0, ignored=True)],
             [thing("cat", 0.0, score=0.95), thing("cat", 1.0, score=0.85), thing("dog", 250.0, score=0.5)])  # fmt: skip
    calibrated = calibration(kept_of(photo))
    assert [(entry.count, entry.right_ratio) for entry in calibrated.bins[8:]] == [(1, 0.0), (1, 1.0)]
    assert (calibrated.count, calibrated.error) == (2, pytest.approx((0.05 + 0.85) / 2))
    assert calibrated.reason == "too few: 1 items with predictions, bounds need 20"
    nothing = calibration(kept_of(([], [])))
    assert (nothing.error, nothing.by_chance, nothing.count, nothing.low) == (None, None, 0, None)


@pytest.mark.parametrize(("power", "error"), [(1.0, 0.0), (2.0, 1 / 6), (0.5, 1 / 6)])
def test_the_bounds_hold_the_true_error(power, error):
    """Of models whose scores s are right with a probability of s, s squared, or its root, in 95% of 80 data sets (87% at least)."""
    draw = np.random.default_rng(11)
    held_count = 0
    for _ in range(80):
        scores = draw.uniform(0, 1, 250)
        is_right = draw.random(250) < scores**power
        answers = [("cat", "cat" if right else "dog", float(score)) for score, right in zip(scores, is_right, strict=True)]
        calibrated = calibration(kept_answers(*answers))
        held_count += calibrated.low <= error + 1e-9 and error <= calibrated.high
    assert held_count >= 70


def test_what_chance_alone_does_is_stated():
    """The mean error of a perfectly calibrated model in a simulation, to a tenth of it."""
    draw = np.random.default_rng(12)
    errors, by_chance = [], []
    for _ in range(40):
        scores = draw.uniform(0, 1, 400)
        answers = [("cat", "cat" if right else "dog", float(s)) for s, right in zip(scores, draw.random(400) < scores, strict=True)]
        calibrated = calibration(kept_answers(*answers))
        errors.append(calibrated.error)
        by_chance.append(calibrated.by_chance)
    assert np.mean(by_chance) == pytest.approx(np.mean(errors), rel=0.1)


def test_a_classifiers_matrix_has_no_background():
    """Annotated by predicted label."""
    matrix = confusion(kept_answers(("cat", "cat", 0.5), ("cat", "dog", 0.5), ("owl", "dog", 0.9)))
    assert matrix.labels == LABELS
    assert matrix.counts == ((1, 1, 0, 0), (0, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 0))
