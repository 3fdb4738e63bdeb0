"""LiteRT's CompiledModel: a .tflite file on the CPU, a GPU or an NPU.

The record shows the number of operators on each. The library does not name its GPU, so Vulkan lists
the GPUs of the machine.
"""

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.runtimes import Array, Loaded, Options
from edgemeter.agent.runtimes.adapter import captured_stderr, chosen_setting
from edgemeter.agent.runtimes.tflite_file import TfliteFile

_CPU = "cpu-compiled"
BACKENDS = (_CPU, "gpu", "gpu,cpu", "npu", "npu,cpu")
# The operator in a file for parts that were compiled for an NPU.
_DISPATCH = "DISPATCH_OP"
# Only the library's log has numbers; the GPU's delegate has a line for each kind of operator that
# it leaves to the CPU.
_ON_GPU = re.compile(
    r"(\d+|No) operations will run on the GPU, and (?:the remaining|all) (\d+) operations will "
    r"run on the CPU"
)
_ON_NPU = re.compile(r"Partitioned subgraph<\d+>, selected (\d+) ops, from a total of (\d+) ops")
_LEFT = re.compile(
    r"Following operations are not supported by GPU delegate:\n((?:(?!No operations)[A-Z].*\n)*)"
)
_ABSENT = re.compile(r"No adapters found|Failed to initialize WebGPU environment")
_SOFTWARE = " (software)"
# Source: vulkan_core.h. VkPhysicalDeviceProperties begins with five 32-bit numbers, the last of
# which is the type, and a name of 256 bytes.
_INSTANCE_CREATE_INFO, _TYPE_CPU = 1, 4


