"""ncnn: models (.param with .bin) on the CPU, or on a GPU by Vulkan.

- Library: `pip install 'edgemeter[ncnn]'`.
- Backend: `cpu` (the default), `vulkan` or `vulkan:N`.
- Settings: `precision` is `fp32` (the default), `fp16`, `bf16` or `auto`. With `auto` ncnn may
  compute in half precision; the record names it: `cpu,fp16`. `input_shape = "1x3x640x640"` gives
  the input's shape if no file does.
- Timed: making, feeding and reading an Extractor.

Tested with: ncnn 1.0.20261020 on the CPU. Outputs are float32, in the order out0, out1 ... if they
are named so. A model without an input shape, in the file or in Ultralytics' `metadata.yaml` next to
it, takes any array. An Extractor is made for each call, because it keeps what it computed.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo, adapter

_MARK = b"7767517"
_NUMBERED = re.compile(r"(?:in|out)(\d+)")
_CANDIDATES = (adapter.LibraryCandidate("ncnn", ("ncnn",)),)
_BACKEND = re.compile(r"cpu|vulkan(?::(\d{1,2}))?")
_PRECISIONS = ("fp32", "fp16", "bf16", "auto")
_HALVES = (
    "use_fp16_packed",
    "use_fp16_storage",
    "use_fp16_arithmetic",
    "use_bf16_packed",
    "use_bf16_storage",
)
_SHAPE = re.compile(r"1(?:x[1-9]\d{0,5}){1,3}")
# The line of an Input, with its output, and sizes c, d, h and w as `2=3 11=1 1=480 0=640`.
_INPUT = re.compile(r"^Input\s+\S+\s+0\s+1\s+(\S+)(.*)$", re.MULTILINE)


class Ncnn(Runtime):
    """Runs an ncnn model."""

    def __init__(self) -> None:
        self._module: Any = None
        self._net: Any = None
        self._inputs: tuple[TensorInfo, ...] = ()
        self._names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._last: list[tuple[int, Any]] | None = None

    def load(self, model: Path, options: Options) -> Loaded:
        adapter.check_options("ncnn", options, extra=("precision", "input_shape"))
        precision = adapter.chosen_setting("ncnn", options, "precision", _PRECISIONS) or "fp32"
        backend = options.backend or "cpu"
        if not _BACKEND.fullmatch(backend):
            raise ConfigError(
                f"runtime 'ncnn' has no backend {backend!r}: choose cpu, vulkan or vulkan:N"
            )
        if model_file.head(model).lstrip().split(maxsplit=1)[:1] != [_MARK]:
            raise ConfigError(
                f"{str(model)!r} is not an ncnn model, it lacks the magic number 7767517: give "
                "the text file .param, with .bin beside it"
            )
        metadata = adapter.read_metadata(model.parent, "ncnn")
        library = adapter.load_library(_CANDIDATES, "ncnn")
        started_ns = time.monotonic_ns()
        net = _net(library, options.threads, precision, backend)
        _fill(net, model, library)
        load_ns = time.monotonic_ns() - started_ns
        self._names = _in_order(net.input_names()), _in_order(net.output_names())
        hints = {
            blob.name: (blob.shape.c, blob.shape.h, blob.shape.w)[3 - blob.shape.dims :]
            for blob in net.blobs()
            if blob.shape.dims in (1, 2, 3)
        }
        self._inputs = _inputs(
            model, self._names[0], hints, options.extra.get("input_shape"), metadata
        )
        self._module, self._net = library.module, net
        outputs = tuple(
            TensorInfo(name, (1, *hints[name]), "float32")
            for name in self._names[1]
            if name in hints
        )
        return library.loaded(
            backend=backend if precision == "fp32" else f"{backend},{precision}",
            inputs=self._inputs,
            outputs=outputs if len(outputs) == len(self._names[1]) else (),
            metadata=metadata,
            load_ns=load_ns,
        )

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs into ncnn's memory, and return the call.

        The call makes an Extractor and extracts every output.
        """
        import numpy as np  # noqa: PLC0415 - a session reads this file too, and needs no NumPy

        if self._inputs:
            adapter.check_inputs(inputs, self._inputs)
        input_names, output_names = self._names
        if len(inputs) != len(input_names) or any(
            array.ndim not in {2, 3, 4} or array.shape[0] != 1 or array.dtype != np.float32
            for array in inputs
        ):
            raise ConfigError(
                f"ncnn takes float32 [1, ...] of 2 to 4 dimensions for {', '.join(input_names)}: "
                "prepare the data in that form"
            )
        # Cloned, because ncnn computes in place, which needs its own memory.
        fed = [
            (name, self._module.Mat(np.ascontiguousarray(array[0])).clone())
            for name, array in zip(input_names, inputs, strict=True)
        ]
        net = self._net
        self._last = None

        def call() -> None:
            extractor = net.create_extractor()
            for name, tensor in fed:
                extractor.input(name, tensor)
            self._last = [extractor.extract(name) for name in output_names]

        return call

    def outputs(self) -> list[Array]:
        """Return copies of the last call's outputs, each with a leading 1."""
        import numpy as np  # noqa: PLC0415 - a session reads this file too, and needs no NumPy

        if self._last is None or any(status != 0 for status, _ in self._last):
            why = (
                "call what bind returned first"
                if self._last is None
                else "it failed in the last call, mostly for want of memory"
            )
            raise MeasurementError(f"ncnn has no output: {why}")
        return [np.array(tensor)[None] for _, tensor in self._last]

    def close(self) -> None:
        """Release the outputs, which are in the net's memory, then the net."""
        self._last = None
        self._net = self._module = None
        self._inputs, self._names = (), ((), ())


