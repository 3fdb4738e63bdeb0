"""LiteRT's CompiledModel: a .tflite file on the CPU, a GPU or an NPU, and how many operators each of them took."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.runtimes import Array, Options, TensorInfo, vulkan
from edgemeter.agent.runtimes.adapter import captured_stderr, chosen_setting
from edgemeter.agent.runtimes.tflite_file import TfliteFile

_CPU = "cpu-compiled"
BACKENDS = (_CPU, "gpu", "gpu,cpu", "npu", "npu,cpu")
PRECISION = "precision"
_DTYPES = ("float32", "float16", "int32", "int8", "uint8", "bool")
# The operator that stands in a file for what was compiled for an NPU beforehand.
_DISPATCH = "DISPATCH_OP"
# Only the log of the library has numbers. The GPU's delegate names each kind of operator that it leaves in a line.
_ON_GPU = re.compile(r"(\d+|No) operations will run on the GPU, and (?:the remaining|all) (\d+) operations will run on the CPU")
_ON_NPU = re.compile(r"Partitioned subgraph<\d+>, selected (\d+) ops, from a total of (\d+) ops")
_LEFT = re.compile(r"Following operations are not supported by GPU delegate:\n((?:(?!No operations)[A-Z].*\n)*)")
_NO_GPU = re.compile(r"No adapters found|Failed to initialize WebGPU environment")
_NO_VENDOR = re.compile(r"Could not load shared library \S+: (.+)|Failed to apply compiler plugins: (.+)")


class CompiledGraph:
    """A compiled model and its buffers; `inputs` and `outputs` are by the index of their tensor, in the order of the interpreter's."""

    def __init__(
        self, model: Path, options: Options, file: TfliteFile, inputs: dict[int, TensorInfo], outputs: dict[int, TensorInfo]
    ) -> None:
        """Compile the model.

        Raises:
            UnavailableError: there is no such accelerator, or it takes no operator.
            ConfigError: operators would be left to the CPU, which was not allowed, or the model cannot be compiled.
        """
        self._accelerator, _, fallback = (options.backend or _CPU).partition(",")
        self._infos, self._indices = tuple(outputs.values()), (list(inputs), list(outputs))
        unread = [info for info in (*inputs.values(), *outputs.values()) if info.dtype not in _DTYPES]
        if unread:
            raise ConfigError(f"{str(model)!r} has {unread[0].name!r} of {unread[0].dtype}, which CompiledModel does not read: use xnnpack")
        module = import_module("ai_edge_litert.compiled_model")
        self._model: Any = None
        error, is_whole = None, False
        with captured_stderr() as lines:
            try:
                self._model = module.CompiledModel.from_file(str(model), options=_options(module, options))
                is_whole = self._accelerator == _CPU or self._model.is_fully_accelerated()
                self._make_buffers()
            except (RuntimeError, ValueError) as raised:
                error = raised
        log = "".join(f"{line}\n" for line in lines)
        self.facts = _facts(self._accelerator, log, is_whole=is_whole)
        allows_cpu, is_compiled = bool(fallback) or self._accelerator == _CPU, _DISPATCH in file.custom_uses
        refusal = _refusal(self._accelerator, model, log, self.facts, error, allows_cpu=allows_cpu, is_compiled=is_compiled)
        if refusal is not None:
            raise refusal from error
        self._last: list[Array] | None = None

    def _make_buffers(self) -> None:
        key = next(iter(self._model.get_signature_list()))
        details = (self._model.get_input_tensor_details(key), self._model.get_output_tensor_details(key))
        names = self._model.get_signature_by_index(0)
        # A signature has an order of its own.
        orders = [[by_name[name]["index"] for name in names[end]] for by_name, end in zip(details, ("inputs", "outputs"), strict=True)]
        self._in, self._out = self._model.create_input_buffers(0), self._model.create_output_buffers(0)
        self._write_to, self._read_from = (
            [buffers[order.index(index)] for index in indices]
            for buffers, order, indices in zip((self._in, self._out), orders, self._indices, strict=True)
        )
        self._positions = [orders[0].index(index) for index in self._indices[0]]
        shape_of = [{entry["index"]: tuple(entry["shape"]) for entry in by_name.values()} for by_name in details]
        self._in_shapes, self._out_shapes = ([by_index[i] for i in order] for by_index, order in zip(shape_of, self._indices, strict=True))

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Write the inputs to their buffers; return the run, with which the outputs are read where it does not wait by itself."""
        try:
            with captured_stderr():
                resized = [position for position, array in enumerate(inputs) if array.shape != self._in_shapes[position]]
                for position in resized:
                    self._model.resize_input_tensor(self._positions[position], inputs[position].shape)
                if resized:
                    self._make_buffers()
            for buffer, array in zip(self._write_to, inputs, strict=True):
                buffer.write(array)
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"LiteRT rejects the input: {one_line(error)}") from error
        self._last = None
        run = partial(self._model.run_by_index, 0, self._in, self._out)
        if self._accelerator == _CPU:
            return run

        def call() -> None:
            run()
            self._last = self._read()

        return call

    def _read(self) -> list[Array]:
        ends = zip(self._read_from, self._out_shapes, self._infos, strict=True)
        return [buffer.read(prod(shape), info.dtype).reshape(shape) for buffer, shape, info in ends]

    def outputs(self) -> list[Array]:
        """Return copies of the outputs, in the interpreter's order."""
        if self._accelerator == _CPU:
            return self._read()
        if self._last is None:
            raise MeasurementError("LiteRT has no output: run a query first")
        return [array.copy() for array in self._last]


