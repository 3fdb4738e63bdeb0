"""ncnn: its models (.param, with .bin beside it) on the CPU, or on a GPU by Vulkan.

Library: `pip install 'edgemeter[ncnn]'`.
Backend: `cpu` (the default), `vulkan` or `vulkan:N`.
Settings: `precision` is `fp32` (the default), `fp16`, `bf16`, or `auto`. Left to itself (`auto`) ncnn stores and computes in half precision
where the processor can, whatever the file holds; a precision other than fp32 stands in the record's backend (`cpu,fp16`).
`input_shape` is the shape of the one input of a model that does not tell it: `1x3x640x640`. Else it comes from the file's Input, or from
the `metadata.yaml` that Ultralytics writes beside it; where none tells, any array is taken, as with TorchScript.
ncnn knows no batches here: the leading 1 is ours, on inputs and outputs. Outputs are float32, in the order out0, out1 ... where so named.
What is timed is an Extractor made, fed and asked for every output, as its users do; an Extractor keeps what it computed, so that each query
needs a new one.
Tested with ncnn 1.0.20261020 on the CPU; Vulkan is untested.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.runtimes import Array, Loaded, Options, TensorInfo, library, metadata_yaml, ncnn_param, request
from edgemeter.agent.runtimes.library import Candidate, Library
from edgemeter.agent.runtimes.ncnn_param import NcnnParam

_CANDIDATES = (Candidate("ncnn", ("ncnn",)),)
_BACKEND = re.compile(r"cpu|vulkan(?::(\d{1,2}))?")
_PRECISIONS = ("fp32", "fp16", "bf16", "auto")
_HALVES = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_packed", "use_bf16_storage")
_SHAPE = re.compile(r"1(?:x[1-9]\d{0,5}){1,3}")


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
        request.check_options("ncnn", options, extra=("precision", "input_shape"))
        precision, backend = _chosen(options)
        param = ncnn_param.read(model)
        said = metadata_yaml.read(model.parent)
        inputs = _inputs(param, options.extra.get("input_shape"), said)
        found = library.load(_CANDIDATES, "ncnn")
        started_ns = time.monotonic_ns()
        net = _net(found, options.threads, precision, backend)
        _fill(net, model, param, found)
        load_ns = time.monotonic_ns() - started_ns
        self._module, self._net, self._inputs = found.module, net, inputs
        self._names = (tuple(param.inputs), tuple(param.outputs))
        outputs = tuple(TensorInfo(name, (1, *shape), "float32") for name, shape in param.outputs.items() if shape)
        return Loaded(
            package=found.package,
            version=found.version,
            backend=backend if precision == "fp32" else f"{backend},{precision}",
            inputs=inputs,
            outputs=outputs if len(outputs) == len(param.outputs) else (),
            metadata=said,
            import_ns=found.import_ns,
            load_ns=load_ns,
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs into ncnn's own memory; return a call that makes an Extractor and asks it for every output."""
        if self._inputs:
            request.check_inputs(inputs, self._inputs)
        given, wanted = self._names
        if len(inputs) != len(given) or any(
            array.ndim not in {2, 3, 4} or array.shape[0] != 1 or array.dtype != np.float32 for array in inputs
        ):
            message = f"ncnn takes float32 [1, ...] of 2 to 4 dimensions for {', '.join(given)}: prepare the data so"
            raise ConfigError(message)
        # Cloned: ncnn computes in place and may not do that in memory that is not its own.
        fed = [(name, self._module.Mat(np.ascontiguousarray(array[0])).clone()) for name, array in zip(given, inputs, strict=True)]
        net = self._net
        self._last = None

        def call() -> None:
            extractor = net.create_extractor()
            for name, tensor in fed:
                extractor.input(name, tensor)
            self._last = [extractor.extract(name) for name in wanted]

        return call

    def outputs(self) -> list[Array]:
        """Return copies of what the last call gave, each with a leading 1."""
        if self._last is None or any(status != 0 for status, _ in self._last):
            why = "call what bind returned first" if self._last is None else "it failed in the last call, mostly for want of memory"
            message = f"ncnn has no output to give: {why}"
            raise MeasurementError(message)
        return [np.array(tensor)[None] for _, tensor in self._last]

    def close(self) -> None:
        """Let the net go; outputs lie in its memory and go first."""
        self._last = None
        self._net = self._module = None
        self._inputs, self._names = (), ((), ())