def _in_order(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the order of their numbers (pnnx: in0, out0, out1), or of the file."""
    numbers = [int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))]
    return (
        tuple(name for _, name in sorted(zip(numbers, names, strict=True)))
        if len(numbers) == len(names)
        else tuple(names)
    )


def _inputs(
    model: Path,
    names: Sequence[str],
    hints: Mapping[str, tuple[int, ...]],
    input_shape: str | None,
    metadata: Mapping[str, str],
) -> tuple[TensorInfo, ...]:
    declared = {
        match[1]: dict(word.partition("=")[::2] for word in match[2].split())
        for match in _INPUT.finditer(model.read_text(errors="replace"))
    }
    sizes = {
        name: [int(declared[name].get(key, "0")) for key in ("2", "11", "1", "0")]
        for name in names
        if name in declared
    }
    # A size of 0 is open.
    shapes = {**hints} | {
        name: shape
        for name, numbers in sizes.items()
        if (shape := tuple(size for size in numbers if size > 0))
    }
    size = re.fullmatch(r"\[(\d+), (\d+)\]", metadata.get("imgsz", ""))
    if input_shape is not None:
        if not _SHAPE.fullmatch(input_shape) or len(names) != 1:
            raise ConfigError(
                f"input_shape {input_shape!r} is not for this model: give 1xCxHxW for the one "
                f"input of a model; it has {', '.join(names)}"
            )
        shapes = {names[0]: tuple(int(part) for part in input_shape.split("x")[1:])}
    elif size and len(names) == 1 and names[0] not in shapes:
        shapes = {names[0]: (int(metadata.get("channels", "3")), int(size[1]), int(size[2]))}
    infos = tuple(
        TensorInfo(name, (1, *shapes[name]), "float32") for name in names if name in shapes
    )
    return infos if len(infos) == len(names) else ()


def _net(library: adapter.RuntimeLibrary, threads: int, precision: str, backend: str) -> Any:
    net = library.module.Net()
    net.opt.num_threads = threads
    if precision != "auto":
        for name in _HALVES:
            setattr(net.opt, name, f"use_{precision}_" in name)
    if backend == "cpu":
        if precision == "fp16" and not library.module.cpu_support_arm_asimdhp():
            raise UnavailableError(
                f"{library.package} {library.version} computes in fp16 only where the processor "
                "has it (Armv8.2 asimdhp): choose fp32 or "
                "bf16"
            )
        return net
    number = int(backend.partition(":")[2] or 0)
    with adapter.captured_stderr():
        count = library.module.get_gpu_count()
    if number >= count:
        raise UnavailableError(
            f"{library.package} {library.version} sees {count} Vulkan devices, {backend!r} is "
            "none of them: choose cpu, or install "
            "the driver"
        )
    net.opt.use_vulkan_compute = True
    net.set_vulkan_device(number)
    return net


def _fill(net: Any, model: Path, library: adapter.RuntimeLibrary) -> None:
    weights = model.with_suffix(".bin")
    if not weights.is_file():
        raise ConfigError(
            f"the weights of {str(model)!r} are not there: put {weights.name!r} beside it"
        )
    with adapter.captured_stderr() as lines:
        is_loaded = net.load_param(str(model)) == 0 and net.load_model(str(weights)) == 0
    if not is_loaded:
        why = one_line(" ".join(lines) or "no reason given")
        raise ConfigError(
            f"{library.package} {library.version} cannot load {str(model)!r} with "
            f"{weights.name!r}: {why}; it is truncated, has a layer "
            "that this version lacks, or the two do not belong together: fetch both again, or "
            "convert the model again"
        )
