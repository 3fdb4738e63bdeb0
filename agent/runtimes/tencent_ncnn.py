"""ncnn: its models (.param, with .bin beside it) on the CPU, or on a GPU by Vulkan.

Library: `pip install 'edgemeter[ncnn]'`.
Backend: `cpu` (the default), `vulkan` or `vulkan:N`.
Settings: `precision` is `fp32` (the default), `fp16`, `bf16`, or `auto`. Left to itself (`auto`) ncnn stores and computes in half precision
where the processor can, whatever the file holds; a precision other than fp32 is part of the record's backend (`cpu,fp16`).
`input_shape` is the shape of the one input of a model without one: `1x3x640x640`. Else it comes from the file's Input, or from
the `metadata.yaml` that Ultralytics writes beside it; where neither has it, any array is taken, as with TorchScript.
Outputs are float32, in the order out0, out1 ... where so named.
What is timed is an Extractor made, fed and asked for every output: it keeps what it computed.
Tested with ncnn 1.0.20261020 on the CPU; Vulkan is untested.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, TensorInfo, adapter

_MARK = b"7767517"
_MOST_BYTES = 64 << 20
_SHAPES = "-23330"
_NUMBERED = re.compile(r"(?:in|out)(\d+)")

Shape = tuple[int, ...]
_CANDIDATES = (adapter.LibraryCandidate("ncnn", ("ncnn",)),)
_BACKEND = re.compile(r"cpu|vulkan(?::(\d{1,2}))?")
_PRECISIONS = ("fp32", "fp16", "bf16", "auto")
_HALVES = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_packed", "use_bf16_storage")
_SHAPE = re.compile(r"1(?:x[1-9]\d{0,5}){1,3}")


@dataclass(frozen=True, slots=True)
class NcnnLayer:
    """One line of the file."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NcnnParam:
    """The content of the file. `inputs` and `outputs` are shapes by name, without batch, [c, h, w]; None if the file has none."""

    kinds: frozenset[str]
    inputs: Mapping[str, Shape | None]
    outputs: Mapping[str, Shape | None]


def read_param(model: Path) -> NcnnParam:
    """Return what the file holds; the weights beside it are not read.

    Raises:
        ConfigError: it is not an ncnn .param file, is truncated or garbled.
    """
    if model_file.head(model).lstrip().split(maxsplit=1)[:1] != [_MARK]:
        raise ConfigError(
            f"{str(model)!r} is not an ncnn model, it lacks the magic number 7767517: give the text file .param, with .bin beside it"
        )
    try:
        with model.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8")
        # A line that ends early may still be one: 0=64 cut to 0=6.
        if not text.endswith("\n"):
            raise ValueError("it ends in the middle of a line")  # noqa: TRY301 - one place for all that is wrong with the file
        rows = [line.split() for line in text.splitlines() if line.strip()]
        counts = [int(word) for word in rows[1]] if len(rows) > 1 else []
        if len(counts) != 2 or counts[0] != len(rows) - 2:
            raise ValueError(f"it announces {counts[0] if counts else 'no'} layers and has {max(0, len(rows) - 2)}")  # noqa: TRY301
        return _described([_layer(row) for row in rows[2:]])
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"the model {str(model)!r} is truncated or garbled ({error}): fetch it again") from error


def _layer(row: Sequence[str]) -> NcnnLayer:
    is_whole = len(row) >= 4 and row[2].isdigit() and row[3].isdigit() and len(row) >= 4 + int(row[2]) + int(row[3])
    if not is_whole:
        raise ValueError(f"a layer has too few words: {' '.join(row)[:60]!r}")
    first, last = 4 + int(row[2]), 4 + int(row[2]) + int(row[3])
    settings = dict(word.partition("=")[::2] for word in row[last:])
    return NcnnLayer(row[0], tuple(row[4:first]), tuple(row[first:last]), settings)