def _chosen(options: Options) -> tuple[str, str]:
    """Return precision and backend as they can be meant."""
    precision, backend = options.extra.get("precision", "fp32"), options.backend or "cpu"
    if precision not in _PRECISIONS:
        message = f"runtime 'ncnn' has no precision {precision!r}: choose one of {', '.join(_PRECISIONS)}"
        raise ConfigError(message)
    if not _BACKEND.fullmatch(backend):
        message = f"runtime 'ncnn' has no backend {backend!r}: choose cpu, vulkan or vulkan:N"
        raise ConfigError(message)
    return precision, backend


def _inputs(param: NcnnParam, asked: str | None, said: Mapping[str, str]) -> tuple[TensorInfo, ...]:
    """Return the inputs as far as something tells their shapes; nothing where one is open."""
    shapes = dict(param.inputs)
    size = re.fullmatch(r"\[(\d+), (\d+)\]", said.get("imgsz", ""))
    if asked is not None:
        if not _SHAPE.fullmatch(asked) or len(shapes) != 1:
            message = f"input_shape {asked!r} is not for this model: give 1xCxHxW for the one input of a model; it has {', '.join(shapes)}"
            raise ConfigError(message)
        shapes = dict.fromkeys(shapes, tuple(int(part) for part in asked.split("x")[1:]))
    elif size and len(shapes) == 1 and not all(shapes.values()):
        shapes = dict.fromkeys(shapes, (int(said.get("channels", "3")), int(size[1]), int(size[2])))
    known = tuple(TensorInfo(name, (1, *shape), "float32") for name, shape in shapes.items() if shape)
    return known if len(known) == len(shapes) else ()


def _net(found: Library, threads: int, precision: str, backend: str) -> Any:
    """Return an empty net that computes as asked."""
    net = found.module.Net()
    net.opt.num_threads = threads
    if precision != "auto":
        for name in _HALVES:
            setattr(net.opt, name, f"use_{precision}_" in name)
    if backend == "cpu":
        if precision == "fp16" and not found.module.cpu_support_arm_asimdhp():
            message = (
                f"{found.package} {found.version} computes in fp16 only where the processor has it (Armv8.2 asimdhp): choose fp32 or bf16"
            )
            raise UnavailableError(message)
        return net
    number = int(backend.partition(":")[2] or 0)
    with _words():
        count = found.module.get_gpu_count()
    if number >= count:
        message = (
            f"{found.package} {found.version} sees {count} Vulkan devices, {backend!r} is none of them: choose cpu, or install the driver"
        )
        raise UnavailableError(message)
    net.opt.use_vulkan_compute = True
    net.set_vulkan_device(number)
    return net


def _fill(net: Any, model: Path, param: NcnnParam, found: Library) -> None:
    """Load layers and weights into the net."""
    unknown = sorted(kind for kind in param.kinds if found.module.layer_to_index(kind) < 0)
    if unknown:
        message = (
            f"{found.package} {found.version} has no layer {', '.join(unknown)}, which {str(model)!r} needs: "
            "convert it again for this version"
        )
        raise ConfigError(message)
    weights = model.with_suffix(".bin")
    if not weights.is_file():
        message = f"the weights of {str(model)!r} are not there: put {weights.name!r} beside it"
        raise ConfigError(message)
    with _words() as said:
        is_loaded = net.load_param(str(model)) == 0 and net.load_model(str(weights)) == 0
    if not is_loaded:
        why = library.one_line(" ".join(said) or "no reason given")
        message = (
            f"{found.package} {found.version} cannot load {str(model)!r} with {weights.name!r}: {why}; "
            "one is truncated, or they do not belong together: fetch both again"
        )
        raise ConfigError(message)


@contextmanager
def _words() -> Iterator[list[str]]:
    """Catch what ncnn prints on standard error, the only place where it says what is wrong."""
    said: list[str] = []
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said += [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
