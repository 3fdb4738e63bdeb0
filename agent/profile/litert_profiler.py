"""LiteRT's profiler, through the C API of the library in the ai-edge-litert wheel.

It gives one event per operator, in whole us. Neither the Python interpreter nor `litert-benchmark`
has a profiler; the CompiledModel of `libLiteRt.so` beside them does. The plain queries go through
the interpreter, as in `edgemeter run`: same file, kernels and threads. Operators delegated to
XNNPACK have its kernels' names and durations without a start. Durations are cut to whole us, so
about half a us per operator is lost. A wrong call of the C API can crash the process: use a child
process.
Source:
litert/c/litert_{environment,model,options,opaque_options,compiled_model,tensor_buffer,profiler}.h
of LiteRT 2.x; the options are TOML texts as litert/c/options/litert_{runtime,cpu}_options.cc write
them. Tested with ai-edge-litert 2.3.0, x86_64.
"""

import ctypes
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.loading import LoadedModel
from edgemeter.agent.profile.profiler import WARM_UP_QUERIES, ProfileEvent, inference, timed_calls
from edgemeter.agent.runtimes import Array

_REMEDY = "pip install 'ai-edge-litert>=2.3'"
_RUN_IT = "measure the model with `edgemeter run` instead"
_CPU = 1
_HOST_MEMORY = 1
_WRITE = 1
_KERNELS_BUILTIN = 2
# A tensor type is only passed from one call to the next; this is far larger than any.
_TENSOR_TYPE_BYTES = 512
# An event's first fields are the same in all versions, its size is not: we fill the buffer and see
# how much the library overwrites.
_EVENT_MOST_BYTES = 512
_FILL = 0xA5
_HEAD = struct.Struct("<Qi4xQQ")
# The library's own event around a run; the interpreter writes none for models with signatures.
_INVOKE = ("Invoke", 1)
# Source: litert/c/litert_profiler_event.h, LiteRtProfilerEventType.
_OPERATOR, _DELEGATE_OPERATOR, _RUN = 1 << 1, 1 << 3, 1 << 4


class RawEvent(NamedTuple):
    """One of the library's events; `start_us` is 0 if only the duration is known."""

    tag: str
    kind: int
    start_us: int
    elapsed_us: int


