"""PyTorch: TorchScript archives (.pt, .pth, .torchscript) and exported programs (.pt2), on the CPU or a CUDA device.

Library: `pip install 'edgemeter[torch]'` (with CUDA, gigabytes, unless PyTorch's index for the CPU is named); on a Jetson, NVIDIA's build.
Backend: `cpu` (the default), `cuda` or `cuda:N`. Setting `onednn = "off"` keeps oneDNN out, which leaves PyTorch's own kernels; it holds
for the whole process. Never a pickle: `torch_archive` inspects the file first.
TorchScript declares no shapes, and any array is taken, but for an archive whose config.txt has `shape` (Ultralytics writes one) or whose
`forward` takes a List[Tensor] (scripted detectors of torchvision and D2Go): it gets a list of one picture, its detections are the outputs.
Only for a file that calls operators of torchvision (nms, roi_align ...) torchvision is imported first. Both must be builds for one
device: PyPI's are for CUDA, also on aarch64; PyTorch's own index has those for the CPU.
What is timed is the module's call in inference mode, and on CUDA the synchronisation after it.
Tested with torch 2.13.0 and 2.15.0 on the CPU; CUDA is untested.
"""

import contextlib
import io
import json
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.runtimes import Array, Loaded, Options, TensorInfo, torch_archive
from edgemeter.agent.runtimes.adapter import LibraryCandidate, RuntimeLibrary, check_inputs, check_options, load_library
from edgemeter.agent.runtimes.torch_archive import TorchArchive

CANDIDATES = (LibraryCandidate("torch", ("torch",)),)
# What PyTorch raises on a file that it cannot load; it has no error of its own for it.
_FAILURES = (
    RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, AssertionError, EOFError, OSError, pickle.UnpicklingError,
)  # fmt: skip


class PyTorch:
    """Runs a TorchScript archive or an exported program."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._module: Any = None
        self._device = ""
        self._inputs: tuple[TensorInfo, ...] = ()
        self._takes_list = False
        self._last: Any = None
        self._mode = contextlib.ExitStack()

    def load(self, model: Path, options: Options) -> Loaded:
        """Import PyTorch, load the model to the device; see `Runtime.load`."""
        check_options("pytorch", options, extra=("onednn",))
        archive = torch_archive.read(model)
        library = load_library(CANDIDATES, "torch")
        self._torch = library.module
        self._device = torch_device(library.module, options.backend or "cpu")
        set_threads(library.module, options.threads)
        _set_onednn(library.module, options.extra.get("onednn", "on"))
        _check_pickles(library.module, model, archive)
        operators_ns, facts = _import_torchvision(library, model) if archive.calls_torchvision else (0, {})
        started_ns = time.monotonic_ns()
        try:
            with warnings.catch_warnings():
                # TorchScript is deprecated (for PyTorch 2.15 a FutureWarning), which is for the author of the model to act on.
                for category in (DeprecationWarning, FutureWarning):
                    warnings.filterwarnings("ignore", message=r".*torch\.jit\.|.*TorchScript", category=category)
                if archive.kind == "torchscript":
                    self._module = library.module.jit.load(str(model), map_location=self._device).eval()
                    self._takes_list = _argument(self._module).type.annotation_str == "List[Tensor]"
                    self._inputs, outputs = _declared(archive.texts, self._module, takes_list=self._takes_list), tuple[TensorInfo, ...]()
                else:
                    self._module, self._inputs, outputs = _load_program(library.module, model, self._device)
        except _FAILURES as error:
            raise ConfigError(
                f"{library.package} {library.version} cannot load {str(model)!r}: {one_line(error)}; export it again for this version"
            ) from error
        load_ns = time.monotonic_ns() - started_ns
        return replace(library, import_ns=library.import_ns + operators_ns).loaded(
            backend=self._device, inputs=self._inputs, outputs=outputs, metadata=archive.texts, load_ns=load_ns, facts=facts
        )

    def check(self, model: Path, options: Options) -> None:
        """Raise if it is no archive of PyTorch's, or this build sees no such device; see `Checks.check`."""
        torch_archive.read(model)
        torch_device(load_library(CANDIDATES, "torch").module, options.backend or "cpu")

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy the inputs to the device; return the module's call on them."""
        if self._inputs:
            check_inputs(inputs, self._inputs)
        if not self._torch.is_inference_mode_enabled():
            # Once, until `close`: inside the call it costs 1.5 us each time.
            self._mode.enter_context(self._torch.inference_mode())
        try:
            tensors = [self._torch.from_numpy(array.copy(order="C")).to(self._device) for array in inputs]
        except TypeError as error:
            raise ConfigError(f"PyTorch rejects the input: {one_line(error)}") from error
        module, device, synchronise = self._module, self._device, self._torch.cuda.synchronize
        arguments = [tensors] if self._takes_list else tensors
        self._last = None

        def call() -> None:
            self._last = module(*arguments)

        def call_and_wait() -> None:
            self._last = module(*arguments)
            synchronise(device)

        return call if device == "cpu" else call_and_wait

    def outputs(self) -> list[Array]:
        """Return copies of the last call's tensors, nested ones in order; bfloat16, which numpy lacks, as float32."""
        if self._last is None:
            raise MeasurementError("PyTorch has no output: run a query first")
        return list(_flat(_detections(self._last) if self._takes_list else self._last, self._torch))

    def close(self) -> None:
        """Let the module go and leave inference mode."""
        self._mode.close()
        self._module = self._last = None
        self._inputs = ()


