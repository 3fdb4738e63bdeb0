"""Python: any framework's model, returned by your function `FILE.py:make` or `package.module:make`.

- Factory: `make` gets each `--option KEY=VALUE` as text, and `threads` and `backend` if it has
  these parameters. It returns a callable and its inputs, such as `{"image": ("float32", (1, 3, 224,
  224))}`, or a `PythonModel` of `edgemeter.plugin`.
- Call: it takes a numpy array for each input. Edgemeter waits for results of PyTorch, JAX and
  TensorFlow; for another library give `PythonModel(wait=...)`.
- Cold start: `import` is the module, `load` the factory and `first` the first call. If the first
  call compiles, `compile` is the time by which it exceeds later calls.
- Identity: a hash of the source, the weights and the other files that were used.
- `edgemeter fleet run` cannot measure a function.

Tested with: PyTorch 2.13.0 and JAX 0.10.2 on the CPU. The first call is on noise (integers: 0) if
shapes are declared. Files count if options name them or they are next to the code, until the end of
the first call, with open shapes until the end of loading. Hidden files do not count, and a folder
of more than 1000 files or 16 GB counts only as `weights`. None in a shape is an open size. A
`PythonModel` can also state weights, class names and more. Orders carry no code. The model's name
is `name` of its metadata, else that of the weights or of the factory.
"""

import gc
import logging
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo
from edgemeter.agent.runtimes.adapter import check_inputs, describe_tensor, shape_fits
from edgemeter.agent.runtimes.call_evidence import (
    CallEvidence,
    contradicts,
    evidence_of,
    outputs_of,
)
from edgemeter.agent.runtimes.call_results import (
    Wait,
    arrays_of,
    refuse_unseen,
    wait_for_placed,
    waits_for,
)
from edgemeter.agent.runtimes.python_files import (
    NotedFiles,
    files_of_options,
    files_of_weights,
    opened,
    sources,
)
from edgemeter.agent.runtimes.python_model import (
    PythonModel,
    keywords_of,
    model_of,
    name_of,
    target_of,
    version_of,
    versions_of,
)
from edgemeter.agent.sandbox.user_code import attribute_of, compiled, forget, raised, user_errors

logger = logging.getLogger(__name__)
# Frameworks whose versions are facts if a factory names no packages.
_FRAMEWORKS = ("torch", "jax", "tensorflow")
# First words of backends whose first call compiles.
_COMPILERS = ("jit", "compile", "function")
_COLLECTED_EVERY_NS = 100_000_000