class CompiledGraph:
    """A compiled model and its buffers, in the interpreter's order.

    `indices` are those of the tensors of inputs and outputs.
    """

    def __init__(
        self,
        model: Path,
        options: Options,
        file: TfliteFile,
        loaded: Loaded,
        indices: Sequence[Sequence[int]],
    ) -> None:
        """Compile the model.

        Raises:
            UnavailableError: there is no such accelerator, or it takes no operator.
            ConfigError: operators would be left to the CPU, which is not allowed, or the model
                cannot be compiled.
        """
        self._accelerator = (options.backend or _CPU).partition(",")[0]
        self._infos, self._indices = loaded.outputs, indices
        self._last: list[Array] | None = None
        module = import_module("ai_edge_litert.compiled_model")
        error, is_whole = None, False
        with captured_stderr() as lines:
            try:
                self._model = module.CompiledModel.from_file(
                    str(model), options=library_options(module, options)
                )
                is_whole = self._accelerator == _CPU or self._model.is_fully_accelerated()
                self._make_buffers()
            except (RuntimeError, ValueError) as raised:
                error = raised
        log = "".join(f"{line}\n" for line in lines)
        self.facts = (
            {} if self._accelerator == _CPU else _facts(self._accelerator, log, is_whole=is_whole)
        )
        self._check(
            model,
            log,
            error,
            allows_cpu="cpu" in (options.backend or _CPU),
            is_compiled=_DISPATCH in file.custom_uses,
        )

    def _make_buffers(self) -> None:
        key = next(iter(self._model.get_signature_list()))
        details = (
            self._model.get_input_tensor_details(key),
            self._model.get_output_tensor_details(key),
        )
        names = self._model.get_signature_by_index(0)
        # A signature has an order of its own.
        orders = [
            [by_name[name]["index"] for name in names[end]]
            for by_name, end in zip(details, ("inputs", "outputs"), strict=True)
        ]
        self._in, self._out = (
            self._model.create_input_buffers(0),
            self._model.create_output_buffers(0),
        )
        self._positions, outputs = (
            [order.index(index) for index in ends]
            for order, ends in zip(orders, self._indices, strict=True)
        )
        self._read_from = [self._out[position] for position in outputs]
        shapes = [
            {entry["index"]: tuple(entry["shape"]) for entry in by_name.values()}
            for by_name in details
        ]
        self._in_shapes, self._out_shapes = (
            [by_index[i] for i in ends]
            for by_index, ends in zip(shapes, self._indices, strict=True)
        )

    def resize(self, inputs: Sequence[Array]) -> None:
        """Change the shapes of the inputs; raises ValueError or RuntimeError."""
        with captured_stderr():
            resized = [
                position
                for position, array in enumerate(inputs)
                if array.shape != self._in_shapes[position]
            ]
            for position in resized:
                self._model.resize_input_tensor(self._positions[position], inputs[position].shape)
            if resized:
                self._make_buffers()

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Write the inputs to their buffers, and return the run.

        On an accelerator the run also reads the outputs, to wait for them.
        """
        for position, array in zip(self._positions, inputs, strict=True):
            self._in[position].write(array)
        self._last = None
        run = partial(self._model.run_by_index, 0, self._in, self._out)
        if self._accelerator == _CPU:
            return run

        def call() -> None:
            run()
            self._last = self._read()

        return call

    def _read(self) -> list[Array]:
        return [
            buffer.read(prod(shape), info.dtype).reshape(shape)
            for buffer, shape, info in zip(
                self._read_from, self._out_shapes, self._infos, strict=True
            )
        ]

    def outputs(self) -> list[Array]:
        if self._accelerator == _CPU:
            return self._read()
        if self._last is None:
            raise MeasurementError("LiteRT has no output: run a query first")
        return [array.copy() for array in self._last]

    def _check(
        self, model: Path, log: str, error: Exception | None, *, allows_cpu: bool, is_compiled: bool
    ) -> None:
        """Raise if the accelerator is absent or does not run what it should.

        It must run some operator, and the CPU may run one only if that is allowed.
        """
        on_accelerator, on_cpu = (
            int(self.facts.get(f"operators_on_{name}", 0)) for name in (self._accelerator, "cpu")
        )
        reasons = [
            line.partition("ERROR: ")[2]
            for line in log.splitlines()
            if line.startswith("ERROR: ") and "[" not in line
        ]
        reason = one_line(reasons[0] if reasons else error or "").rstrip(".")
        if self._accelerator == "gpu" and error is not None and _ABSENT.search(log):
            devices = (
                "Vulkan shows "
                f"{self.facts.get('gpu') or self.facts.get('gpus_present') or 'no GPU'}"
            )
            raise UnavailableError(
                f"LiteRT finds no GPU that it can use ({devices}): install its Vulkan driver, or "
                "choose xnnpack"
            ) from error
        # The library reports a model as accelerated even if no plug-in took it.
        if self._accelerator == "npu" and not on_accelerator and not is_compiled:
            raise UnavailableError(
                f"no NPU takes any of {str(model)!r}: install the package of its vendor, "
                "ai-edge-litert-sdk-qualcomm, -mediatek, "
                "-google-tensor or -intel, in the version of ai-edge-litert"
            ) from error
        if on_cpu and not on_accelerator:
            raise UnavailableError(
                f"the {self._accelerator} takes no operator of {str(model)!r}: choose xnnpack"
            ) from error
        if (
            not allows_cpu
            and (on_cpu or self.facts.get("fully_accelerated") == "no")
            and (error is None or "not accelerated" in str(error))
        ):
            share = (
                f"{on_cpu} of {on_cpu + on_accelerator} operators"
                if on_cpu
                else "operators (the library does not report how many)"
            )
            kinds = f" ({self.facts['left_to_cpu']})" if "left_to_cpu" in self.facts else ""
            raise ConfigError(
                f"{share} of {str(model)!r} would run on the CPU{kinds}: choose --backend "
                f"{self._accelerator},cpu to allow that"
            ) from error
        if error is not None:
            raise ConfigError(
                f"LiteRT cannot compile {str(model)!r} for {self._accelerator}: {reason}; "
                "convert it again, with operators that it has"
            ) from error


def library_options(module: Any, options: Options) -> Any:
    """Return the library's options: accelerators of the backend, threads and precision.

    The precision on a GPU is f32 unless the GPU may choose.
    """
    flags = module.HardwareAccelerator(0)
    for name in (options.backend or _CPU).split(","):
        flags |= module.HardwareAccelerator[name.removesuffix("-compiled").upper()]
    return module.Options(
        hardware_accelerators=flags,
        cpu_options=module.CpuOptions(num_threads=options.threads),
        gpu_options=module.GpuOptions(enforce_f32=not recorded_backend(options).endswith(",auto")),
    )


def recorded_backend(options: Options) -> str:
    """Return the backend for a record.

    It ends in `,auto` if the accelerator chooses its precision, as an NPU does.
    """
    backend = options.backend or _CPU
    chooses = chosen_setting(
        "litert", options, "precision", ("f32", "auto")
    ) == "auto" or backend.startswith("npu")
    return f"{backend},auto" if chooses else backend


def _facts(accelerator: str, log: str, *, is_whole: bool) -> dict[str, str]:
    """Return the numbers of operators on the accelerator and on the CPU, and the GPU.

    The numbers are present only if the library reports them.
    """
    facts = gpu_facts() if accelerator == "gpu" else {}
    pairs = [(int(match[1].replace("No", "0")), int(match[2])) for match in _ON_GPU.finditer(log)]
    pairs += [(int(match[1]), int(match[2]) - int(match[1])) for match in _ON_NPU.finditer(log)]
    if not pairs:
        return facts | {"fully_accelerated": "yes" if is_whole else "no"}
    on_accelerator, on_cpu = (sum(counts) for counts in zip(*pairs, strict=True))
    facts |= {f"operators_on_{accelerator}": str(on_accelerator)} | (
        {"operators_on_cpu": str(on_cpu)} if on_cpu else {}
    )
    kinds = dict.fromkeys(
        line.partition(":")[0].removeprefix("CUSTOM ")
        for match in _LEFT.finditer(log)
        for line in match[1].splitlines()
    )
    return facts | ({"left_to_cpu": ", ".join(kinds)} if kinds else {})


def gpu_names() -> list[str]:
    """Return the names of the GPUs; empty without Vulkan.

    The names of emulated GPUs end in `(software)`.
    """
    try:
        library = ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return []
    instance, count = ctypes.c_void_p(), ctypes.c_uint32()
    # VkInstanceCreateInfo without extensions: 64 bytes, of which all but the type are 0.
    request = (ctypes.c_uint32 * 16)(_INSTANCE_CREATE_INFO)
    if library.vkCreateInstance(request, None, ctypes.byref(instance)) != 0:
        return []
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    devices = (ctypes.c_void_p * count.value)()
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices)
    names = [_name(library, device) for device in devices if device]
    library.vkDestroyInstance(instance, None)
    return names


def gpu_facts() -> dict[str, str]:
    """Return the facts about GPUs for a record.

    They are `gpu`, or `gpus_present` if there are several, of which any may compute.
    """
    names = gpu_names()
    return {"gpu" if len(names) == 1 else "gpus_present": "; ".join(names)} if names else {}


def _name(library: ctypes.CDLL, device: int) -> str:
    properties = ctypes.create_string_buffer(4096)
    library.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
    kind = int.from_bytes(properties.raw[16:20], "little")
    return properties.raw[20:276].partition(b"\0")[0].decode("utf-8", "replace") + (
        _SOFTWARE if kind == _TYPE_CPU else ""
    )
