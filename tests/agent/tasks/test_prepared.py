"""Facts about the inputs that a task prepares by name, in the model's order."""

from types import SimpleNamespace

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.tasks import prepared
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_loaded, tensors

NAMED = {"mask": np.zeros(2), "tokens": np.ones(3)}
TASK = SimpleNamespace(prepare=lambda _index: [NAMED])


def test_inputs_come_in_the_order_of_the_model():
    """By their names; a model that declares none takes them as they are given."""
    declared = make_loaded(inputs=tensors((3,), (2,), names=("tokens", "mask")))
    assert [len(array) for array in prepared(TASK, 0, declared)[0]] == [3, 2]
    assert [len(array) for array in prepared(TASK, 0, make_loaded())[0]] == [2, 3]


def test_inputs_that_the_model_does_not_declare_are_refused():
    """One too many, another name, one twice, one missing: with both lists."""
    for names in [("tokens",), ("tokens", "masks"), ("tokens", "mask", "mask"), ("tokens", "mask", "kinds")]:
        declared = make_loaded(inputs=tensors(*[(1,)] * len(names), names=names))
        with table_row(names), pytest.raises(ConfigError, match=r"prepares the inputs 'mask', 'tokens', the model takes 'tokens'"):
            prepared(TASK, 0, declared)


def test_an_item_may_take_several_calls_and_takes_one_at_least():
    """Each in the order of the model; a task that prepares none has misunderstood its data."""
    declared = make_loaded(inputs=tensors((3,), (2,), names=("tokens", "mask")))
    twice = SimpleNamespace(prepare=lambda _index: [NAMED, NAMED])
    assert [[len(array) for array in call] for call in prepared(twice, 0, declared)] == [[3, 2], [3, 2]]
    with pytest.raises(ConfigError, match="prepares no call of the model for item 7"):
        prepared(SimpleNamespace(prepare=lambda _index: []), 7, declared)
