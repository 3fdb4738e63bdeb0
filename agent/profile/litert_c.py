"""The part of LiteRT's C interface that profiles: a compiled model on the CPU, its buffers, its profiler.

Source: litert/c/litert_{environment,model,options,opaque_options,compiled_model,tensor_buffer,profiler}.h of LiteRT 2.x; the options are
TOML texts as litert/c/options/litert_{runtime,cpu}_options.cc write them. A wrong call can end the process: this is for a child process.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgemeter.agent.errors import MeasurementError, UnavailableError
from edgemeter.agent.runtimes import Array

_CPU = 1
_HOST_MEMORY = 1
_WRITE = 1
_KERNELS_BUILTIN = 2
# A tensor type is handed from one call to the next and never looked at: far larger than it can be.
_TENSOR_TYPE_BYTES = 512
# The size of an event differs from version to version, its first fields do not: it is seen from what gets written.
_EVENT_MOST_BYTES = 512
_FILL = 0xA5
_HEAD = struct.Struct("<Qi4xQQ")


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One event as the library tells it; `start_us` is 0 where it knows the duration only."""

    tag: str
    kind: int
    start_us: int
    elapsed_us: int


class CompiledModel:
    """A model compiled for the CPU with profiling on; its parts live until the process ends."""

    def __init__(self, model: str, *, builtin: bool, threads: int, outputs_bytes: Sequence[int]) -> None:
        self._library = _library()
        self._environment, self._model = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("LiteRtCreateEnvironment", ctypes.c_int(0), None, ctypes.byref(self._environment))
        self._call("LiteRtCreateModelFromFile", self._environment, model.encode(), ctypes.byref(self._model))
        options = self._options(f"num_threads = {threads}\n" + (f"kernel_mode = {_KERNELS_BUILTIN}\n" if builtin else ""))
        self._compiled, self._profiler, self._signature = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("LiteRtCreateCompiledModel", self._environment, self._model, options, ctypes.byref(self._compiled))
        self._call("LiteRtCompiledModelGetProfiler", self._compiled, ctypes.byref(self._profiler))
        if not self._profiler:
            message = "this build of LiteRT makes no profiler for a compiled model: pip install 'ai-edge-litert>=2.3'"
            raise UnavailableError(message)
        self._call("LiteRtGetModelSignature", self._model, ctypes.c_size_t(0), ctypes.byref(self._signature))
        self.inputs = self._count("Input")
        self._inputs = self._buffers("Input", [0] * self.inputs)
        self._outputs = self._buffers("Output", [*outputs_bytes, *[0] * self._count("Output")][: self._count("Output")])

    def bind(self, inputs: Sequence[Array]) -> Callable[[], None]:
        """Copy the inputs to the model's buffers; return the call that runs it."""
        for buffer, array in zip(self._inputs, inputs, strict=True):
            self._write(ctypes.c_void_p(buffer), array)
        function = self._library.LiteRtRunCompiledModel
        arguments = (
            self._compiled,
            ctypes.c_size_t(0),
            ctypes.c_size_t(len(self._inputs)),
            self._inputs,
            ctypes.c_size_t(len(self._outputs)),
            self._outputs,
        )

        def call() -> None:
            status = function(*arguments)
            if status:
                message = f"LiteRT's compiled model ended with status {status}: measure the model with `edgemeter run` instead"
                raise MeasurementError(message)

        return call

    def start(self) -> None:
        """Forget what was seen and begin to record."""
        self._call("LiteRtResetProfiler", self._profiler)
        self._call("LiteRtStartProfiler", self._profiler)

    def stop(self) -> list[RawEvent]:
        """Stop recording and return what was seen."""
        self._call("LiteRtStopProfiler", self._profiler)
        count = ctypes.c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        if count.value < 1:
            return []
        size = count.value * _EVENT_MOST_BYTES
        target = ctypes.create_string_buffer(bytes([_FILL]) * size, size)
        self._call("LiteRtGetProfilerEvents", self._profiler, count, target)
        return unpack(target.raw, count.value, lambda address: ctypes.string_at(address).decode(errors="replace"))

    def _options(self, cpu: str) -> ctypes.c_void_p:
        options = ctypes.c_void_p()
        self._call("LiteRtCreateOptions", ctypes.byref(options))
        self._call("LiteRtSetOptionsHardwareAccelerators", options, ctypes.c_int(_CPU))
        for name, text in (("runtime_options_string", "enable_profiling = true\n"), ("xnnpack", cpu)):
            one = ctypes.c_void_p()
            # LiteRT gives the text back to the C library, which must have made it.
            system = ctypes.CDLL(None)
            system.strdup.restype = ctypes.c_void_p
            payload = ctypes.c_void_p(system.strdup(text.encode()))
            self._call("LiteRtCreateOpaqueOptions", name.encode(), payload, system.free, ctypes.byref(one))
            self._call("LiteRtAddOpaqueOptions", options, one)
        return options

    def _count(self, kind: str) -> int:
        count = ctypes.c_size_t()
        self._call(f"LiteRtGetNumSignature{kind}s", self._signature, ctypes.byref(count))
        return count.value

    def _buffers(self, kind: str, sizes: Sequence[int]) -> Any:
        """Return a buffer for each tensor, of the size that it needs, or `sizes` where that is more: shapes may be open until it ran."""
        buffers = (ctypes.c_void_p * len(sizes))()
        for place, least in enumerate(sizes):
            needs, tensor, buffer, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
            at = ctypes.c_size_t(place)
            self._call(f"LiteRtGetCompiledModel{kind}BufferRequirements", self._compiled, ctypes.c_size_t(0), at, ctypes.byref(needs))
            self._call("LiteRtGetTensorBufferRequirementsBufferSize", needs, ctypes.byref(size))
            self._call(f"LiteRtGetSignature{kind}TensorByIndex", self._signature, at, ctypes.byref(tensor))
            kind_of = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
            self._call("LiteRtGetRankedTensorType", tensor, kind_of)
            most = ctypes.c_size_t(max(size.value, least))
            self._call(
                "LiteRtCreateManagedTensorBuffer", self._environment, ctypes.c_int(_HOST_MEMORY), kind_of, most, ctypes.byref(buffer)
            )
            buffers[place] = buffer.value
        return buffers

    def _write(self, buffer: ctypes.c_void_p, array: Array) -> None:
        size, address = ctypes.c_size_t(), ctypes.c_void_p()
        self._call("LiteRtGetTensorBufferPackedSize", buffer, ctypes.byref(size))
        content = array.tobytes()
        if len(content) != size.value:
            message = (
                f"LiteRT's profiler takes an input of {size.value} bytes where the interpreter takes {len(content)}: use `edgemeter run`"
            )
            raise UnavailableError(message)
        self._call("LiteRtLockTensorBuffer", buffer, ctypes.byref(address), ctypes.c_int(_WRITE))
        ctypes.memmove(address, content, size.value)
        self._call("LiteRtUnlockTensorBuffer", buffer)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            message = f"LiteRT's {name} ended with status {status}: this version cannot profile this model; `edgemeter run` measures it"
            raise UnavailableError(message)


