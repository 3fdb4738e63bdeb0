"""PyTorch: TorchScript (.pt, .pth, .torchscript) and exported programs (.pt2), on the CPU or CUDA.

- Library: `pip install 'edgemeter[torch]'` ([without CUDA](../install.md)); on a Jetson, NVIDIA's
  build. Detectors with operators of torchvision also need torchvision.
- Backend: `cpu` (the default), `cuda` or `cuda:N`.
- Setting: `onednn = "off"` uses PyTorch's own kernels.
- Files: both formats [contain code](../install.md#sandbox). Weights alone (`torch.save`) are no
  model: export it.
- Timed: the call in inference mode, on CUDA with the synchronisation after it.

Tested with: torch 2.13.0 and 2.15.0 on the CPU. Pickles of tensors are loaded with `weights_only`.
`onednn` holds for the whole process. TorchScript declares no shapes, so such a model takes any
array. Exceptions: an archive whose config.txt has `shape` (Ultralytics writes one), and one whose
`forward` takes a List[Tensor] (scripted detectors of torchvision and D2Go), which gets a list of
one picture. torchvision's operators are nms, roi_align ...
"""

import contextlib
import json
import os
import pickle
import re
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes import Array, Loaded, Options, Runtime, TensorInfo
from edgemeter.agent.runtimes.adapter import (
    LibraryCandidate,
    check_inputs,
    check_options,
    chosen_setting,
    load_library,
    open_code,
    zipped_texts,
)
from edgemeter.agent.runtimes.call_results import arrays_of

_CANDIDATES = (LibraryCandidate("torch", ("torch",)),)
# Errors of PyTorch for a file that it cannot load.
_FAILURES = (
    RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, AssertionError,
    EOFError, OSError, pickle.UnpicklingError,
)  # fmt: skip
_SAME_INDEX = ", torch and torchvision from the same index"
_EXPORT = "export the model with torch.export.save (.pt2), or with torch.jit.trace(...).save"
_PROGRAM = re.compile(r"models/\w+\.json|serialized_exported_program\.json")
_SCRIPT = re.compile(r"code/.*\.py")
_TORCHVISION = re.compile(rb"\bops\.torchvision\.\w")


@dataclass(frozen=True, slots=True)
class TorchArchive:
    """The content of an archive: its kind and its text files by name.

    It also says whether the archive calls operators of torchvision.
    """

    kind: Literal["torchscript", "exported"]
    texts: Mapping[str, str]
    calls_torchvision: bool


def read_archive(model: Path) -> TorchArchive:
    """Return the kind and texts of a file by its members.

    Raises:
        ConfigError: it is a pickle, or no model of PyTorch.
    """
    start = model_file.head(model)
    try:
        with zipfile.ZipFile(model) as archive:
            # Members are in a folder with the archive's name, except for programs of PyTorch 2.5 to
            # 2.7.
            names = {name.partition("/")[2] or name: name for name in archive.namelist()}
            names = (
                names
                if "version" not in archive.namelist()
                else {name: name for name in archive.namelist()}
            )
            programs = [name for name in names if _PROGRAM.fullmatch(name)]
            scripts = (
                [name for name in names if _SCRIPT.fullmatch(name)]
                if "constants.pkl" in names
                else []
            )
            calls_torchvision = any(
                _TORCHVISION.search(archive.read(names[name])) for name in programs or scripts
            )
    except model_file.BROKEN_ZIP as error:
        kind = "a pickle" if start[:1] == b"\x80" else "not a PyTorch model, or a truncated one"
        raise ConfigError(f"{str(model)!r} is {kind}: {_EXPORT}") from error
    if programs:
        return TorchArchive(
            "exported",
            zipped_texts(model, "extra") | zipped_texts(model, "extra_files"),
            calls_torchvision,
        )
    if not scripts:
        kind = (
            "a pickle of weights or objects"
            if "data.pkl" in names
            else "a zip, but neither TorchScript nor an exported program"
        )
        raise ConfigError(f"{str(model)!r} is {kind}: {_EXPORT}")
    return TorchArchive("torchscript", zipped_texts(model, "extra"), calls_torchvision)


