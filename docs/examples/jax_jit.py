"""Measure a JAX function: `edgemeter run jax_jit.py:make`.

A query ends when its result is there.
"""

import jax
import jax.numpy as jnp

from edgemeter.plugin import PythonModel

WEIGHTS = jax.random.normal(jax.random.key(0), (16, 3, 3, 3))


def make() -> PythonModel:
    """Return the model. `place` puts the inputs on the device before a query is timed."""
    call = jax.jit(
        lambda images: jnp.maximum(jax.lax.conv(images, WEIGHTS, (2, 2), "SAME"), 0).mean((2, 3))
    )
    return PythonModel(
        call=call,
        inputs={"images": ("float32", (1, 3, 224, 224))},
        place=jax.device_put,
        backend="jit",
    )
