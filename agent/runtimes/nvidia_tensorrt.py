"""TensorRT: serialised engines (.engine, .plan) on an NVIDIA GPU; for Jetson boards first of all.

Library: `pip install 'edgemeter[tensorrt]'`; on a Jetson the `tensorrt` of JetPack, in an environment made with --system-site-packages.
TensorRT 8.6 and newer, by the calls that 8.6, 10 and 11 share. Backend: `cuda`.
An engine is built for one GPU model and one version of TensorRT. It is code as much as data, so that none is loaded whose sha256 was not
named, by `--sha256`, the suite, or `sha256` on the card beside it; code for the host in it stays locked, as TensorRT has it by default.
Engines as trtexec writes them, and Ultralytics', which say what they are in front. Open sizes take their shape from what is bound.
What is timed is `execute_async_v3` and the wait for its stream; inputs are on the device before, outputs come back after.
Contract-tested with a stand-in for TensorRT and CUDA; not run on hardware here.
"""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.errors import ConfigError, MeasurementError
from edgemeter.agent.runtimes import Array, Loaded, Options, TensorInfo, library, model_file, request
from edgemeter.agent.runtimes.cuda_memory import NAMES, CudaMemory
from edgemeter.agent.runtimes.library import Candidate

_CANDIDATES = (Candidate("tensorrt", ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt_bindings")),)
_DTYPES = {
    "FLOAT": "float32", "HALF": "float16", "INT8": "int8", "INT32": "int32", "BOOL": "bool", "UINT8": "uint8", "INT64": "int64",
}  # fmt: skip
_MOST_WORDS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An input or output: as declared, whether the engine reads it, and whether on the host (it is a shape then)."""

    info: TensorInfo
    is_input: bool
    is_on_host: bool


class TensorRt:
    """Runs a serialised engine."""

    def __init__(self, cuda_names: tuple[str, ...] | None = None) -> None:
        self._cuda_names = cuda_names
        self._memory: CudaMemory | None = None
        self._engine: Any = None
        # The engine uses the runtime, and that the logger, as long as it lives.
        self._kept: Any = None
        self._context: Any = None
        self._tensors: tuple[_Tensor, ...] = ()
        self._bound: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._held: list[Array] = []
        self._is_done = False

    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library, open the device, deserialise the engine; see `Runtime.load`."""
        request.check_options("tensorrt", options, backends=("cuda",))
        model_file.head(model)
        content, said = _read(model, options.sha256)
        found = library.load(_CANDIDATES, "tensorrt")
        self._memory = CudaMemory(self._cuda_names or NAMES)
        started_ns = time.monotonic_ns()
        logger, words = _logger(found.module)
        found.module.init_libnvinfer_plugins(logger, "")
        self._kept = found.module.Runtime(logger)
        self._engine = self._kept.deserialize_cuda_engine(content)
        self._context = self._engine.create_execution_context() if self._engine is not None else None
        if self._context is None:
            message = (
                f"{found.package} {found.version} cannot load {str(model)!r}: {library.one_line(' '.join(words) or 'no reason given')}; "
                "build the engine on this device, with this version"
            )
            raise ConfigError(message)
        self._tensors = tuple(_tensor(found.module, self._engine, place, model) for place in range(self._engine.num_io_tensors))
        load_ns = time.monotonic_ns() - started_ns
        return Loaded(
            package=found.package,
            version=found.version,
            backend="cuda",
            inputs=tuple(tensor.info for tensor in self._tensors if tensor.is_input),
            outputs=tuple(tensor.info for tensor in self._tensors if not tensor.is_input),
            metadata=said,
            import_ns=found.import_ns,
            load_ns=load_ns,
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs to the device, make room for the outputs; return a call that runs the engine and waits for it."""
        taken = [tensor for tensor in self._tensors if tensor.is_input]
        request.check_inputs(inputs, [tensor.info for tensor in taken])
        memory = self._ready()
        self._held = [np.array(array, order="C") for array in inputs]
        for tensor, array in zip(taken, self._held, strict=True):
            if not self._context.set_input_shape(tensor.info.name, array.shape):
                message = (
                    f"the engine does not take {tensor.info.name!r} as {list(array.shape)}: build it with a profile that has this shape"
                )
                raise ConfigError(message)
            address = array.ctypes.data if tensor.is_on_host else self._room(tensor.info, array.shape)
            if not tensor.is_on_host:
                memory.copy_in(address, array)
            self._context.set_tensor_address(tensor.info.name, address)
        for tensor in self._tensors:
            if not tensor.is_input:
                shape = tuple(self._context.get_tensor_shape(tensor.info.name))
                if any(size < 0 for size in shape):
                    message = (
                        f"the size of output {tensor.info.name!r} depends on what the engine finds: export the model with a fixed number"
                    )
                    raise ConfigError(message)
                self._context.set_tensor_address(tensor.info.name, self._room(tensor.info, shape))
        return self._call(memory)

    def outputs(self) -> list[Array]:
        """Return the outputs, copied from the device."""
        if not self._is_done:
            message = "TensorRT has no output to give: call what bind returned first"
            raise MeasurementError(message)
        memory = self._ready()
        infos = [tensor.info for tensor in self._tensors if not tensor.is_input]
        return [memory.copy_out(*self._bound[info.name], info.dtype) for info in infos]

    def close(self) -> None:
        """Let the engine go, then the memory that it was given."""
        # In this order: each lives in the next.
        self._context = None
        self._engine = None
        self._kept = None
        if self._memory is not None:
            self._memory.close()
        self._memory, self._tensors, self._bound, self._held, self._is_done = None, (), {}, [], False

    def _call(self, memory: CudaMemory) -> Callable[[], object]:
        execute, stream, wait = self._context.execute_async_v3, memory.stream, memory.waiter()
        self._is_done = False

        def call() -> None:
            if not execute(stream) or wait() != 0:
                message = "TensorRT did not run the query: its words stand on standard error; check the device's memory and driver"
                raise MeasurementError(message)
            self._is_done = True

        return call

    def _ready(self) -> CudaMemory:
        if self._memory is None:
            message = "no engine is loaded: load one first"
            raise MeasurementError(message)
        return self._memory

    def _room(self, info: TensorInfo, shape: tuple[int, ...]) -> int:
        """Return device memory for a tensor of this shape; what it had before is used again when the shape is the same."""
        memory = self._ready()
        if info.name in self._bound and self._bound[info.name][1] == shape:
            return self._bound[info.name][0]
        if info.name in self._bound:
            memory.free(self._bound.pop(info.name)[0])
        address = memory.allocate(math.prod(shape) * np.dtype(info.dtype).itemsize)
        self._bound[info.name] = (address, shape)
        return address


def _read(model: Path, sha256: str | None) -> tuple[bytes, Mapping[str, str]]:
    """Return the engine's bytes, which are those that were hashed, and what stands in front of them."""
    content = model.read_bytes()
    actual = hashlib.sha256(content).hexdigest()
    if sha256 is None:
        message = (
            f"{str(model)!r} is a serialised engine, which is code as much as data: if you trust where it came from, "
            f"name its hash, --sha256 {actual}, or sha256 in {model.name}.toml"
        )
        raise ConfigError(message)
    if sha256 != actual:
        message = f"{str(model)!r} has sha256 {actual}, not {sha256}: fetch it again, or correct the hash"
        raise ConfigError(message)
    return _without_words(content)


def _without_words(content: bytes) -> tuple[bytes, Mapping[str, str]]:
    """Return the engine and its metadata: Ultralytics writes the length of a JSON document and the document in front."""
    size = int.from_bytes(content[:4], "little")
    if 2 <= size <= min(_MOST_WORDS_BYTES, len(content) - 4) and content[4:5] == b"{":
        try:
            said = msgspec.json.decode(content[4 : 4 + size], type=dict[str, Any])
        except msgspec.MsgspecError:
            return content, {}
        texts = {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in said.items()}
        return content[4 + size :], texts
    return content, {}


def _logger(trt: Any) -> tuple[Any, list[str]]:
    """Return a logger for TensorRT, and the list of the errors that it is told: nowhere else does TensorRT say what is wrong."""
    words: list[str] = []

    class Words(trt.ILogger):  # type: ignore[misc]
        """Keeps errors."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            if severity in {trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR}:
                words.append(msg)

    return Words(), words


def _tensor(trt: Any, engine: Any, place: int, model: Path) -> _Tensor:
    """Return one input or output as the engine declares it."""
    name = engine.get_tensor_name(place)
    dtype, form = engine.get_tensor_dtype(name).name, engine.get_tensor_format(name)
    if dtype not in _DTYPES or form != trt.TensorFormat.LINEAR:
        message = f"{str(model)!r} has {name!r} as {dtype} {form}: build it with linear float, half or integer inputs and outputs"
        raise ConfigError(message)
    shape = tuple(None if size < 0 else int(size) for size in engine.get_tensor_shape(name))
    return _Tensor(
        info=TensorInfo(name, shape, _DTYPES[dtype]),
        is_input=engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT,
        is_on_host=engine.get_tensor_location(name) == trt.TensorLocation.HOST,
    )