class LiteRtProfiler:
    """Runs the model as a CompiledModel on the CPU with profiling on.

    Nothing is freed before the process ends.
    """

    def __init__(self, case: Case, model: LoadedModel, inputs: list[Array]) -> None:
        loaded = model.loaded
        if loaded.backend.startswith(("gpu", "npu")):
            raise UnavailableError(
                f"LiteRT's profiler sees the CPU only, not {case.backend}: profile with "
                "--backend cpu-compiled"
            )
        # The same kernels as the plain queries.
        kernels = f"kernel_mode = {_KERNELS_BUILTIN}\n" if loaded.backend == "builtin" else ""
        self._library = _library()
        self._environment, self._model = ctypes.c_void_p(), ctypes.c_void_p()
        self._call(
            "LiteRtCreateEnvironment", ctypes.c_int(0), None, ctypes.byref(self._environment)
        )
        self._call(
            "LiteRtCreateModelFromFile",
            self._environment,
            case.model.encode(),
            ctypes.byref(self._model),
        )
        options = self._options(f"num_threads = {case.threads}\n{kernels}")
        self._compiled, self._profiler, self._signature = (
            ctypes.c_void_p(),
            ctypes.c_void_p(),
            ctypes.c_void_p(),
        )
        self._call(
            "LiteRtCreateCompiledModel",
            self._environment,
            self._model,
            options,
            ctypes.byref(self._compiled),
        )
        self._call("LiteRtCompiledModelGetProfiler", self._compiled, ctypes.byref(self._profiler))
        if not self._profiler:
            raise UnavailableError(
                f"this build of LiteRT has no profiler for compiled models: {_REMEDY}"
            )
        self._call(
            "LiteRtGetModelSignature",
            self._model,
            ctypes.c_size_t(0),
            ctypes.byref(self._signature),
        )
        input_count, output_count = self._count("Input"), self._count("Output")
        if len(loaded.inputs) != input_count:
            raise UnavailableError(
                f"LiteRT's profiler sees {input_count} inputs, not {len(loaded.inputs)}: {_RUN_IT}"
            )
        sizes = [math.prod(array.shape) * array.itemsize for array in model.runtime.outputs()]
        self._inputs = self._buffers("Input", [0] * input_count)
        self._outputs = self._buffers("Output", [*sizes, *[0] * output_count][:output_count])
        self._events: list[ProfileEvent] = []
        timed_calls(self._bind, [inputs] * WARM_UP_QUERIES)

    def record(self, inputs: Sequence[list[Array]]) -> list[int]:
        self._call("LiteRtResetProfiler", self._profiler)
        self._call("LiteRtStartProfiler", self._profiler)
        durations = timed_calls(self._bind, inputs)
        self._call("LiteRtStopProfiler", self._profiler)
        self._events.extend(operator_events(self._recorded()))
        return durations

    def events(self) -> list[ProfileEvent]:
        return self._events

    def _bind(self, inputs: Sequence[Array]) -> Callable[[], None]:
        for buffer, array in zip(self._inputs, inputs, strict=True):
            self._write(ctypes.c_void_p(buffer), array)
        function = self._library.LiteRtRunCompiledModel
        signature, input_count, output_count = map(
            ctypes.c_size_t, (0, len(self._inputs), len(self._outputs))
        )
        arguments = (
            self._compiled,
            signature,
            input_count,
            self._inputs,
            output_count,
            self._outputs,
        )
        return lambda: _check("LiteRtRunCompiledModel", function(*arguments))

    def _recorded(self) -> list[RawEvent]:
        count = ctypes.c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, ctypes.byref(count))
        if count.value < 1:
            return []
        size = count.value * _EVENT_MOST_BYTES
        target = ctypes.create_string_buffer(bytes([_FILL]) * size, size)
        self._call("LiteRtGetProfilerEvents", self._profiler, count, target)
        return unpack_events(
            target.raw,
            count.value,
            lambda address: ctypes.string_at(address).decode(errors="replace"),
        )

    def _options(self, cpu: str) -> ctypes.c_void_p:
        options = ctypes.c_void_p()
        self._call("LiteRtCreateOptions", ctypes.byref(options))
        self._call("LiteRtSetOptionsHardwareAccelerators", options, ctypes.c_int(_CPU))
        for name, text in (
            ("runtime_options_string", "enable_profiling = true\n"),
            ("xnnpack", cpu),
        ):
            part = ctypes.c_void_p()
            # LiteRT frees the text with `free`, so the C library must allocate it.
            system = ctypes.CDLL(None)
            system.strdup.restype = ctypes.c_void_p
            payload = ctypes.c_void_p(system.strdup(text.encode()))
            self._call(
                "LiteRtCreateOpaqueOptions", name.encode(), payload, system.free, ctypes.byref(part)
            )
            self._call("LiteRtAddOpaqueOptions", options, part)
        return options

    def _count(self, kind: str) -> int:
        count = ctypes.c_size_t()
        self._call(f"LiteRtGetNumSignature{kind}s", self._signature, ctypes.byref(count))
        return count.value

    def _buffers(self, kind: str, sizes: Sequence[int]) -> Any:
        """Return a buffer for each tensor, of the required size or `sizes` if that is larger.

        Shapes may be open before the first run.
        """
        buffers = (ctypes.c_void_p * len(sizes))()
        for index, least in enumerate(sizes):
            needs, tensor, buffer, size = (
                ctypes.c_void_p(),
                ctypes.c_void_p(),
                ctypes.c_void_p(),
                ctypes.c_size_t(),
            )
            at = ctypes.c_size_t(index)
            self._call(
                f"LiteRtGetCompiledModel{kind}BufferRequirements",
                self._compiled,
                ctypes.c_size_t(0),
                at,
                ctypes.byref(needs),
            )
            self._call("LiteRtGetTensorBufferRequirementsBufferSize", needs, ctypes.byref(size))
            self._call(
                f"LiteRtGetSignature{kind}TensorByIndex", self._signature, at, ctypes.byref(tensor)
            )
            kind_of = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
            self._call("LiteRtGetRankedTensorType", tensor, kind_of)
            host, size_bytes = ctypes.c_int(_HOST_MEMORY), ctypes.c_size_t(max(size.value, least))
            self._call(
                "LiteRtCreateManagedTensorBuffer",
                self._environment,
                host,
                kind_of,
                size_bytes,
                ctypes.byref(buffer),
            )
            buffers[index] = buffer.value
        return buffers

    def _write(self, buffer: ctypes.c_void_p, array: Array) -> None:
        size, address = ctypes.c_size_t(), ctypes.c_void_p()
        self._call("LiteRtGetTensorBufferPackedSize", buffer, ctypes.byref(size))
        content = array.tobytes()
        if len(content) != size.value:
            raise UnavailableError(
                f"LiteRT's profiler takes {size.value} bytes where the interpreter takes "
                f"{len(content)}: {_RUN_IT}"
            )
        self._call("LiteRtLockTensorBuffer", buffer, ctypes.byref(address), ctypes.c_int(_WRITE))
        ctypes.memmove(address, content, size.value)
        self._call("LiteRtUnlockTensorBuffer", buffer)

    def _call(self, name: str, *arguments: Any) -> None:
        _check(name, getattr(self._library, name)(*arguments))


