"""What the generators share."""

import math

import numpy as np
import pytest

from edgemeter.agent.generators.adapter import log_likelihoods


def test_logits_become_log_likelihoods():
    """Against plain softmax in Python; large logits do not overflow."""
    logits = np.array([[1.0, 2.0, 3.0], [1000.0, 0.0, 999.0], [5.0, 5.0, 5.0]], np.float32)
    expected = [math.log(math.exp(1) / sum(map(math.exp, (1, 2, 3)))), -1 - math.log(1 + math.exp(-1))]
    assert log_likelihoods(logits, [9, 0, 2]) == pytest.approx(expected, abs=1e-12)
    assert log_likelihoods(logits[:2], [9, 0, 2]) == pytest.approx(expected, abs=1e-12)
