"""Shared by the factories of PyTorch: the device, its threads, inference mode, and a user's module with its weights."""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.factories.arguments import existing, import_framework, mapped, one_of
from edgemeter.agent.runtimes import Array
from edgemeter.agent.runtimes.adapter import load_library
from edgemeter.agent.runtimes.call_results import PRECISIONS
from edgemeter.agent.runtimes.python_model import PythonModel
from edgemeter.agent.runtimes.pytorch import CANDIDATES, set_threads, torch_device
from edgemeter.agent.sandbox.user_code import import_attribute

# So many names of weights tell what does not fit.
FEW = 3


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """Where and in which precision PyTorch computes. Inference mode is entered once, outside what is timed, until the model closes."""

    torch: Any
    name: str
    dtype: str
    mode: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def put(self, array: Array) -> Any:
        """Return an array as a tensor of the device; floats in the precision of the model."""
        tensor = self.torch.from_numpy(array.copy(order="C")).to(self.name)
        return tensor.to(getattr(self.torch, self.dtype)) if tensor.is_floating_point() else tensor

    def ready(self, module: Any) -> Any:
        """Return the module on the device, in its precision and in evaluation mode."""
        return module.to(self.name, getattr(self.torch, self.dtype)).eval()

    def model(self, kind: str, network: Any, **fields: Any) -> PythonModel:
        """Return the model that computes with `network`, in inference mode from here on; `kind` is the first word of its backend."""
        self.mode.enter_context(self.torch.inference_mode())
        synchronise: Callable[[Any], object] = lambda _: self.torch.cuda.synchronize(self.name)  # noqa: E731
        fields = {"packages": ("torch",), "precision": _precision(self.torch, network, self.dtype), "place": self.put, **fields}
        return PythonModel(
            wait=None if self.name == "cpu" else synchronise,
            backend=f"{kind},{self.name}",
            close=self.mode.close,
            **fields,
        )


def _precision(torch: Any, network: Any, dtype: str) -> str:
    """Return what the modules and parameters of a network show; `unknown` of several, and of weights packed by other libraries."""
    # Modules that torch.ao quantised: their weights are no parameters.
    quantised = [module for module in network.modules() if re.match(r"torch\..*\.quantized\.", type(module).__module__)]
    if packed := [module for module in quantised if not type(module).__name__.endswith("PackedParams")]:
        kinds = {"int8-dynamic" if ".dynamic." in f"{type(module).__module__}." else "int8" for module in packed}
        dtypes = {str(getattr(getattr(module, "_packed_params", module), "dtype", torch.qint8)) for module in packed}
        return kinds.pop() if len(kinds) == 1 and dtypes <= {"torch.qint8", "torch.quint8"} else "unknown"
    tensors = [*network.parameters(), *network.buffers()]
    is_plain = all(type(tensor) in (torch.Tensor, torch.nn.Parameter) or isinstance(tensor, torch.nn.Buffer) for tensor in tensors)
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors}
    # Counters, positions and masks are no weights.
    weights = dtypes - {"int64", "int32", "bool"} or {dtype}
    return PRECISIONS.get(weights.pop(), "unknown") if is_plain and len(weights) == 1 else "unknown"


def open_device(backend: str | None, dtype: str, threads: int) -> TorchDevice:
    """Return the place that options name.

    Raises:
        UnavailableError: PyTorch is not installed, or sees no such device.
        ConfigError: there is no such backend or dtype.
    """
    torch = load_library(CANDIDATES, "torch").module
    one_of("dtype", dtype, PRECISIONS)
    set_threads(torch, threads)
    return TorchDevice(torch, torch_device(torch, backend or "cpu"), dtype)


def make_module(torch: Any, module: str, weights: str | None) -> tuple[Any, dict[str, Any]]:
    """Return the user's module with its weights, and the fields of the model that name them; without weights, the module's name is its.

    Raises:
        ConfigError: it is no module, cannot be made, or the weights do not fit.
    """
    target = import_attribute(module)
    network = target if isinstance(target, torch.nn.Module) else mapped(f"{module}()", target, "name what makes an nn.Module by itself")
    if not isinstance(network, torch.nn.Module):
        raise ConfigError(f"{module}() made {type(network).__name__!r}, not an nn.Module: name a class or function that returns one")
    if weights is None:
        return network, {"metadata": {"name": module.rpartition(":")[2]}}
    path = existing("weights", weights)
    _load_weights(network, path, _read_weights(torch, path))
    return network, {"weights": (path,)}


def _read_weights(torch: Any, path: Path) -> Mapping[str, Any]:
    if path.suffix == ".safetensors":
        read = lambda: import_framework("safetensors.torch", "pip install safetensors").load_file(path)  # noqa: E731
    else:
        read = lambda: torch.load(path, weights_only=True, map_location="cpu")  # noqa: E731
    state = mapped(f"reading weights={str(path)!r}", read, "save them with torch.save(module.state_dict(), FILE)")
    # What trainers save beside the optimizer's state.
    state = state.get("state_dict", state) if isinstance(state, Mapping) else state
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ConfigError(f"weights={str(path)!r} hold no state_dict: save it with torch.save(module.state_dict(), FILE)")
    return state


def _load_weights(module: Any, path: Path, state: Mapping[str, Any]) -> None:
    expected = module.state_dict()
    problems = {
        "lacks": [name for name in expected if name not in state],
        "has besides": [name for name in state if name not in expected],
        "has in another shape": [
            f"{name} {list(state[name].shape)} for {list(expected[name].shape)}"
            for name in expected
            if name in state and state[name].shape != expected[name].shape
        ],
    }
    words = [
        f"{how} {', '.join(names[:FEW])}{f' and {len(names) - FEW} more' if names[FEW:] else ''}"
        for how, names in problems.items()
        if names
    ]
    if words:
        raise ConfigError(f"weights={str(path)!r} do not fit the module: the file {'; '.join(words)}; name the weights of this module")
    module.load_state_dict(state)