class PythonFactory(Runtime):
    """Runs the model that a factory returns."""

    def __init__(self) -> None:
        self._model: PythonModel | None = None
        self._outputs: tuple[TensorInfo, ...] = ()
        self._waits: Sequence[Wait] | None = None
        self._last: Any = None
        self._arguments: Sequence[object] = ()
        self._backend: str | None = None
        self._evidence: CallEvidence | None = None
        self._leaves_garbage, self._collected_ns = True, 0

    def load(self, model: Path, options: Options) -> Loaded:
        """Import the module, call the factory, and make the first call; see `Runtime.load`.

        The first call is made only if the shapes are declared.
        """
        target, address = target_of(model, options), str(model)
        forget()
        noted = NotedFiles()
        with noted:
            begin_ns = time.monotonic_ns()
            factory = attribute_of(target, address)
            import_ns = time.monotonic_ns() - begin_ns
            keywords = keywords_of(factory, options, address)
            begin_ns = time.monotonic_ns()
            with user_errors(address, "the factory"):
                returned = factory(**keywords)
            factory_ns = time.monotonic_ns() - begin_ns
        python_model = self._model = model_of(returned, address)
        self._outputs, self._waits = (
            python_model.outputs,
            None if python_model.wait is None else [python_model.wait],
        )
        self._backend = options.backend
        with noted:
            first_ns = self._first_call(python_model, address)
        weights = files_of_weights(python_model.weights, address)
        named = files_of_options(options.extra, address, has_weights=bool(weights))
        further: dict[Path, Path] = {}
        for path in (target.source, *sources(target), *weights, *named, *opened(target, noted)):
            further.setdefault(path.resolve(), path)
        del further[target.source.resolve()]
        return self.with_late_facts(
            Loaded(
                package="python",
                version=platform.python_version(),
                backend="callable",
                inputs=python_model.inputs,
                outputs=self._outputs,
                metadata=python_model.metadata,
                import_ns=import_ns,
                load_ns=max(1, factory_ns),
                name=name_of(python_model, target),
                sha256=model_file.sha256(model, further.values()),
                size_bytes=sum(
                    path.stat().st_size for path in (*model_file.parts(model), *further.values())
                ),
                first_ns=first_ns,
                compiles_at_call=python_model.compiles
                or python_model.backend.partition(",")[0] in _COMPILERS,
                threads_reason=None
                if "threads" in keywords
                else "the factory takes no `threads`: its library chooses their number",
            )
        )

    def check(self, model: Path, options: Options) -> None:
        """Raise if the source is absent, or is not Python; nothing is run. See `Runtime.check`."""
        compiled(target_of(model, options).source, str(model))

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs to where the model reads them, and return its call.

        The call waits for the results.
        """
        python_model = self._loaded()
        check_inputs(inputs, python_model.inputs)
        if self._leaves_garbage and time.monotonic_ns() > self._collected_ns + _COLLECTED_EVERY_NS:
            # The collector is off while queries are timed, so garbage in cycles is collected
            # between them.
            gc.collect()
            self._collected_ns = time.monotonic_ns()
        # Freed before the copies are made, so that these reuse the memory of the last query, as in
        # a user's loop.
        self._last, self._arguments = None, ()
        copies = [np.array(array, order="C") for array in inputs]
        self._arguments = arguments = (
            copies
            if python_model.place is None
            else [python_model.place(array) for array in copies]
        )
        if python_model.place is not None:
            wait_for_placed(arguments)
        function, waits = python_model.call, self._waits

        def call() -> None:
            self._last = function(*arguments)

        def call_and_wait() -> None:
            self._last = result = function(*arguments)
            # The first result shows how to wait.
            if self._waits is None:
                self._waits = waits_for(result, arguments, function)
                if python_model.arrays is not None:
                    refuse_unseen(result)
            for wait in self._waits:
                wait(result)

        return call if waits is not None and not waits else call_and_wait

    def outputs(self) -> list[Array]:
        """Return copies of the last call's arrays.

        They must be as declared, or as in the first calls.
        """
        python_model = self._loaded()
        if self._last is None:
            raise MeasurementError(
                "the model has no output: run a query first, and let the call return its results"
            )
        arrays = (
            arrays_of(self._last)
            if python_model.arrays is None
            else [np.array(array) for array in python_model.arrays(self._last)]
        )
        if self._outputs and len(arrays) != len(self._outputs):
            raise MeasurementError(
                f"the model returned {len(arrays)} arrays, not {len(self._outputs)}: return as "
                "many each time, as declared"
            )
        for array, info in zip(arrays, self._outputs, strict=False):
            if array.dtype.name != info.dtype or not shape_fits(array.shape, info.shape):
                raise MeasurementError(
                    f"{info.name} was {describe_tensor(array.dtype.name, array.shape)}, not "
                    f"{describe_tensor(info.dtype, info.shape)} as "
                    "declared or in the first call: let a PythonModel declare its outputs, with "
                    "None for sizes that vary"
                )
        return arrays

    def close(self) -> None:
        """Release the model.

        An error of its `close` is logged, because the run is already measured.
        """
        python_model, self._model, self._last, self._arguments = self._model, None, None, ()
        if python_model is not None and python_model.close is not None:
            try:
                python_model.close()
            # It is the user's code, and may raise anything.
            except (Exception, SystemExit) as error:  # noqa: BLE001
                logger.warning("the model's `close` raised %s", raised(error))

    def _loaded(self) -> PythonModel:
        if self._model is None:
            raise MeasurementError("no model is loaded: load one first")
        return self._model

    def with_late_facts(self, loaded: Loaded) -> Loaded:
        """Return `loaded` with framework, backend and precision; see `Runtime.with_late_facts`.

        They come from the model or from its calls.

        Raises:
            ConfigError: the model did not run on the requested backend.
        """
        python_model = self._loaded()
        if self._evidence is None and self._last is not None:
            self._evidence = evidence_of(self._last, self._arguments, python_model.call)
        evidence = self._evidence or CallEvidence()
        imported = [name for name in _FRAMEWORKS if name in sys.modules]
        packages = python_model.packages or tuple(
            name for name in imported if name in evidence.libraries or len(imported) == 1
        )
        if self._backend and contradicts(self._backend, evidence.devices):
            raise ConfigError(
                f"backend {self._backend!r} was asked for, but the model ran on "
                f"{', '.join(evidence.devices)}: correct its factory"
            )
        return replace(
            loaded,
            package=packages[0] if packages else "python",
            version=versions_of(packages) if packages else platform.python_version(),
            backend=python_model.backend
            or self._backend
            or ",".join(("callable", *evidence.devices)),
            facts={name: version_of(name) for name in python_model.packages or imported},
            # The types of inputs and outputs do not count, because a model may convert both.
            precision=python_model.precision or evidence.precision or "unknown",
        )

    def _first_call(self, python_model: PythonModel, address: str) -> int | None:
        """Make the first calls, which show the outputs' shapes, and return the ns of the first.

        They are made if the sizes of the inputs are known.

        Raises:
            ConfigError: the call failed, or its result cannot be used.
        """
        if any(size is None for info in python_model.inputs for size in info.shape[1:]):
            return None
        zeros = [
            np.zeros([size or 1 for size in info.shape], info.dtype) for info in python_model.inputs
        ]
        draw = np.random.default_rng(0)
        noise = [
            draw.random(array.shape, np.float32).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for array in zeros
        ]
        inputs = ", ".join(
            f"{info.name} {describe_tensor(info.dtype, info.shape)}" for info in python_model.inputs
        )
        with user_errors(
            address, f"the first call, on {inputs},", "; declare the inputs that it takes"
        ):
            call = self.bind(noise)
            begin_ns = time.monotonic_ns()
            call()
            first_ns = time.monotonic_ns() - begin_ns
            self._evidence = evidence_of(self._last, self._arguments, python_model.call)
            first = self.outputs()
            gc.collect()
            self.bind(zeros)()
            self._leaves_garbage = gc.collect() > 0
            self._outputs = self._outputs or outputs_of(
                first,
                self.outputs(),
                is_open_batch=any(info.shape[:1] == (None,) for info in python_model.inputs),
            )
            self._last = None
        return first_ns
