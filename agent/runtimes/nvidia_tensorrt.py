"""TensorRT: serialised engines (.engine, .plan) on an NVIDIA GPU or a Jetson.

- Library: `pip install 'edgemeter[tensorrt]'`, 8.6 or newer. On a Jetson use JetPack's, in a venv
  with `--system-site-packages`.
- Backend: `cuda`.
- Files: engines of trtexec or Ultralytics. They run only on the GPU model and the TensorRT version
  that built them, and they [contain code](../install.md#sandbox).
- Timed: `execute_async_v3` and the wait for its stream, without copies.

Tested with: a stand-in for TensorRT and CUDA, by the contract. Code for the host inside an engine
stays locked. Open sizes are those of the inputs.
"""

import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    MeasurementError,
    UnavailableError,
    one_line,
)
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo
from edgemeter.agent.runtimes.adapter import (
    LibraryCandidate,
    check_inputs,
    check_options,
    load_library,
    open_code,
)

CUDA_RUNTIMES = ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")
_TO_DEVICE, _TO_HOST = 1, 2
_CANDIDATES = (
    LibraryCandidate(
        "tensorrt", ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt_bindings")
    ),
)
_DTYPES = {
    "FLOAT": "float32", "HALF": "float16", "INT8": "int8", "INT32": "int32", "BOOL": "bool",
    "UINT8": "uint8", "INT64": "int64",
}  # fmt: skip


class CudaMemory:
    """One stream of the current device, and its allocated memory, which `close` releases."""

    def __init__(self) -> None:
        """Load the library and create a stream.

        Raises:
            UnavailableError: there is no library or no device.
        """
        self._library = _open()
        self._library.cudaGetErrorString.restype = ctypes.c_char_p
        self._pointers: list[int] = []
        self._stream, count = ctypes.c_void_p(), ctypes.c_int()
        self._call(
            UnavailableError,
            "see a device",
            "check the driver and who may use it",
            "cudaGetDeviceCount",
            ctypes.byref(count),
        )
        self._call(
            UnavailableError,
            "create a stream",
            "end what else uses the device",
            "cudaStreamCreate",
            ctypes.byref(self._stream),
        )
        self.stream = self._stream.value or 0
        # The bare call that waits for the stream; it returns 0 on success.
        self.wait = partial(self._library.cudaStreamSynchronize, self._stream)

    def _call(
        self, kind: type[EdgemeterError], goal: str, remedy: str, function: str, *arguments: object
    ) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            words = (self._library.cudaGetErrorString(status) or b"").decode(
                errors="replace"
            ) or f"error {status}"
            raise kind(f"CUDA cannot {goal}: {words}; {remedy}")

    def allocate(self, size_bytes: int) -> int:
        """Return the address of new device memory; raises ConfigError if there is not enough."""
        pointer = ctypes.c_void_p()
        self._call(
            ConfigError,
            f"allocate {size_bytes} bytes",
            "take a smaller batch, or end what else uses the device",
            "cudaMalloc",
            ctypes.byref(pointer),
            ctypes.c_size_t(size_bytes or 1),
        )
        self._pointers.append(pointer.value or 0)
        return self._pointers[-1]

    def free(self, pointer: int) -> None:
        self._pointers.remove(pointer)
        self._library.cudaFree(ctypes.c_void_p(pointer))

    def copy(self, target: int, source: int, size_bytes: int, kind: int) -> None:
        """Copy between the addresses of an array in C order and of device memory."""
        self._call(
            MeasurementError,
            f"copy {size_bytes} bytes",
            "the query before it may have failed",
            "cudaMemcpy",
            ctypes.c_void_p(target),
            ctypes.c_void_p(source),
            ctypes.c_size_t(size_bytes),
            kind,
        )

    def close(self) -> None:
        """Release everything; may be called twice."""
        for pointer in [*self._pointers]:
            self.free(pointer)
        if self._stream.value:
            self._library.cudaStreamDestroy(self._stream)
            self._stream = ctypes.c_void_p()


