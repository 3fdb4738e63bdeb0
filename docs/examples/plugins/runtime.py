"""A runtime of one's own: dense layers in NumPy, `edgemeter run net.npz --runtime runtime.py:DenseLayers`.

Model: an `.npz` with the arrays w0, b0, w1, b1, ..., each layer relu(x @ w + b), the last without relu. Backends: cpu. Options: none.
"""

import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgemeter.plugin import Array, ConfigError, Loaded, Options, TensorInfo, check_inputs, check_options, model_head


class DenseLayers:
    """Runs one model; the contract is `edgemeter.plugin.Runtime`."""

    def __init__(self) -> None:
        # Import a heavy library in `load`, where its time is counted.
        self._layers: list[tuple[Array, Array]] = []
        self._inputs: tuple[TensorInfo, ...] = ()
        self._output = np.zeros(0, np.float32)

    def load(self, model: Path, options: Options) -> Loaded:
        """Read the model."""
        check_options("dense layers", options, backends=("cpu",))
        started_ns = time.monotonic_ns()
        # Refuses what is absent, empty, a folder or a pointer of Git LFS.
        model_head(model)
        try:
            with model.open("rb") as file, np.load(file) as arrays:
                self._layers = [(arrays[f"w{number}"], arrays[f"b{number}"]) for number in range(len(arrays) // 2)]
            (first, _), (last, _) = self._layers[0], self._layers[-1]
        except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{str(model)!r} is no model of dense layers: it needs the arrays w0, b0, ...") from error
        self._inputs = (TensorInfo("x", (1, first.shape[0]), "float32"),)
        return Loaded(
            package="numpy",
            version=np.__version__,
            backend="cpu",
            inputs=self._inputs,
            outputs=(TensorInfo("y", (1, last.shape[1]), "float32"),),
            metadata={},
            import_ns=0,
            load_ns=time.monotonic_ns() - started_ns,
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the input; return the call that is timed, which runs the model, waits for its results, and does nothing else."""
        check_inputs(inputs, self._inputs)
        x = np.array(inputs[0])

        def call() -> None:
            values = x
            for weights, bias in self._layers[:-1]:
                values = np.maximum(values @ weights + bias, 0)
            weights, bias = self._layers[-1]
            self._output = values @ weights + bias

        return call

    def outputs(self) -> list[Array]:
        """Return a copy of the last call's output."""
        return [self._output.copy()]

    def close(self) -> None:
        """Release everything; may come at any time, and twice."""
