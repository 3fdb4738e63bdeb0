"""A model gets an item's arrays from files, in its shape, type and order of inputs."""

from types import SimpleNamespace

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.items import Item, item_of_file
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.tasks import prepared
from edgemeter.agent.tasks.array_items import array_inputs
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_loaded, tensors

VALUES = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
FLOAT = TensorInfo("features", (1, 2, 3), "float32")
# -1 to 1 in steps of 0.02.
INT8 = TensorInfo("features", (1, 2, 3), "int8", 0.02, 10)
STORED = np.rint(VALUES / 0.02).astype(np.int8) + np.int8(10)


def test_an_array_is_shaped_and_quantised_as_the_model_declares(tmp_path):
    """Arrays come from .npy, .npz, raw float32 or raw values of the input's own type.

    An array may also be one of several in a file.
    """
    np.save(tmp_path / "a.npy", VALUES)
    np.savez(tmp_path / "a.npz", anything=VALUES)
    (tmp_path / "a.bin").write_bytes(VALUES.tobytes())
    for name in ("a.npy", "a.npz", "a.bin"):
        item = item_of_file(tmp_path, name)
        for info, expected in ((FLOAT, VALUES), (INT8, STORED)):
            with table_row(name, info.dtype):
                (array,) = array_inputs(item, make_loaded([], [info])).values()
                assert (array.dtype, array.shape) == (expected.dtype, (1, 2, 3))
                np.testing.assert_array_equal(array[0], expected)
    (tmp_path / "stored.bin").write_bytes(STORED.tobytes())
    for item in (item_of_file(tmp_path, "stored.bin"), Item("7", tmp_path, "tensor", array=STORED)):
        np.testing.assert_array_equal(
            array_inputs(item, make_loaded([], [INT8]))["features"][0], STORED
        )


def test_an_open_dimension_takes_what_is_left(tmp_path):
    """An open first dimension, the batch, is 1; a model without declarations gets a batch of 1."""
    np.save(tmp_path / "a.npy", VALUES)
    item = item_of_file(tmp_path, "a.npy")
    for shape, expected in (
        ((None, None, 3), (1, 2, 3)),
        ((None, None, None), (1, 2, 3)),
        ((), (1, 2, 3)),
        ((2, 3), (2, 3)),
    ):
        assert (
            array_inputs(item, make_loaded([], [TensorInfo("x", shape, "float32")]))["x"].shape
            == expected
        )
    assert array_inputs(item, make_loaded([], []))["input"].shape == (1, 2, 3)


def test_a_model_of_several_inputs_takes_them_by_name(tmp_path):
    """A tokenizer's ids and mask are such inputs."""
    np.savez(tmp_path / "a.npz", mask=np.ones(4, np.int64), ids=np.arange(4))
    infos = [TensorInfo(name, (1, None), "int64") for name in ("ids", "mask")]
    inputs = array_inputs(item_of_file(tmp_path, "a.npz"), make_loaded([], infos))
    assert {name: values.tolist() for name, values in inputs.items()} == {
        "ids": [[0, 1, 2, 3]],
        "mask": [[1, 1, 1, 1]],
    }
    with pytest.raises(
        ConfigError,
        match=r"item 'a\.npz' holds the arrays 'mask', 'ids', the model takes 'ids', 'types'",
    ):
        array_inputs(
            item_of_file(tmp_path, "a.npz"),
            make_loaded([], [infos[0], TensorInfo("types", (1, None), "int64")]),
        )


def test_what_does_not_fit_ends_in_one_line(tmp_path):
    """Another size, a file without an array and an empty item are refused."""
    np.save(tmp_path / "long.npy", np.zeros(7, np.float32))
    (tmp_path / "text.npy").write_text("text")
    (tmp_path / "odd.bin").write_bytes(b"123")
    for name, words in (
        ("long.npy", "has the shape"),
        ("text.npy", "is no array"),
        ("odd.bin", "is no array"),
        ("no.npy", "cannot read"),
    ):
        with table_row(name), pytest.raises(ConfigError, match=words):
            array_inputs(item_of_file(tmp_path, name), make_loaded([], [FLOAT]))


NAMED = {"mask": np.zeros(2), "tokens": np.ones(3)}
TASK = SimpleNamespace(prepare=lambda _index: [NAMED])


def test_inputs_come_in_the_order_of_the_model():
    """Inputs are ordered by name; a model that declares none takes them as given."""
    declared = make_loaded(inputs=tensors((3,), (2,), names=("tokens", "mask")))
    assert [len(array) for array in prepared(TASK, 0, declared)[0]] == [3, 2]
    assert [len(array) for array in prepared(TASK, 0, make_loaded())[0]] == [2, 3]
    # One too many, another name, one twice, one missing: with both lists.
    for names in [
        ("tokens",),
        ("tokens", "masks"),
        ("tokens", "mask", "mask"),
        ("tokens", "mask", "kinds"),
    ]:
        declared = make_loaded(inputs=tensors(*[(1,)] * len(names), names=names))
        with (
            table_row(names),
            pytest.raises(
                ConfigError, match=r"prepares the inputs 'mask', 'tokens', the model takes 'tokens'"
            ),
        ):
            prepared(TASK, 0, declared)


def test_an_item_may_take_several_calls_and_takes_one_at_least():
    """Each call is in the model's order; a task that prepares none misunderstands its data."""
    declared = make_loaded(inputs=tensors((3,), (2,), names=("tokens", "mask")))
    twice = SimpleNamespace(prepare=lambda _index: [NAMED, NAMED])
    assert [[len(array) for array in call] for call in prepared(twice, 0, declared)] == [
        [3, 2],
        [3, 2],
    ]
    with pytest.raises(ConfigError, match="prepares no call of the model for item 7"):
        prepared(SimpleNamespace(prepare=lambda _index: []), 7, declared)