def _check(name: str, status: int) -> None:
    if status:
        raise UnavailableError(
            f"LiteRT's {name} ended with status {status}: this version cannot profile this "
            f"model; {_RUN_IT}"
        )


def unpack_events(raw: bytes, count: int, text: Callable[[int], str]) -> list[RawEvent]:
    """Return `count` events from a buffer that was filled with 0xA5 before.

    `text` reads the string at an address.
    """
    written = len(raw.rstrip(bytes([_FILL])))
    # Up to 7 bytes of padding may follow the last field of the last event.
    event_bytes = -(-written // count // 8) * 8
    events = []
    for number in range(count):
        address, kind, start_us, elapsed_us = _HEAD.unpack_from(raw, number * event_bytes)
        events.append(RawEvent(text(address) if address else "", kind, start_us, elapsed_us))
    return events


def _library() -> Any:
    spec = find_spec("ai_edge_litert")
    places = (spec and spec.submodule_search_locations) or []
    library = next(
        (ctypes.CDLL(str(file)) for folder in places for file in Path(folder).glob("libLiteRt.so")),
        None,
    )
    if not hasattr(library, "LiteRtCompiledModelGetProfiler"):
        raise UnavailableError(
            "this ai-edge-litert has no profiler (libLiteRt.so with "
            f"LiteRtCompiledModelGetProfiler): {_REMEDY}"
        )
    return library


def operator_events(raw: Sequence[RawEvent]) -> Iterator[ProfileEvent]:
    """Yield the operators and inferences among the library's events.

    An event without a start begins when the one before it ends.
    """
    now_us = 0.0
    counts: dict[str, int] = {}
    has_runs = any(event.kind == _RUN for event in raw)
    for event in raw:
        if event.kind == _RUN if has_runs else (event.tag, event.kind) == _INVOKE:
            now_us, counts = float(event.start_us), {}
            yield inference(now_us, event.elapsed_us)
        elif event.kind in (_OPERATOR, _DELEGATE_OPERATOR):
            start_us = float(event.start_us) or now_us
            counts[event.tag] = counts.get(event.tag, 0) + 1
            name = f"{event.tag} #{counts[event.tag]}"
            thread = 0 if event.start_us else None
            yield ProfileEvent(
                name=name,
                type=event.tag,
                start_us=start_us,
                duration_us=event.elapsed_us,
                thread=thread,
            )
            now_us = start_us + event.elapsed_us