def _described(layers: Sequence[NcnnLayer]) -> NcnnParam:
    consumed = {name for layer in layers for name in layer.inputs}
    inputs = {
        name: _input_shape(layer) or _hint(layer, index)
        for layer in layers
        if layer.kind == "Input"
        for index, name in enumerate(layer.outputs)
    }
    outputs = {name: _hint(layer, index) for layer in layers for index, name in enumerate(layer.outputs) if name not in consumed}
    if not inputs or not outputs:
        raise ValueError("it has no Input or no output")
    return NcnnParam(frozenset(layer.kind for layer in layers), _in_order(inputs), _in_order(outputs))


def _input_shape(layer: NcnnLayer) -> Shape | None:
    """Return the shape of an Input, outermost first; 0 is a size that it leaves open."""
    sizes = [int(layer.settings.get(key, 0)) for key in ("2", "11", "1", "0")]
    fixed = tuple(size for size in sizes if size > 0)
    return fixed or None


def _hint(layer: NcnnLayer, index: int) -> Shape | None:
    """Return the shape that the layer notes of one output, outermost first."""
    numbers = [int(word) for word in layer.settings.get(_SHAPES, "").split(",") if word]
    hint = numbers[1 + 4 * index : 5 + 4 * index]
    if len(hint) != 4 or not 1 <= hint[0] <= 3:
        return None
    return tuple(reversed(hint[1 : 1 + hint[0]]))


def _in_order(shapes: dict[str, Shape | None]) -> dict[str, Shape | None]:
    """Return them as the model numbers them (pnnx: in0, out0, out1), else as the file has them."""
    matches = {name: _NUMBERED.fullmatch(name) for name in shapes}
    if not all(matches.values()):
        return shapes
    return dict(sorted(shapes.items(), key=lambda item: int(match[1]) if (match := matches[item[0]]) else 0))


class Ncnn:
    """Runs an ncnn model."""

    def __init__(self) -> None:
        self._module: Any = None
        self._net: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._last: list[tuple[int, Any]] | None = None

    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library, load the model; see `Runtime.load`."""
        adapter.check_options("ncnn", options, extra=("precision", "input_shape"))
        precision = adapter.chosen_setting("ncnn", options, "precision", _PRECISIONS) or "fp32"
        backend = options.backend or "cpu"
        if not _BACKEND.fullmatch(backend):
            raise ConfigError(f"runtime 'ncnn' has no backend {backend!r}: choose cpu, vulkan or vulkan:N")
        param = read_param(model)
        metadata = adapter.read_metadata(model.parent, "ncnn")
        inputs = _inputs(param, options.extra.get("input_shape"), metadata)
        library = adapter.load_library(_CANDIDATES, "ncnn")
        started_ns = time.monotonic_ns()
        net = _net(library, options.threads, precision, backend)
        _fill(net, model, param, library)
        load_ns = time.monotonic_ns() - started_ns
        self._module, self._net, self._inputs = library.module, net, inputs
        self._names = (tuple(param.inputs), tuple(param.outputs))
        outputs = tuple(TensorInfo(name, (1, *shape), "float32") for name, shape in param.outputs.items() if shape)
        return library.loaded(
            backend=backend if precision == "fp32" else f"{backend},{precision}",
            inputs=inputs,
            outputs=outputs if len(outputs) == len(param.outputs) else (),
            metadata=metadata,
            load_ns=load_ns,
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs into ncnn's own memory; return a call that makes an Extractor and asks it for every output."""
        if self._inputs:
            adapter.check_inputs(inputs, self._inputs)
        input_names, output_names = self._names
        if len(inputs) != len(input_names) or any(
            array.ndim not in {2, 3, 4} or array.shape[0] != 1 or array.dtype != np.float32 for array in inputs
        ):
            raise ConfigError(
                f"ncnn takes float32 [1, ...] of 2 to 4 dimensions for {', '.join(input_names)}: prepare the data in that form"
            )
        # Cloned: ncnn computes in place and may not do that in memory that is not its own.
        fed = [(name, self._module.Mat(np.ascontiguousarray(array[0])).clone()) for name, array in zip(input_names, inputs, strict=True)]
        net = self._net
        self._last = None

        def call() -> None:
            extractor = net.create_extractor()
            for name, tensor in fed:
                extractor.input(name, tensor)
            self._last = [extractor.extract(name) for name in output_names]

        return call

    def outputs(self) -> list[Array]:
        """Return copies of what the last call gave, each with a leading 1."""
        if self._last is None or any(status != 0 for status, _ in self._last):
            why = "call what bind returned first" if self._last is None else "it failed in the last call, mostly for want of memory"
            raise MeasurementError(f"ncnn has no output: {why}")
        return [np.array(tensor)[None] for _, tensor in self._last]

    def close(self) -> None:
        """Let the net go; outputs lie in its memory and go first."""
        self._last = None
        self._net = self._module = None
        self._inputs, self._names = (), ((), ())


