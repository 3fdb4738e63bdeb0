"""LiteRT: TensorFlow Lite models (.tflite) on a CPU, GPU or NPU.

- Library: `pip install 'edgemeter[litert]'`. On 32-bit Arm: `edgemeter[tflite]`, for Python up to
  3.11 with numpy 1.
- CPU backends: `xnnpack`, `builtin` (no delegate) or `reference` (slow loops, to compare outputs
  with). Default: the library's choice, which the record names.
- Accelerators: `gpu` (Vulkan) and `npu` (with the vendor's package) use CompiledModel, and so does
  `cpu-compiled`. A model that does not fit an accelerator whole is refused. With `gpu,cpu` or
  `npu,cpu` it is split, and the record counts the operators on each.
- Setting: a GPU computes in fp32 unless you set `precision = "auto"`. An NPU always uses `auto`.
- Timed: `invoke` or `run_by_index`. On `gpu` and `npu`, reading the outputs is timed too, because
  the call returns early.

Tested with: ai-edge-litert 2.3.0 (a GPU in software, by hand an NVIDIA H200) and tflite-runtime
2.14.0. tflite-runtime 2.14 runs quantised models without XNNPACK by default, ai-edge-litert 2.3
with it. Inputs are copied before the timed part, outputs after it. A GPU's run returned after 0.1
of 75 ms. `reference` is some forty times slower. A package for an NPU is
ai-edge-litert-sdk-qualcomm.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo, adapter
from edgemeter.agent.runtimes.litert_compiled import BACKENDS, CompiledGraph, recorded_backend
from edgemeter.agent.runtimes.tflite_file import TfliteFile, read_tflite

CANDIDATES = (
    adapter.LibraryCandidate(
        "ai_edge_litert.interpreter", ("ai-edge-litert", "ai-edge-litert-nightly")
    ),
    adapter.LibraryCandidate(
        "tflite_runtime.interpreter", ("tflite-runtime", "tflite-runtime-nightly")
    ),
)
# The library's names for the kernels of the Interpreter's backends.
_KERNELS = {
    "xnnpack": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}
# The operator in a file for parts that were compiled for an Edge TPU.
EDGE_TPU = "edgetpu-custom-op"
# Names made up by a converter; a signature's name is better.
_OPAQUE = re.compile(
    r"(StatefulPartitionedCall|PartitionedCall|Identity)(_\d+)?(:\d+)?|serving_default_\w+:\d+"
)


class LiteRt(Runtime):
    """Runs a .tflite model with the Interpreter or as a CompiledModel."""

    def __init__(self) -> None:
        self._interpreter: Any = None
        self._compiled: CompiledGraph | None = None
        self._inputs: tuple[TensorInfo, ...] = ()
        # Shapes and dtypes of the inputs that were bound last.
        self._forms: list[tuple[Any, ...]] | None = None
        self._indices: list[int] = []

    def check(self, model: Path, options: Options) -> None:
        settings = ("precision",) if (options.backend or "").startswith("gpu") else ()
        adapter.check_options("litert", options, backends=(*_KERNELS, *BACKENDS), extra=settings)
        if EDGE_TPU in read_tflite(model).custom_uses:
            raise ConfigError(
                f"{str(model)!r} is compiled for the Edge TPU (custom op {EDGE_TPU}); run the "
                "CPU version of the model here, "
                "or this one with the runtime edgetpu on a machine with a Coral"
            )

    def load(self, model: Path, options: Options) -> Loaded:
        self.check(model, options)
        is_compiled = options.backend in BACKENDS
        library = adapter.load_library(CANDIDATES[:1] if is_compiled else CANDIDATES, "litert")
        # For a compiled model, an interpreter that runs nothing shows facts about tensors that the
        # library does not report.
        kernels = _KERNELS["builtin" if is_compiled else options.backend or "xnnpack"]
        make = (
            library.module.Interpreter
            if is_compiled
            else partial(open_interpreter, library, options.threads)
        )
        started_ns = time.monotonic_ns()
        try:
            interpreter = make(
                model_path=str(model),
                experimental_op_resolver_type=getattr(library.module.OpResolverType, kernels),
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(
                f"{library.package} {library.version} cannot run {str(model)!r}: "
                f"{one_line(error)}; convert the model again, "
                "with builtin operators only"
            ) from error
        load_ns, file = time.monotonic_ns() - started_ns, read_tflite(model)
        if not is_compiled:
            return self._take(
                interpreter,
                file,
                library,
                _backend(interpreter, options, model, library),
                load_ns,
                {},
            )
        indices = [
            [int(entry["index"]) for entry in ends]
            for ends in (interpreter.get_input_details(), interpreter.get_output_details())
        ]
        loaded = self._take(interpreter, file, library, recorded_backend(options), load_ns, {})
        self._interpreter = interpreter = None
        started_ns = time.monotonic_ns()
        self._compiled = CompiledGraph(model, options, file, loaded, indices)
        return replace(loaded, load_ns=time.monotonic_ns() - started_ns, facts=self._compiled.facts)

    def _take(
        self,
        interpreter: Any,
        file: TfliteFile,
        library: adapter.RuntimeLibrary,
        backend: str,
        load_ns: int,
        facts: Mapping[str, str],
    ) -> Loaded:
        """Keep an interpreter that is ready to run; return the facts about its model."""
        self._interpreter = interpreter
        self._inputs = tuple(
            _info(details, file.inputs) for details in interpreter.get_input_details()
        )
        return library.loaded(
            backend=backend,
            inputs=self._inputs,
            outputs=tuple(
                _info(details, file.outputs) for details in interpreter.get_output_details()
            ),
            metadata=file.metadata,
            load_ns=load_ns,
            facts=facts,
            precision=file.precision,
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs into the interpreter; return its `invoke`, or a compiled model's run."""
        # Checking against the model for each query would evict more of the caches (+0.1% for a
        # model of 0.6 ms).
        forms = [(array.shape, array.dtype) for array in inputs]
        try:
            if forms != self._forms:
                adapter.check_inputs(inputs, self._inputs)
                self._forms = None
                (self._compiled.resize if self._compiled else self._resize)(inputs)
                self._forms = forms
            if self._compiled is not None:
                return self._compiled.bind(inputs)
            for index, array in zip(self._indices, inputs, strict=True):
                self._interpreter.set_tensor(index, array)
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"LiteRT rejects the input: {one_line(error)}") from error
        call: Callable[[], object] = self._interpreter.invoke
        return call

    def _resize(self, inputs: Sequence[Array]) -> None:
        details = self._interpreter.get_input_details()
        self._indices = [entry["index"] for entry in details]
        resized = [
            (entry, array)
            for entry, array in zip(details, inputs, strict=True)
            if tuple(entry["shape"]) != array.shape
        ]
        for entry, array in resized:
            self._interpreter.resize_tensor_input(entry["index"], array.shape)
        if resized:
            self._interpreter.allocate_tensors()

    def outputs(self) -> list[Array]:
        if self._compiled is not None:
            return self._compiled.outputs()
        try:
            return [
                self._interpreter.get_tensor(details["index"])
                for details in self._interpreter.get_output_details()
            ]
        except ValueError as error:
            raise MeasurementError(
                f"LiteRT has no output: {one_line(error)}; run a query first"
            ) from error

    def close(self) -> None:
        self._interpreter = self._forms = None
        # A compiled model prints a line for each accelerator that it releases.
        with adapter.captured_stderr():
            self._compiled = None
        self._inputs = ()