def _open() -> ctypes.CDLL:
    spec = find_spec("nvidia")
    # NVIDIA's wheels put the library below `nvidia/` among the installed packages.
    folders = (spec.submodule_search_locations or []) if spec else []
    in_wheels = [
        str(path)
        for folder in folders
        for name in CUDA_RUNTIMES
        for path in sorted(Path(folder).glob(f"*/lib/{name}"))
    ]
    for name in [*CUDA_RUNTIMES, *in_wheels]:
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise UnavailableError(
        f"no CUDA runtime library found (tried {', '.join(CUDA_RUNTIMES)}): install CUDA, or on "
        "a Jetson JetPack's packages"
    )


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An input or output as declared; one on the host is a shape."""

    info: TensorInfo
    is_input: bool
    is_on_host: bool


class TensorRt(Runtime):
    """Runs a serialised engine."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._engine: Any = None
        # The engine needs the runtime, and this the logger, as long as it lives.
        self._runtime: Any = None
        self._context: Any = None
        self._inputs: tuple[_Tensor, ...] = ()
        self._outputs: tuple[TensorInfo, ...] = ()
        self._bound: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._host_arrays: list[Array] = []
        self._is_done = False

    def load(self, model: Path, options: Options) -> Loaded:
        check_options("tensorrt", options, backends=("cuda",))
        model_file.head(model)
        open_code(model, options)
        content, metadata = _without_words(model.read_bytes())
        library = load_library(_CANDIDATES, "tensorrt")
        self._memory = CudaMemory()
        started_ns = time.monotonic_ns()
        logger, words = _logger(library.module)
        library.module.init_libnvinfer_plugins(logger, "")
        self._runtime = library.module.Runtime(logger)
        self._engine = self._runtime.deserialize_cuda_engine(content)
        self._context = (
            self._engine.create_execution_context() if self._engine is not None else None
        )
        if self._context is None:
            raise ConfigError(
                f"{library.package} {library.version} cannot load {str(model)!r}: "
                f"{one_line(' '.join(words) or 'no reason given')}; "
                "build the engine on this device, with this version"
            )
        tensors = [
            _tensor(library.module, self._engine, index, model)
            for index in range(self._engine.num_io_tensors)
        ]
        self._inputs = tuple(tensor for tensor in tensors if tensor.is_input)
        self._outputs = tuple(tensor.info for tensor in tensors if not tensor.is_input)
        load_ns, infos = (
            time.monotonic_ns() - started_ns,
            tuple(tensor.info for tensor in self._inputs),
        )
        return library.loaded(
            backend="cuda", inputs=infos, outputs=self._outputs, metadata=metadata, load_ns=load_ns
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs to the device, allocate the outputs, and return the call.

        The call runs the engine and waits for it.
        """
        check_inputs(inputs, [tensor.info for tensor in self._inputs])
        memory = self._memory
        self._host_arrays = [np.array(array, order="C") for array in inputs]
        for tensor, array in zip(self._inputs, self._host_arrays, strict=True):
            if not self._context.set_input_shape(tensor.info.name, array.shape):
                raise ConfigError(
                    f"the engine rejects {tensor.info.name!r} as {list(array.shape)}: build it "
                    "with a profile that has this shape"
                )
            address = (
                array.ctypes.data if tensor.is_on_host else self._room(tensor.info, array.shape)
            )
            if not tensor.is_on_host:
                memory.copy(address, array.ctypes.data, array.nbytes, _TO_DEVICE)
            self._context.set_tensor_address(tensor.info.name, address)
        for info in self._outputs:
            shape = tuple(self._context.get_tensor_shape(info.name))
            if any(size < 0 for size in shape):
                raise ConfigError(
                    f"the size of output {info.name!r} depends on what the engine finds: export "
                    "the model with a fixed number"
                )
            self._context.set_tensor_address(info.name, self._room(info, shape))
        execute, stream, wait = self._context.execute_async_v3, memory.stream, memory.wait
        self._is_done = False

        def call() -> None:
            if not execute(stream) or wait() != 0:
                raise MeasurementError(
                    "TensorRT failed to run the query: check the device's memory and driver"
                )
            self._is_done = True

        return call

    def outputs(self) -> list[Array]:
        if not self._is_done:
            raise MeasurementError("TensorRT has no output: run a query first")
        arrays = []
        for info in self._outputs:
            address, shape = self._bound[info.name]
            arrays.append(np.empty(shape, info.dtype))
            self._memory.copy(arrays[-1].ctypes.data, address, arrays[-1].nbytes, _TO_HOST)
        return arrays

    def close(self) -> None:
        """Release the engine, then its memory."""
        # In this order, because each needs the next.
        self._context = self._engine = self._runtime = None
        if self._memory is not None:
            self._memory.close()
        self._memory, self._inputs, self._outputs, self._bound, self._host_arrays, self._is_done = (
            None,
            (),
            (),
            {},
            [],
            False,
        )

    def _room(self, info: TensorInfo, shape: tuple[int, ...]) -> int:
        """Return device memory for a tensor; it is reused if the shape is the same as before."""
        address, bound_shape = self._bound.get(info.name, (0, None))
        if bound_shape != shape:
            if address:
                self._memory.free(address)
            address = self._memory.allocate(math.prod(shape) * np.dtype(info.dtype).itemsize)
            self._bound[info.name] = (address, shape)
        return address


def _without_words(content: bytes) -> tuple[bytes, Mapping[str, str]]:
    """Return the engine and its metadata.

    Ultralytics puts a JSON document, after its length, before the engine.
    """
    size = int.from_bytes(content[:4], "little")
    if 2 <= size <= min(1 << 20, len(content) - 4) and content[4:5] == b"{":
        with suppress(msgspec.MsgspecError):
            metadata = decode_json(content[4 : 4 + size], dict[str, Any])
            return content[4 + size :], {
                name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
                for name, value in metadata.items()
            }
    return content, {}


def _logger(trt: Any) -> tuple[Any, list[str]]:
    """Return a logger for TensorRT, and the list of the errors that it collects.

    TensorRT reports errors nowhere else.
    """
    words: list[str] = []

    class Words(trt.ILogger):  # type: ignore[misc]
        """Keeps errors."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            if severity in {trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR}:
                words.append(msg)

    return Words(), words


def _tensor(trt: Any, engine: Any, index: int, model: Path) -> _Tensor:
    name = engine.get_tensor_name(index)
    dtype, form = engine.get_tensor_dtype(name).name, engine.get_tensor_format(name)
    if dtype not in _DTYPES or form != trt.TensorFormat.LINEAR:
        raise ConfigError(
            f"{str(model)!r} has {name!r} as {dtype} {form}: build it with linear float, half or "
            "integer inputs and outputs"
        )
    shape = tuple(None if size < 0 else int(size) for size in engine.get_tensor_shape(name))
    return _Tensor(
        info=TensorInfo(name, shape, _DTYPES[dtype]),
        is_input=engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT,
        is_on_host=engine.get_tensor_location(name) == trt.TensorLocation.HOST,
    )