def unpack(raw: bytes, count: int, text: Callable[[int], str]) -> list[RawEvent]:
    """Return `count` events out of a buffer that was filled with 0xA5 before; `text` reads the string at an address."""
    written = len(raw.rstrip(bytes([_FILL])))
    # The last field of the last event may be followed by up to 7 bytes that nobody writes.
    event_bytes = -(-written // count // 8) * 8
    events = []
    for place in range(count):
        address, kind, start_us, elapsed_us = _HEAD.unpack_from(raw, place * event_bytes)
        events.append(RawEvent(text(address) if address else "", kind, start_us, elapsed_us))
    return events


def _library() -> Any:
    spec = find_spec("ai_edge_litert")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    path = next((Path(place) / "libLiteRt.so" for place in places if (Path(place) / "libLiteRt.so").is_file()), None)
    try:
        library = ctypes.CDLL(str(path)) if path else None
    except OSError as error:
        message = f"cannot load LiteRT's library {str(path)!r}: {error}"
        raise UnavailableError(message) from error
    if library is None or not hasattr(library, "LiteRtCompiledModelGetProfiler"):
        message = (
            "this ai-edge-litert brings no profiler (libLiteRt.so with LiteRtCompiledModelGetProfiler): pip install 'ai-edge-litert>=2.3'"
        )
        raise UnavailableError(message)
    return library