def torch_device(torch: Any, backend: str) -> str:
    """Return `backend` if it is a device that this build of PyTorch sees: `cpu`, `cuda` or `cuda:N`."""
    kind, _, index = backend.partition(":")
    if backend != "cpu" and (kind != "cuda" or not (index or "0").isdigit()):
        raise ConfigError(f"runtime 'pytorch' has no backend {backend!r}: choose cpu, cuda or cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise UnavailableError(
            f"torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices, {backend!r} is none of them: choose cpu"
        )
    return backend


def set_threads(torch: Any, threads: int) -> None:
    """Let PyTorch compute with this many threads, one operator at a time."""
    torch.set_num_threads(threads)
    # Can be set once in a process, before the first parallel work.
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)


def _set_onednn(torch: Any, setting: str) -> None:
    """Keep oneDNN out where that is asked for; `on` leaves the library as it was built."""
    if setting not in {"on", "off"}:
        raise ConfigError(f"runtime 'pytorch' has no onednn {setting!r}: choose on or off")
    if setting == "off":
        torch.backends.mkldnn.set_flags(_enabled=False)


def _import_torchvision(torch: RuntimeLibrary, model: Path) -> tuple[int, dict[str, str]]:
    """Import torchvision, which registers its operators; return the ns that it took, and its version for the record.

    Raises:
        UnavailableError: it is not installed, or is not built for this PyTorch.
    """
    started_ns = time.monotonic_ns()
    try:
        torchvision = import_module("torchvision")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == "torchvision"
        why = "is not installed" if is_absent else f"does not fit {torch.package} {torch.version} ({one_line(error)})"
        raise UnavailableError(
            f"{str(model)!r} calls operators of torchvision, which {why}: pip install 'edgemeter[torch]', "
            "torch and torchvision from the same index"
        ) from error
    return time.monotonic_ns() - started_ns, {"torchvision": str(torchvision.__version__)}


def _check_pickles(torch: Any, model: Path, archive: TorchArchive) -> None:
    """Refuse a program whose pickled tensors hold anything else: torch.export.load would go on without that restriction."""
    with ZipFile(model) as members:
        for member in archive.pickles:
            content = members.read(member)
            try:
                if content:
                    torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
            except _FAILURES as error:
                raise ConfigError(
                    f"{str(model)!r} holds a pickle of more than tensors ({member}) and is not opened: export it with tensors only"
                ) from error


def _argument(module: Any) -> Any:
    """Return the first argument of a script's `forward`: its name and type."""
    return module.forward.schema.arguments[1]


def _declared(texts: Mapping[str, str], module: Any, *, takes_list: bool) -> tuple[TensorInfo, ...]:
    """Return the input: a picture of a list, or what the archive's config.txt declares by its `shape`; nothing when there is none."""
    shape: tuple[int | None, ...] = (3, None, None)
    try:
        if not takes_list:
            shape = tuple(int(size) for size in json.loads(texts.get("config.txt", "{}"))["shape"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    name = _argument(module).name
    dtypes = [str(weight.dtype).removeprefix("torch.") for weight in module.parameters() if weight.is_floating_point()]
    return (TensorInfo(name, shape, dtypes[0] if dtypes else "float32"),)


def _load_program(torch: Any, model: Path, device: str) -> tuple[Any, tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    program = torch.export.load(str(model))
    nodes = {node.name: node for node in program.graph.nodes}
    inputs = tuple(_info(name, nodes[name]) for name in program.graph_signature.user_inputs)
    outputs = tuple(_info(str(name), nodes.get(name)) for name in program.graph_signature.user_outputs)
    if device != "cpu":
        program = import_module("torch.export.passes").move_to_device_pass(program, device)
    # Guards are Python text from the file, compiled when they are checked; the shapes are checked by `bind`.
    return program.module(check_guards=False), inputs, outputs


def _info(name: str, node: Any) -> TensorInfo:
    """Return one tensor of an exported program; a size that is a symbol is open."""
    value: Any = None if node is None else node.meta.get("val")
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise ValueError(f"{name!r} is not a tensor: export a model that takes and gives tensors only")
    dtype = str(value.dtype).removeprefix("torch.")
    return TensorInfo(name, tuple(size if isinstance(size, int) else None for size in value.shape), dtype)


def _detections(value: Any) -> Any:
    """Return the last list of dictionaries in what a detector returns; what has none as it is."""
    lists = [item for item in value if isinstance(item, list) and item and isinstance(item[0], Mapping)] if isinstance(value, tuple) else []
    return lists[-1] if lists else value


def _flat(value: Any, torch: Any) -> Iterator[Array]:
    """Yield the arrays of nested tuples, lists and dictionaries, in order; what is not a tensor becomes an array of its own."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item, torch)
    elif isinstance(value, torch.Tensor):
        plain = value.dequantize() if value.is_quantized else value
        yield np.array((plain.float() if plain.dtype is torch.bfloat16 else plain).cpu().numpy())
    elif value is not None:
        yield np.asarray(value)
