"""Facts about `edgemeter.agent.engine.answers.answer_log`: what answers look like."""

import numpy as np

from edgemeter.agent.engine.answers.answer_log import AnswerLog
from edgemeter.agent.records import Answers


def arrays(*values):
    """Return one list of one float array for each value."""
    return [[np.array([float(value), 1.0], np.float32)] for value in values]


def logged(inputs, outputs, scores=None, objects=None):
    """Return the summary of these answers."""
    log = AnswerLog()
    for place, (one, other) in enumerate(zip(inputs, outputs, strict=True)):
        log.add(one, other, None if scores is None else np.array(scores[place], np.float32))
    return log.summary(objects)


def test_different_answers_are_not_alike():
    """Of a model that looks at its input nothing is counted."""
    assert logged(arrays(1, 2, 3), arrays(4, 5, 6)) == Answers(inputs=3, alike=0, not_finite=0)


def test_one_answer_for_different_inputs_is_counted():
    """All but the first are alike; the same input again is no wonder, and counts as no other input would."""
    assert logged(arrays(1, 2, 3), arrays(7, 7, 7)).alike == 2
    assert logged(arrays(1, 1, 1), arrays(7, 7, 7)).alike == 0


def test_an_empty_answer_is_not_alike():
    """Nothing found in four photographs is four times nothing, not a cached answer."""
    nothing = [[np.zeros((0, 6), np.float32)]] * 4
    assert logged(arrays(1, 2, 3, 4), nothing).alike == 0


def test_nan_and_infinity_are_counted_and_do_not_spoil_the_scores():
    """An answer counts once, however many of its values are no numbers."""
    outputs = [[np.array([np.nan, np.inf])], [np.array([1.0, 2.0])], [np.array([-np.inf, 0.0])]]
    found = logged(arrays(1, 2, 3), outputs, scores=[[np.nan], [0.5], []], objects=9)
    assert (found.not_finite, found.found, found.highest_score, found.objects) == (2, 1, 0.5, 9)


def test_a_detector_that_finds_nothing_has_no_score():
    """No boxes: 0 found, no highest score, and the objects that were there."""
    found = logged(arrays(1, 2), arrays(3, 4), scores=[[], []], objects=30)
    assert (found.found, found.highest_score, found.distinct_scores, found.objects) == (0, None, 0, 30)


def test_scores_are_counted_apart():
    """Five boxes with two different scores."""
    found = logged(arrays(1, 2), arrays(3, 4), scores=[[0.25, 0.5, 0.25], [0.5, 0.5]], objects=5)
    assert (found.found, found.distinct_scores, found.highest_score) == (5, 2, 0.5)


def test_no_answer_has_no_looks():
    """Nothing was run after timing."""
    assert AnswerLog().summary(None) is None
