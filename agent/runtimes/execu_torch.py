"""ExecuTorch: programs (.pte) exported by PyTorch, on the CPU or a delegate.

- Library: `pip install 'edgemeter[executorch]'`. `edgemeter fleet release` cannot include it.
- Backend: the export fixes it, as `xnnpack` or `portable`, whose kernels are 100 times slower.
- Setting: `method` of the program. Default: `forward`.
- Limits: an open shape runs at its upper bound, and weights in a separate file (.ptd) are not
  supported.
- Timed: `execute` of a loaded method.

Tested with: executorch 1.5.1 and torch 2.13.0, x86-64. `set_inputs` is timed too if the program
plans the memory of its inputs; `get_outputs` is not.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, ClassVar

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo
from edgemeter.agent.runtimes.adapter import (
    LibraryCandidate,
    captured_stderr,
    check_inputs,
    check_options,
    load_library,
)

_TORCH = (LibraryCandidate("torch", ("torch",)),)
# `executorch.runtime` gives the same classes, but imports the exporter with it, which takes
# seconds.
_BINDINGS = (LibraryCandidate("executorch.extension.pybindings._C", ("executorch",)),)
# Source: schema/scalar_type.fbs; bfloat16 is unknown to numpy.
_DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 11: "bool", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip


class ExecuTorch(Runtime):
    """Runs one method of an ExecuTorch program."""

    _loaded_in_process: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        self._torch: Any = None
        self._program: Any = None
        self._method: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._arguments: list[Any] = []
        self._is_planned = self._has_run = False

    def load(self, model: Path, options: Options) -> Loaded:
        check_options("executorch", options, extra=("method",))
        model_file.head(model)
        torch, bindings = load_library(_TORCH, "executorch"), load_library(_BINDINGS, "executorch")
        self._torch = torch.module
        started_ns = time.monotonic_ns()
        with captured_stderr() as lines:
            self._set_threads(bindings.module, options.threads)
            backend = _backend_of(model, bindings.module, options)
            try:
                # The library names it so.
                self._program = bindings.module._load_program(  # noqa: SLF001
                    str(model),
                    program_verification=bindings.module.Verification.InternalConsistency,
                )
                self._method = self._program.load_method(
                    _method_name(model, self._program, options)
                )
                meta = self._method.method_meta()
                inputs = [meta.input_tensor_meta(index) for index in range(meta.num_inputs())]
                outputs = [meta.output_tensor_meta(index) for index in range(meta.num_outputs())]
                self._inputs = _declared("input", inputs)
                declared = _declared("output", outputs)
                self._is_planned = any(info.is_memory_planned() for info in inputs)
            except (RuntimeError, ValueError, TypeError, IndexError, MemoryError) as error:
                # The exception has only a number; the reason is on standard error.
                logged = [
                    line
                    for line in lines
                    if line.startswith("[") and "cpuinfo" not in line and "threadpool" not in line
                ]
                reason = one_line(logged[-1].partition("] ")[2] if logged else str(error)).rstrip(
                    "."
                )
                raise ConfigError(
                    f"{bindings.package} {bindings.version} cannot load {str(model)!r}: "
                    f"{reason}; export it again for this version"
                ) from error
        self._loaded_in_process.add(id(self))
        return replace(bindings, import_ns=torch.import_ns + bindings.import_ns).loaded(
            backend=backend,
            inputs=self._inputs,
            outputs=declared,
            metadata={},
            load_ns=time.monotonic_ns() - started_ns,
            facts={"torch": torch.version},
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs, and return the call that executes the method.

        The call also sets the method's inputs if necessary.
        """
        check_inputs(inputs, self._inputs)
        arguments = [self._torch.from_numpy(array.copy(order="C")) for array in inputs]
        set_inputs, execute = self._method.set_inputs, self._method.execute
        self._has_run = False

        def call() -> None:
            set_inputs(arguments)
            execute()
            self._has_run = True

        def call_in_place() -> None:
            execute()
            self._has_run = True

        if self._is_planned:
            return call
        # The method reads them where they are.
        set_inputs(arguments)
        self._arguments = arguments
        return call_in_place

    def outputs(self) -> list[Array]:
        import numpy as np  # noqa: PLC0415 - a session reads this file too, and needs no NumPy

        if not self._has_run:
            raise MeasurementError("ExecuTorch has no output: run a query first")
        return [np.array(tensor.numpy()) for tensor in self._method.get_outputs()]

    def close(self) -> None:
        self._method = None
        self._program = None
        self._arguments, self._inputs, self._has_run = [], (), False
        self._loaded_in_process.discard(id(self))

    def _set_threads(self, bindings: Any, threads: int) -> None:
        """Resize the process's thread pool; a loaded program would go on with the freed pool."""
        current = bindings._threadpool_get_thread_count()  # noqa: SLF001 - as the library names it
        if current == threads:
            return
        if self._loaded_in_process:
            raise UnavailableError(
                f"ExecuTorch runs another program in this process on {current} threads, not "
                f"{threads}: close that one first"
            )
        bindings._unsafe_reset_threadpool(threads)  # noqa: SLF001 - as the library names it


def _method_name(model: Path, program: Any, options: Options) -> str:
    names = [str(program.get_method_name(index)) for index in range(program.num_methods())]
    name = options.extra.get("method", "forward")
    if name not in names:
        raise ConfigError(
            f"{str(model)!r} has no method {name!r}: choose one of "
            f"{', '.join(names)} (setting method)"
        )
    return name


def _backend_of(model: Path, bindings: Any, options: Options) -> str:
    """Return the backends of this build in the program.

    Raises:
        ConfigError: another backend was asked for.
    """
    registered = bindings._get_registered_backend_names()  # noqa: SLF001 - as the library names it
    with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        backend = (
            ",".join(
                name.removesuffix("Backend").lower()
                for name in registered
                if content.find(name.encode()) >= 0
            )
            or "portable"
        )
    if options.backend not in {None, backend}:
        raise ConfigError(
            f"{str(model)!r} was exported for {backend}, not for {options.backend!r}: export it "
            "for that, or leave the backend out"
        )
    return backend


def _declared(kind: str, tensors: Sequence[Any]) -> tuple[TensorInfo, ...]:
    """Return the tensors; a program has no names for them."""
    names = [kind] if len(tensors) == 1 else [f"{kind}_{index}" for index in range(len(tensors))]
    unknown = sorted({tensor.dtype() for tensor in tensors} - set(_DTYPES))
    if unknown:
        raise ValueError(
            f"a tensor of dtype {unknown[0]} is among its {kind}s, which numpy does not have"
        )
    return tuple(
        TensorInfo(name, tuple(tensor.sizes()), _DTYPES[tensor.dtype()])
        for name, tensor in zip(names, tensors, strict=True)
    )