class PyTorch(Runtime):
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
        check_options("pytorch", options, extra=("onednn",))
        onednn = chosen_setting("pytorch", options, "onednn", ("on", "off"))
        archive = read_archive(model)
        open_code(model, options)
        library, facts, outputs = (
            load_library(_CANDIDATES, "torch"),
            dict[str, str](),
            tuple[TensorInfo, ...](),
        )
        self._torch = library.module
        self._device = _device(library.module, options.backend or "cpu")
        library.module.set_num_threads(options.threads)
        # It can be set once in a process, before the first parallel work.
        with contextlib.suppress(RuntimeError):
            library.module.set_num_interop_threads(1)
        if onednn == "off":
            library.module.backends.mkldnn.set_flags(_enabled=False)
        if archive.calls_torchvision:
            # Importing it registers its operators.
            torchvision = load_library(
                [LibraryCandidate("torchvision", ("torchvision",), _SAME_INDEX)], "torch"
            )
            library, facts = (
                replace(library, import_ns=library.import_ns + torchvision.import_ns),
                {"torchvision": torchvision.version},
            )
        started_ns = time.monotonic_ns()
        try:
            with warnings.catch_warnings():
                # TorchScript is deprecated (a FutureWarning in PyTorch 2.15), which concerns the
                # author of the model.
                for category in (DeprecationWarning, FutureWarning):
                    warnings.filterwarnings(
                        "ignore", message=r".*torch\.jit\.|.*TorchScript", category=category
                    )
                if archive.kind == "torchscript":
                    self._module = library.module.jit.load(
                        str(model), map_location=self._device
                    ).eval()
                    argument = self._module.forward.schema.arguments[1]
                    self._takes_list = argument.type.annotation_str == "List[Tensor]"
                    self._inputs = _declared(
                        argument.name, archive.texts, self._module, takes_list=self._takes_list
                    )
                else:
                    self._module, self._inputs, outputs = _load_program(
                        library.module, model, self._device
                    )
        except _FAILURES as error:
            raise ConfigError(
                f"{library.package} {library.version} cannot load {str(model)!r}: "
                f"{one_line(error)}; export it again for this version"
            ) from error
        return library.loaded(
            backend=self._device,
            inputs=self._inputs,
            outputs=outputs,
            metadata=archive.texts,
            load_ns=time.monotonic_ns() - started_ns,
            facts=facts,
        )

    def check(self, model: Path, options: Options) -> None:
        """Raise if the file or the device cannot be used; see `Runtime.check`.

        The file must be an archive of PyTorch, and this build must have the device.
        """
        read_archive(model)
        _device(load_library(_CANDIDATES, "torch").module, options.backend or "cpu")

    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        if self._inputs:
            check_inputs(inputs, self._inputs)
        if not self._torch.is_inference_mode_enabled():
            # Once, until `close`, because it would cost 1.5 us in each call.
            self._mode.enter_context(self._torch.inference_mode())
        try:
            tensors = [
                self._torch.from_numpy(array.copy(order="C")).to(self._device) for array in inputs
            ]
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
        """Return copies of the last call's tensors, nested ones in order.

        Values of bfloat16, which numpy lacks, are returned as float32.
        """
        if self._last is None:
            raise MeasurementError("PyTorch has no output: run a query first")
        return arrays_of(_detections(self._last) if self._takes_list else self._last)

    def close(self) -> None:
        self._mode.close()
        self._module = self._last = None
        self._inputs = ()


def _device(torch: Any, backend: str) -> str:
    """Return `backend` if this build of PyTorch has that device: `cpu`, `cuda` or `cuda:N`."""
    kind, _, index = backend.partition(":")
    if backend != "cpu" and (kind != "cuda" or not (index or "0").isdigit()):
        raise ConfigError(
            f"runtime 'pytorch' has no backend {backend!r}: choose cpu, cuda or cuda:N"
        )
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise UnavailableError(
            f"torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices, "
            f"{backend!r} is none of them: choose cpu"
        )
    return backend


def _declared(
    name: str, texts: Mapping[str, str], module: Any, *, takes_list: bool
) -> tuple[TensorInfo, ...]:
    """Return the input: a picture of a list, or the `shape` in the archive's config.txt.

    It is empty without either.
    """
    shape: tuple[int | None, ...] = (3, None, None)
    try:
        if not takes_list:
            shape = tuple(int(size) for size in json.loads(texts.get("config.txt", "{}"))["shape"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    dtypes = [
        str(weight.dtype).removeprefix("torch.")
        for weight in module.parameters()
        if weight.is_floating_point()
    ]
    return (TensorInfo(name, shape, dtypes[0] if dtypes else "float32"),)


def _load_program(
    torch: Any, model: Path, device: str
) -> tuple[Any, tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    # Unset, `torch.export.load` unpickles some members without restriction.
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    program = torch.export.load(str(model))
    nodes = {node.name: node for node in program.graph.nodes}
    inputs = tuple(_info(name, nodes[name]) for name in program.graph_signature.user_inputs)
    outputs = tuple(
        _info(str(name), nodes.get(name)) for name in program.graph_signature.user_outputs
    )
    if device != "cpu":
        program = import_module("torch.export.passes").move_to_device_pass(program, device)
    # Guards are Python text from the file, compiled when they are checked; the shapes are checked
    # by `bind`.
    return program.module(check_guards=False), inputs, outputs


def _info(name: str, node: Any) -> TensorInfo:
    """Return one tensor of an exported program; a size that is a symbol is open."""
    value: Any = None if node is None else node.meta.get("val")
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise ValueError(
            f"{name!r} is not a tensor: export a model that takes and gives tensors only"
        )
    dtype = str(value.dtype).removeprefix("torch.")
    return TensorInfo(
        name, tuple(size if isinstance(size, int) else None for size in value.shape), dtype
    )


def _detections(value: Any) -> Any:
    """Return the last list of dictionaries in a detector's result.

    If there is none, the result itself is returned.
    """
    lists = (
        [item for item in value if isinstance(item, list) and item and isinstance(item[0], Mapping)]
        if isinstance(value, tuple)
        else []
    )
    return lists[-1] if lists else value
