"""LiteRT: TensorFlow Lite models (.tflite) on the CPU, a GPU or an NPU, by ai-edge-litert or, where there is none, tflite-runtime (CPU).

Library: `pip install 'edgemeter[litert]'`; on 32-bit ARM `edgemeter[tflite]`, for Python up to 3.11 with numpy 1.
Backends of the Interpreter: `xnnpack` (its own default), `builtin` (the kernels without a delegate) or `reference` (plain loops, some forty
times slower, to compare outputs with). Without a backend, the record names what ran: tflite-runtime 2.14 does not give
XNNPACK quantised models, ai-edge-litert 2.3 does.
Backends of CompiledModel: `cpu-compiled`, `gpu` (WebGPU on Vulkan) or `npu` (with its vendor's package, e.g. ai-edge-litert-sdk-qualcomm).
A model that the accelerator does not take whole is refused; with `gpu,cpu` or `npu,cpu` it runs, and the operators on each are counted.
Setting: a GPU computes in f32 unless `precision = "auto"` (recorded `gpu,auto`); an NPU is `npu,auto`.
What is timed is `Interpreter.invoke` or `CompiledModel.run_by_index`; inputs are copied before, outputs after. On `gpu` and `npu` reading
outputs is timed: a GPU's run returns after 0.1 of 75 ms.
Tested with ai-edge-litert 2.3.0 (a GPU in software, by hand an NVIDIA H200; no NPU) and tflite-runtime 2.14.0.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.runtimes import Array, Loaded, Options, TensorInfo, litert_compiled, tflite_file
from edgemeter.agent.runtimes.adapter import LibraryCandidate, RuntimeLibrary, captured_stderr, check_inputs, check_options, load_library
from edgemeter.agent.runtimes.tflite_file import TfliteFile

CANDIDATES = (
    LibraryCandidate("ai_edge_litert.interpreter", ("ai-edge-litert", "ai-edge-litert-nightly")),
    LibraryCandidate("tflite_runtime.interpreter", ("tflite-runtime", "tflite-runtime-nightly")),
)
_BACKENDS = ("xnnpack", "builtin", "reference")
# Which kernels a backend gets, by the library's name; all others get its own choice.
_KERNELS = {"builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}
EDGE_TPU = "edgetpu-custom-op"
# Names that a converter made up; a signature's name is better.
_OPAQUE = re.compile(r"(StatefulPartitionedCall|PartitionedCall|Identity)(_\d+)?(:\d+)?|serving_default_\w+:\d+")


class LiteRt:
    """Runs a .tflite model on the CPU."""

    def __init__(self) -> None:
        self._interpreter: Any = None
        self._compiled: litert_compiled.CompiledGraph | None = None
        self._inputs: tuple[TensorInfo, ...] = ()
        # Of the inputs that were bound last: shape and dtype of each.
        self._forms: list[tuple[Any, ...]] | None = None
        self._indices: list[int] = []

    def check(self, model: Path, options: Options) -> None:
        """Raise as `load` what the options and the file show; see `Checks.check`."""
        _checked(model, options)

    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library, load the model, allocate its tensors; see `Runtime.load`."""
        file, is_compiled = _checked(model, options), options.backend in litert_compiled.BACKENDS
        library = load_library(CANDIDATES[:1] if is_compiled else CANDIDATES, "litert")
        if is_compiled:
            return self._load_compiled(model, options, file, library)
        started_ns = time.monotonic_ns()
        kind = getattr(library.module.OpResolverType, _KERNELS.get(options.backend or "", "AUTO"))
        try:
            interpreter = open_interpreter(model, options.threads, library, experimental_op_resolver_type=kind)
        except (ValueError, RuntimeError) as error:
            raise _cannot_run(model, library, error) from error
        load_ns = time.monotonic_ns() - started_ns
        return self._take(interpreter, file, library, _backend(interpreter, options, model, library), load_ns, {})

    def _load_compiled(self, model: Path, options: Options, file: TfliteFile, library: RuntimeLibrary) -> Loaded:
        """Compile the model for the accelerator; an interpreter, which runs nothing, has what the library does not tell of its tensors."""
        kind = library.module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        try:
            interpreter = library.module.Interpreter(model_path=str(model), experimental_op_resolver_type=kind)
        except (ValueError, RuntimeError) as error:
            raise _cannot_run(model, library, error) from error
        inputs, outputs = (
            {int(details["index"]): _info(details, names) for details in ends}
            for ends, names in ((interpreter.get_input_details(), file.inputs), (interpreter.get_output_details(), file.outputs))
        )
        del interpreter
        started_ns = time.monotonic_ns()
        self._compiled = litert_compiled.CompiledGraph(model, options, file, inputs, outputs)
        self._inputs = tuple(inputs.values())
        return library.loaded(
            backend=litert_compiled.recorded_backend(options),
            inputs=self._inputs,
            outputs=tuple(outputs.values()),
            metadata=file.metadata,
            load_ns=time.monotonic_ns() - started_ns,
            facts=self._compiled.facts,
            precision=file.precision,
        )

    def _take(
        self, interpreter: Any, file: TfliteFile, library: RuntimeLibrary, backend: str, load_ns: int, facts: Mapping[str, str]
    ) -> Loaded:
        self._interpreter = interpreter
        self._inputs = tuple(_info(details, file.inputs) for details in interpreter.get_input_details())
        return library.loaded(
            backend=backend,
            inputs=self._inputs,
            outputs=tuple(_info(details, file.outputs) for details in interpreter.get_output_details()),
            metadata=file.metadata,
            load_ns=load_ns,
            facts=facts,
            precision=file.precision,
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs into the interpreter; return its `invoke`."""
        if self._compiled is not None:
            check_inputs(inputs, self._inputs)
            return self._compiled.bind(inputs)
        # To compare with what the model takes for each query drives more out of the caches: it shows with a small model (+0.1% at 0.6 ms).
        forms = [(array.shape, array.dtype) for array in inputs]
        try:
            if forms != self._forms:
                self._take_forms(inputs)
                self._forms = forms
            for index, array in zip(self._indices, inputs, strict=True):
                self._interpreter.set_tensor(index, array)
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"LiteRT rejects the input: {one_line(error)}") from error
        call: Callable[[], object] = self._interpreter.invoke
        return call

    def _take_forms(self, inputs: Sequence[Array]) -> None:
        check_inputs(inputs, self._inputs)
        self._forms = None
        details = self._interpreter.get_input_details()
        self._indices = [entry["index"] for entry in details]
        resized = [(entry, array) for entry, array in zip(details, inputs, strict=True) if tuple(entry["shape"]) != array.shape]
        for entry, array in resized:
            self._interpreter.resize_tensor_input(entry["index"], array.shape)
        if resized:
            self._interpreter.allocate_tensors()

    def outputs(self) -> list[Array]:
        """Return copies of the outputs, in the order of `get_output_details`."""
        if self._compiled is not None:
            return self._compiled.outputs()
        try:
            return [self._interpreter.get_tensor(details["index"]) for details in self._interpreter.get_output_details()]
        except ValueError as error:
            raise MeasurementError(f"LiteRT has no output: {one_line(error)}; run a query first") from error

    def close(self) -> None:
        """Let the interpreter go; its memory goes with it."""
        self._interpreter = self._forms = None
        if self._compiled is not None:
            # It writes a line for each accelerator that it lets go.
            with captured_stderr():
                self._compiled = None
        self._inputs = ()


def _checked(model: Path, options: Options) -> TfliteFile:
    """Return the file; raises ConfigError if it, the backend or a setting is none of this runtime's."""
    settings = (litert_compiled.PRECISION,) if (options.backend or "").startswith("gpu") else ()
    check_options("litert", options, backends=(*_BACKENDS, *litert_compiled.BACKENDS), extra=settings)
    file = tflite_file.read_tflite(model)
    if EDGE_TPU in file.custom_operators:
        raise ConfigError(
            f"{str(model)!r} is compiled for the Edge TPU (custom op {EDGE_TPU}); run the CPU version of the model here, "
            "or this one with the runtime edgetpu on a machine with a Coral"
        )
    return file


def _cannot_run(model: Path, library: RuntimeLibrary, error: Exception) -> ConfigError:
    return ConfigError(
        f"{library.package} {library.version} cannot run {str(model)!r}: {one_line(error)}; convert the model again, with builtin "
        "operators only"
    )


def open_interpreter(model: Path, threads: int, library: RuntimeLibrary, **settings: Any) -> Any:
    """Return an interpreter with its tensors allocated; raises what the library raises: ValueError or RuntimeError."""
    interpreter = library.module.Interpreter(model_path=str(model), num_threads=threads, **settings)
    interpreter.allocate_tensors()
    return interpreter


def _backend(interpreter: Any, options: Options, model: Path, library: RuntimeLibrary) -> str:
    """Return which backend runs the model: XNNPACK only where it took at least one operator."""
    # The library has no public way to show what a delegate took.
    operators = interpreter._get_ops_details()  # noqa: SLF001
    backend = "xnnpack" if any(operator["op_name"] == "DELEGATE" for operator in operators) else "builtin"
    if options.backend == "xnnpack" != backend:
        raise UnavailableError(
            f"XNNPACK takes no operator of {str(model)!r} in {library.package} {library.version}: "
            "leave the backend out, or choose builtin, to measure the kernels that do run it"
        )
    return "reference" if options.backend == "reference" else backend


def _info(details: Mapping[str, Any], names: Mapping[int, str]) -> TensorInfo:
    """Return one tensor as the model declares it; the signature names it where the tensor's own name is a converter's."""
    name = str(details["name"])
    if _OPAQUE.fullmatch(name):
        name = names.get(int(details["index"]), name)
    declared = details["shape_signature"]
    sizes = declared if len(declared) else details["shape"]
    dtype = np.dtype(details["dtype"])
    scales, zero_points = details["quantization_parameters"]["scales"], details["quantization_parameters"]["zero_points"]
    # A float tensor may carry the range that it was quantised from; its values are real already.
    is_quantised = dtype.kind in "iu" and len(scales) == 1 and float(scales[0]) != 0
    return TensorInfo(
        name=name,
        shape=tuple(None if size < 0 else int(size) for size in sizes),
        dtype=dtype.name,
        scale=float(scales[0]) if is_quantised else None,
        zero_point=int(zero_points[0]) if is_quantised else None,
    )