def open_interpreter(library: adapter.RuntimeLibrary, threads: int, **settings: Any) -> Any:
    """Return an interpreter with allocated tensors; raises ValueError or RuntimeError."""
    interpreter = library.module.Interpreter(num_threads=threads, **settings)
    interpreter.allocate_tensors()
    return interpreter


def _backend(
    interpreter: Any, options: Options, model: Path, library: adapter.RuntimeLibrary
) -> str:
    """Return the backend that runs the model: XNNPACK only if it took at least one operator."""
    # No public function shows the operators of a delegate.
    is_delegated = any(
        operator["op_name"] == "DELEGATE"
        for operator in interpreter._get_ops_details()  # noqa: SLF001
    )
    backend = "xnnpack" if is_delegated else "builtin"
    if options.backend == "xnnpack" != backend:
        raise UnavailableError(
            f"XNNPACK takes no operator of {str(model)!r} in {library.package} {library.version}: "
            "leave the backend out, or choose builtin, to measure the kernels that do run it"
        )
    return "reference" if options.backend == "reference" else backend


def _info(details: Mapping[str, Any], names: Mapping[int, str]) -> TensorInfo:
    """Return one tensor as the model declares it; the signature's name replaces a converter's."""
    import numpy as np  # noqa: PLC0415 - a session reads this file too, and needs no NumPy

    name = str(details["name"])
    if _OPAQUE.fullmatch(name):
        name = names.get(int(details["index"]), name)
    sizes = details["shape_signature"] if len(details["shape_signature"]) else details["shape"]
    shape, dtype = (
        tuple(None if size < 0 else int(size) for size in sizes),
        np.dtype(details["dtype"]),
    )
    scales, zero_points = (
        details["quantization_parameters"]["scales"],
        details["quantization_parameters"]["zero_points"],
    )
    # A float tensor may have the parameters that it was quantised from, but its values are real.
    if dtype.kind in "iu" and len(scales) == 1 and float(scales[0]) != 0:
        return TensorInfo(name, shape, dtype.name, float(scales[0]), int(zero_points[0]))
    return TensorInfo(name, shape, dtype.name)