def _inputs(param: NcnnParam, input_shape: str | None, metadata: Mapping[str, str]) -> tuple[TensorInfo, ...]:
    """Return the inputs as far as their shapes are known; nothing where one is open."""
    shapes = dict(param.inputs)
    size = re.fullmatch(r"\[(\d+), (\d+)\]", metadata.get("imgsz", ""))
    if input_shape is not None:
        if not _SHAPE.fullmatch(input_shape) or len(shapes) != 1:
            raise ConfigError(
                f"input_shape {input_shape!r} is not for this model: give 1xCxHxW for the one input of a model; it has {', '.join(shapes)}"
            )
        shapes = dict.fromkeys(shapes, tuple(int(part) for part in input_shape.split("x")[1:]))
    elif size and len(shapes) == 1 and not all(shapes.values()):
        shapes = dict.fromkeys(shapes, (int(metadata.get("channels", "3")), int(size[1]), int(size[2])))
    infos = tuple(TensorInfo(name, (1, *shape), "float32") for name, shape in shapes.items() if shape)
    return infos if len(infos) == len(shapes) else ()


def _net(library: adapter.RuntimeLibrary, threads: int, precision: str, backend: str) -> Any:
    net = library.module.Net()
    net.opt.num_threads = threads
    if precision != "auto":
        for name in _HALVES:
            setattr(net.opt, name, f"use_{precision}_" in name)
    if backend == "cpu":
        if precision == "fp16" and not library.module.cpu_support_arm_asimdhp():
            raise UnavailableError(
                f"{library.package} {library.version} computes in fp16 only where the processor has it (Armv8.2 asimdhp): choose fp32 or "
                "bf16"
            )
        return net
    number = int(backend.partition(":")[2] or 0)
    with adapter.captured_stderr():
        count = library.module.get_gpu_count()
    if number >= count:
        raise UnavailableError(
            f"{library.package} {library.version} sees {count} Vulkan devices, {backend!r} is none of them: choose cpu, or install "
            "the driver"
        )
    net.opt.use_vulkan_compute = True
    net.set_vulkan_device(number)
    return net


def _fill(net: Any, model: Path, param: NcnnParam, library: adapter.RuntimeLibrary) -> None:
    unknown = sorted(kind for kind in param.kinds if library.module.layer_to_index(kind) < 0)
    if unknown:
        raise ConfigError(
            f"{library.package} {library.version} has no layer {', '.join(unknown)}, which {str(model)!r} needs: "
            "convert it again for this version"
        )
    weights = model.with_suffix(".bin")
    if not weights.is_file():
        raise ConfigError(f"the weights of {str(model)!r} are not there: put {weights.name!r} beside it")
    with adapter.captured_stderr() as lines:
        is_loaded = net.load_param(str(model)) == 0 and net.load_model(str(weights)) == 0
    if not is_loaded:
        why = one_line(" ".join(lines) or "no reason given")
        raise ConfigError(
            f"{library.package} {library.version} cannot load {str(model)!r} with {weights.name!r}: {why}; "
            "one is truncated, or they do not belong together: fetch both again"
        )
