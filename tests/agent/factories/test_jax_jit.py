"""JAX: the numbers of the plain function, results that are waited for, and compilations counted."""

import importlib

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError

pytestmark = [pytest.mark.needs(module="jax"), pytest.mark.slow]
FACTORY = "jax_jit"
FUNCTIONS = """
import jax, jax.numpy as jnp

def apply(weights, x):
    return {"y": jnp.tanh(x @ weights["w"] + weights["b"])}

def plain(x):
    return x * 2

def half(x):
    return x.astype(jnp.bfloat16) + 1

def slow(x):
    return jax.lax.fori_loop(0, 20, lambda _, product: product @ x / 1000, x)
"""


@pytest.fixture
def functions(tmp_path):
    """Return a file of functions, as a user has one."""
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    return path


@pytest.fixture
def weights():
    """Return arrays by name."""
    draw = np.random.default_rng(2)
    return {"w": draw.random((4, 2), np.float32), "b": draw.random(2, np.float32)}


def test_outputs_are_those_of_the_plain_function(drive, functions, weights, tmp_path):
    """Its weights come from the .npz; it was compiled once."""
    np.savez(tmp_path / "net.npz", **weights)
    model = drive(FACTORY, function=f"{functions}:apply", weights=tmp_path / "net.npz", input="3x4")
    x = np.random.default_rng(1).random((3, 4), np.float32)
    np.testing.assert_allclose(model(x)[0], np.tanh(x @ weights["w"] + weights["b"]), rtol=1e-5)
    assert (model.loaded.backend, model.loaded.name, model.facts()["compilations"]) == ("jit,cpu", "net", "1")
    assert set(model.loaded.facts) == {"jax", "jaxlib"}


@pytest.mark.needs(module="safetensors")
def test_weights_may_be_safetensors(drive, functions, weights, tmp_path):
    """The same numbers from the other format."""
    importlib.import_module("safetensors.numpy").save_file(weights, tmp_path / "net.safetensors")
    x = np.ones((3, 4), np.float32)
    expected = np.tanh(x @ weights["w"] + weights["b"])
    model = drive(FACTORY, function=f"{functions}:apply", weights=tmp_path / "net.safetensors", input="3x4")
    np.testing.assert_allclose(model(x)[0], expected, rtol=1e-5)


@pytest.mark.alone
def test_results_are_waited_for(drive, functions):
    """A query lasts until its result is there, though JAX returns from the call long before."""
    model = drive(FACTORY, function=f"{functions}:slow", input="1000x1000")
    x = np.ones((1000, 1000), np.float32)
    python_model = model.runtime._model
    argument = python_model.place(x)
    # On a busy machine the result may be there before anybody looks.
    assert not all(python_model.call(argument).is_ready() for _ in range(20))
    query = model.runtime.bind([x])
    for _ in range(5):
        query()
        assert model.runtime._last.is_ready()


def test_a_dtype_that_numpy_lacks_is_read_as_float32(drive, functions):
    """It is computed in bfloat16: 2**-8 above 1 is lost."""
    assert drive(FACTORY, function=f"{functions}:half", input="2")(np.array([2**-7, 2**-8], np.float32))[0].tolist() == [1 + 2**-7, 1]


def test_a_second_shape_compiles_again(drive, functions):
    """The same shape does not."""
    model = drive(FACTORY, function=f"{functions}:plain", input="?x4")
    counts = []
    for batch in (2, 2, 3):
        model(np.ones((batch, 4), np.float32))
        counts.append(int(model.facts()["compilations"]))
    assert [count - counts[0] for count in counts] == [0, 0, 1]


def test_a_saved_export_declares_its_inputs(drive, tmp_path):
    """StableHLO, with an open batch; equal to what was exported."""
    jax, export = importlib.import_module("jax"), importlib.import_module("jax.export")
    argument = jax.ShapeDtypeStruct(export.symbolic_shape("batch, 4"), "float32")
    program = export.export(jax.jit(lambda x: jax.numpy.sin(x) * 2))(argument)
    (tmp_path / "wave.jaxexport").write_bytes(program.serialize())
    model = drive(FACTORY, file=tmp_path / "wave.jaxexport")
    assert [(info.shape, info.dtype) for info in (*model.loaded.inputs, *model.loaded.outputs)] == [((None, 4), "float32")] * 2
    x = np.random.default_rng(1).random((3, 4), np.float32)
    np.testing.assert_allclose(model(x)[0], np.sin(x) * 2, rtol=1e-6)
    assert model.loaded.name == "wave"


def test_bad_options_are_one_line(drive, functions, tmp_path):
    """Each names what was given and what would do."""
    (tmp_path / "weights.pkl").write_bytes(b"")
    (tmp_path / "broken.jaxexport").write_bytes(b"no export")
    for options, message in [
        ({}, "function=FILE.py:NAME"),
        ({"function": f"{functions}:apply", "input": "3x4", "weights": tmp_path / "weights.pkl"}, "a pickle is not opened"),
        ({"function": f"{functions}:aply", "input": "3x4"}, "did you mean apply"),
        ({"function": f"{functions}:apply", "input": "3x4"}, "first call"),
        ({"file": tmp_path / "broken.jaxexport"}, "serialize"),
        ({"file": tmp_path / "absent.jaxexport"}, "does not exist"),
        ({"file": tmp_path / "broken.jaxexport", "function": "x:y"}, "leave function"),
    ]:
        with pytest.raises(ConfigError, match=message) as raised:
            drive(FACTORY, **options)
        assert "\n" not in str(raised.value)
    with pytest.raises(UnavailableError, match="sees no gpu"):
        drive(FACTORY, backend="gpu", function=f"{functions}:plain", input="3")
