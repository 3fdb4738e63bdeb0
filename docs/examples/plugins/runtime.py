"""A runtime for a dense layer in NumPy: `edgemeter run net.npy --runtime runtime.py:DenseLayer`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgemeter.plugin import (
    Array,
    ConfigError,
    Loaded,
    Options,
    Runtime,
    TensorInfo,
    check_inputs,
    check_options,
)


class DenseLayer(Runtime):
    """Runs an .npy file that holds the weights and, in its last row, the bias."""

    def load(self, model: Path, options: Options) -> Loaded:
        check_options("dense layer", options, backends=("cpu",))
        # Import a heavy library before this line, and return the time instead of 0.
        started_ns = time.monotonic_ns()
        try:
            self.weights = np.load(model)
            rows, columns = self.weights.shape
        except (OSError, ValueError, EOFError) as error:
            raise ConfigError(f"{model} is no dense layer: give an .npy with a matrix") from error
        self.inputs = (TensorInfo("x", (1, rows - 1), "float32"),)
        outputs = (TensorInfo("y", (1, columns), "float32"),)
        load_ns = time.monotonic_ns() - started_ns
        return Loaded("numpy", np.__version__, "cpu", self.inputs, outputs, {}, 0, load_ns)

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        check_inputs(inputs, self.inputs)
        x = np.array(inputs[0])

        def call() -> None:
            self.output = x @ self.weights[:-1] + self.weights[-1]

        return call  # Only this call is timed. It must return when the results are there.

    def outputs(self) -> list[Array]:
        return [self.output.copy()]

    def close(self) -> None:
        self.weights = None  # Release everything. This may be called at any time, and twice.
