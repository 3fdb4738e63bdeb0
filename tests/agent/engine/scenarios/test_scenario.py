import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import suite
from edgemeter.agent.engine.scenarios import scenario
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.rows import table_row


def case(tmp_path, *lines):
    written = msgspec.toml.decode(
        "\n".join(['name = "b"', "[[case]]", 'model = "m.onnx"', *lines]), type=suite.SuiteFile
    )
    (only_case,) = suite.expand(written, tmp_path).cases
    return only_case


def takes(*shapes):
    return [TensorInfo(f"x{index}", shape, "float32") for index, shape in enumerate(shapes)]


OPEN, ONE, FOUR = takes((None, 3, 8, 8)), takes((1, 3, 8, 8)), takes((4, 3, 8, 8))
OFFLINE = 'scenario = "offline"'


def test_the_models_shape_and_the_scenario_make_the_query(tmp_path):
    """Samples are joined where the batch dimension is open.

    Else a query has as many samples as the model takes.
    """
    for lines, inputs, shape in [
        ((), OPEN, (1, 1)),
        ((), ONE, (1, 1)),
        ((), FOUR, (4, 1)),
        ((OFFLINE,), OPEN, (1, 1)),
        ((OFFLINE, "batch = 16"), OPEN, (16, 16)),
        ((OFFLINE,), FOUR, (4, 1)),
        ((OFFLINE, "batch = 4"), FOUR, (4, 1)),
        (('scenario = "poisson"', "rate_per_s = 5.0"), OPEN, (1, 1)),
    ]:
        assert scenario.query_shape(case(tmp_path, *lines), inputs) == shape, f"{lines!r}"


def test_what_the_model_cannot_take_is_refused(tmp_path):
    """The message names both numbers and the remedy."""
    for lines, message in [
        ((OFFLINE, "batch = 2"), "takes 4 samples a call, not 2"),
    ]:
        with table_row(lines), pytest.raises(ConfigError, match=message):
            scenario.query_shape(case(tmp_path, *lines), FOUR)


def test_an_input_without_a_batch_makes_a_model_without_one():
    """A model with an open batch beside a plain number takes one sample at a time."""
    assert scenario.declared_batch(takes((None, 3), (1,))) == 1
    assert scenario.declared_batch(takes((None, 3), (None, 4))) is None
    assert scenario.declared_batch(takes((4, 3), (4, 4))) == 4


def test_batches_are_made_of_the_items_and_fit_the_memory():
    """Samples are joined along the first dimension of each input, in as many batches as fit."""
    items = [[np.full((1, 2), n, np.float32), np.full((1, 1), 10 * n, np.int8)] for n in range(5)]
    batches = scenario.joined_batches(items, 3, 3 * 9 * 2, seed=1)
    assert len(batches) == 2
    assert [array.shape for array in batches[0]] == [(3, 2), (3, 1)]
    np.testing.assert_array_equal(batches[0][0][:, 0] * 10, batches[0][1][:, 0])
    assert len(scenario.joined_batches(items, 3, 10**6, seed=1)) == 8
    assert scenario.joined_batches(items, 1, 10**6, seed=1) == items