def _options(module: Any, options: Options) -> Any:
    """Return the library's options: the accelerators that the backend names, the threads, and f32 on a GPU unless it is left to it."""
    flags = module.HardwareAccelerator(0)
    for name in (options.backend or _CPU).split(","):
        flags |= module.HardwareAccelerator[name.removesuffix("-compiled").upper()]
    return module.Options(
        hardware_accelerators=flags,
        cpu_options=module.CpuOptions(num_threads=options.threads),
        gpu_options=module.GpuOptions(enforce_f32=_precision(options) == "f32"),
    )


def recorded_backend(options: Options) -> str:
    """Return the backend as a record names it: with `,auto` where the accelerator chooses what it computes in."""
    backend = options.backend or _CPU
    return backend if backend == _CPU or _precision(options) == "f32" else f"{backend},auto"


def _precision(options: Options) -> str:
    # An NPU has no such option: it computes in what its compiler chooses.
    default = "auto" if (options.backend or "").startswith("npu") else "f32"
    return chosen_setting("litert", options, PRECISION, ("f32", "auto")) or default


def _facts(accelerator: str, log: str, *, is_whole: bool) -> dict[str, str]:
    """Return how many operators are on the accelerator and on the CPU, as far as the library reports it, and which GPU there is."""
    if accelerator == _CPU:
        return {}
    facts = vulkan.gpu_facts() if accelerator == "gpu" else {}
    if accelerator == "gpu":
        pairs = [(int(match[1].replace("No", "0")), int(match[2])) for match in _ON_GPU.finditer(log)]
    else:
        pairs = [(int(match[1]), int(match[2]) - int(match[1])) for match in _ON_NPU.finditer(log)]
    if not pairs:
        return facts | {"fully_accelerated": "yes" if is_whole else "no"}
    on_cpu = sum(pair[1] for pair in pairs)
    facts |= {f"operators_on_{accelerator}": str(sum(pair[0] for pair in pairs))} | ({"operators_on_cpu": str(on_cpu)} if on_cpu else {})
    kinds = dict.fromkeys(line.partition(":")[0].removeprefix("CUSTOM ") for match in _LEFT.finditer(log) for line in match[1].splitlines())
    return facts | ({"left_to_cpu": ", ".join(kinds)} if kinds else {})


def _refusal(
    accelerator: str, model: Path, log: str, facts: dict[str, str], error: Exception | None, *, allows_cpu: bool, is_compiled: bool
) -> EdgemeterError | None:
    """Return why the model is not run: no accelerator, none of it there, or a part on the CPU that was not allowed."""
    if accelerator == "gpu" and error is not None and _NO_GPU.search(log):
        devices = f"Vulkan shows {facts.get('gpu') or facts.get('gpus_present') or 'no GPU'}"
        return UnavailableError(f"LiteRT finds no GPU that it can use ({devices}): install the GPU's Vulkan driver, or choose xnnpack")
    # The library counts a model as accelerated that no plug-in took.
    if accelerator == "npu" and int(facts.get("operators_on_npu", 0)) == 0 and not is_compiled:
        reasons = [match[1] or match[2] for match in _NO_VENDOR.finditer(log)]
        reason = reasons[0].rstrip(".") if reasons else "no compiler plug-in took an operator"
        return UnavailableError(
            f"no NPU takes any of {str(model)!r} ({one_line(reason)}): install the package of its vendor, ai-edge-litert-sdk-qualcomm, "
            "-mediatek, -google-tensor or -intel, in the version of ai-edge-litert"
        )
    on_cpu, on_accelerator = (int(facts.get(f"operators_on_{name}", 0)) for name in ("cpu", accelerator))
    if on_cpu and not on_accelerator:
        return UnavailableError(f"the {accelerator} takes no operator of {str(model)!r}, all of which would run on the CPU: choose xnnpack")
    if not allows_cpu and (on_cpu or facts.get("fully_accelerated") == "no") and (error is None or "not accelerated" in str(error)):
        share = f"{on_cpu} of {on_cpu + on_accelerator} operators" if on_cpu else "operators (the library does not report how many)"
        kinds = f" ({facts['left_to_cpu']})" if "left_to_cpu" in facts else ""
        return ConfigError(
            f"{share} of {str(model)!r} would run on the CPU{kinds}: choose --backend {accelerator},cpu to allow that, or convert it anew"
        )
    if error is None:
        return None
    reasons = [line.partition("ERROR: ")[2] for line in log.splitlines() if line.startswith("ERROR: ") and "[" not in line]
    reason = one_line(reasons[0] if reasons else error).rstrip(".")
    return ConfigError(f"LiteRT cannot compile {str(model)!r} for {accelerator}: {reason}; convert it again, with operators that it has")
