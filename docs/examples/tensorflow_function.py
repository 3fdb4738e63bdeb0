"""Measure a Keras model: `edgemeter run tensorflow_function.py:make`.

Load your own model with keras.models.load_model.
"""

import tensorflow as tf

from edgemeter.plugin import PythonModel


def make(threads: int = 1) -> PythonModel:
    """Return the model. `place` makes tensors of the inputs before a query is timed."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    net = tf.keras.Sequential(
        [
            tf.keras.Input((224, 224, 3)),
            tf.keras.layers.Conv2D(16, 3, 2),
            tf.keras.layers.GlobalAveragePooling2D(),
        ]
    )
    return PythonModel(
        call=tf.function(net),
        inputs={"images": ("float32", (1, 224, 224, 3))},
        place=tf.constant,
        backend="function,cpu",
    )
