"""TensorFlow: the numbers of the plain model from a SavedModel and from Keras files, tracings counted, code refused."""

import importlib
import time

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError

# TensorFlow's parts speak of each other.
pytestmark = [pytest.mark.needs(module="keras"), pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
FACTORY = "tensorflow_saved_model"


@pytest.fixture(scope="module")
def tf():
    """Return the library with the threads of the tests, which can be set before its first use only."""
    tensorflow = importlib.import_module("tensorflow")
    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    return tensorflow


@pytest.fixture(scope="module")
def network(tf):
    """Return a small network of Keras."""
    layers = tf.keras.layers
    parts = [
        layers.Input((8, 8, 3), name="image"),
        layers.Conv2D(4, 3, activation="relu"),
        layers.Dropout(0.9),
        layers.GlobalAveragePooling2D(),
    ]
    return tf.keras.Sequential([*parts, layers.Dense(5, name="scores")])


@pytest.fixture
def x():
    """Return two pictures."""
    return np.random.default_rng(1).random((2, 8, 8, 3), np.float32)


@pytest.mark.parametrize("name", ["net.keras", "net.h5", "saved"])
def test_outputs_are_those_of_the_plain_model(drive, network, x, tmp_path, name):
    """Each format has the same numbers, without dropout, to rounding."""
    path = tmp_path / name
    network.export(path, verbose=False) if name == "saved" else network.save(path)
    model = drive(FACTORY, model=path)
    np.testing.assert_allclose(model(x)[0], network(x, training=False).numpy(), rtol=1e-5, atol=1e-6)
    assert [(info.shape, info.dtype) for info in (*model.loaded.inputs, *model.loaded.outputs)] == [
        ((None, 8, 8, 3), "float32"),
        ((None, 5), "float32"),
    ]
    assert (model.loaded.backend, model.loaded.name) == ("function,cpu", name.partition(".")[0])


def test_another_shape_is_traced_again(drive, network, x, tmp_path):
    """The same shape is not; what a SavedModel has was traced when it was saved."""
    network.save(tmp_path / "net.keras")
    model = drive(FACTORY, model=tmp_path / "net.keras")
    counts = []
    for pictures in (x, x, x[:1].repeat(3, 0)):
        model(pictures)
        counts.append(int(model.facts()["compilations"]))
    assert [count - counts[0] for count in counts] == [0, 0, 1]
    network.export(tmp_path / "saved", verbose=False)
    saved = drive(FACTORY, model=tmp_path / "saved")
    saved(x)
    assert saved.facts() == {"compilations": "0", "compiled_ns": ""}


@pytest.mark.alone
def test_a_signature_has_its_inputs_in_the_order_of_their_names(drive, tf, tmp_path):
    """TensorFlow's own order changes from load to load; a query returns when a slow operator has ended."""

    class Twice(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x"), tf.TensorSpec([None], tf.int32, name="add")])
        def twice(self, x, add):
            for _ in tf.range(2_000):
                x = x + tf.reduce_sum(tf.zeros((300, 300)))
            return {"sum": x * 2 + tf.cast(add, tf.float32), "double": x * 2}

    doubled = Twice()
    tf.saved_model.save(doubled, str(tmp_path / "twice"), signatures={"twice": doubled.twice})
    for _ in range(3):
        model = drive(FACTORY, model=tmp_path / "twice", signature="twice")
        assert [info.name for info in model.loaded.inputs] == ["add", "x"]
        assert [info.name for info in model.loaded.outputs] == sorted(info.name for info in model.loaded.outputs)
        assert [array.tolist() for array in model(np.array([1], np.int32), np.array([3], np.float32))] == [[6], [7]]
    query = model.runtime.bind([np.array([1], np.int32), np.array([3], np.float32)])
    begin = time.monotonic()
    query()
    query_s = time.monotonic() - begin
    begin = time.monotonic()
    model.runtime.outputs()
    assert time.monotonic() - begin < query_s / 2


def test_code_in_a_file_of_keras_is_refused(drive, tf, tmp_path):
    """`safe_mode` stays on."""
    layers = tf.keras.layers
    tf.keras.Sequential([layers.Input((2,)), layers.Lambda(lambda value: value * 2)]).save(tmp_path / "code.keras")
    with pytest.raises(ConfigError, match="without Lambda layers") as raised:
        drive(FACTORY, model=tmp_path / "code.keras")
    assert "\n" not in str(raised.value)


def test_bad_options_are_one_line(drive, network, tmp_path):
    """Each names what was given and what would do."""
    network.export(tmp_path / "saved", verbose=False)
    (tmp_path / "broken.keras").write_bytes(b"no zip")
    for options, message in [
        ({"model": tmp_path / "absent"}, "does not exist"),
        ({"model": tmp_path}, "neither the folder of a SavedModel"),
        ({"model": tmp_path / "saved", "signature": "serving"}, "did you mean serve or serving_default"),
        ({"model": tmp_path / "broken.keras"}, "loading model="),
        ({"model": tmp_path / "saved", "threads": 7}, "do not use it before"),
    ]:
        with pytest.raises(ConfigError, match=message) as raised:
            drive(FACTORY, **options)
        assert "\n" not in str(raised.value)
    with pytest.raises(UnavailableError, match="sees no gpu"):
        drive(FACTORY, model=tmp_path / "saved", backend="gpu")
