"""Runtimes: what runs a model. Their base class, and the table of names.

A runtime is one file here, one line in `RUNTIMES` and one fixture under `tests/fixtures/runtimes/`.
Others register theirs through the entry point group `edgemeter.runtimes`, or are named as `FILE.py:NAME`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.sandbox.user_code import plugin_class

Array = NDArray[Any]

RUNTIMES: Mapping[str, str] = {
    "litert": "edgemeter.agent.runtimes.litert:LiteRt",
    "edgetpu": "edgemeter.agent.runtimes.edgetpu:EdgeTpu",
    "onnx": "edgemeter.agent.runtimes.onnx_runtime:OnnxRuntime",
    "openvino": "edgemeter.agent.runtimes.open_vino:OpenVino",
    "ncnn": "edgemeter.agent.runtimes.tencent_ncnn:Ncnn",
    "executorch": "edgemeter.agent.runtimes.execu_torch:ExecuTorch",
    "pytorch": "edgemeter.agent.runtimes.pytorch:PyTorch",
    "tensorrt": "edgemeter.agent.runtimes.nvidia_tensorrt:TensorRt",
    "hailo": "edgemeter.agent.runtimes.hailo:Hailo",
    "python": "edgemeter.agent.runtimes.python_factory:PythonFactory",
    "replay": "edgemeter.agent.runtimes.replay:ReplayRuntime",
    "served": "edgemeter.agent.runtimes.served:ServedModel",
}
ENTRY_POINTS = "edgemeter.runtimes"


@dataclass(frozen=True, slots=True)
class Options:
    """How a runtime is to run: threads, its own backend choice (provider, delegate), and its own further settings.

    `sha256` is the hash that the suite, the command or the model's card names; a format that holds code is not opened without one.
    """

    threads: int = 1
    backend: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output as the model declares it.

    A dimension that the model leaves open is None. `scale` and `zero_point` are the tensor's affine quantisation
    (real = scale x (q - zero_point)), None where it has none.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The facts that a runtime learns when it loads a model.

    `metadata` holds the file's own texts (ONNX metadata_props, TorchScript's extra files, TFLite metadata and labels),
    by name. `facts` are what else a record should hold of how it ran (the clock of an Edge TPU, how much of the model is on it).
    `import_ns` and `load_ns` are monotonic durations: importing the library, and reading and compiling the model.
    `precision` is what its tensors show (fp32, fp16, int8, int8-dynamic: only the weights are integers), None if unknown.

    Of a model that code makes: its name, hash and size of all its files, which are known when it is loaded; `first_ns`, what the first
    call took, made when loading on inputs of the declared shapes, an open batch being 1; whether it `compiles_at_call`; why the number of
    threads is unknown.
    """

    package: str
    version: str
    backend: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    metadata: Mapping[str, str]
    import_ns: int
    load_ns: int
    facts: Mapping[str, str] = field(default_factory=dict)
    precision: str | None = None
    name: str | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    first_ns: int | None = None
    compiles_at_call: bool = False
    threads_reason: str | None = None


class Runtime(ABC):
    """Runs one model in this process; used from one thread; constructed without arguments and without importing its library.

    The calls come in the order load, (bind, call, outputs)*, close; close may come twice, and after a failed load. Four have to be written.
    """

    @abstractmethod
    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library, load the model, allocate its tensors.

        Raises:
            UnavailableError: the library is not installed (names the extra), or the backend is not on this machine.
            ConfigError: the file is not a model of this runtime, is broken, or needs what this machine lacks.
        """

    @abstractmethod
    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy `inputs` (dtype and shape as the model declares) to where the runtime reads them; return the bare call.

        The call is what gets timed: it does nothing but run the model and returns when the results are there (accelerator
        synchronised). It may be called again and again.

        Raises:
            ConfigError: an input has the wrong shape or dtype.
        """

    @abstractmethod
    def outputs(self) -> list[Array]:
        """Return copies of the last call's outputs, in the model's order, dtype as the model gives them."""

    @abstractmethod
    def close(self) -> None:
        """Release everything."""

    def check(self, model: Path, options: Options) -> None:  # noqa: B027 - some have nothing to check
        """Raise as `load` what shows without loading the model or opening an accelerator, which another run may be using.

        These are the head of the file, the options, and the library's own listing of backends.
        """

    def with_late_facts(self, loaded: Loaded) -> Loaded:
        """Return `loaded` with the facts that queries showed; called between the last timed query and the accuracy."""
        return loaded


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that has come; outside the clock `end` closes a connection that was its alone, then `outputs` may be asked for.

    They must be where it `is_unlike` those before it: it may be no answer.
    """

    outputs: Callable[[], list[Array]]
    is_unlike: bool = True
    end: Callable[[], None] = lambda: None


class ConcurrentRuntime(Runtime):
    """A runtime that answers several queries at once: a model behind a server. A call of `bind` too returns and raises as one here."""

    @abstractmethod
    def bind_concurrent(self, inputs: Sequence[Array], user: int | None = None) -> Callable[[], Answered]:
        """Return the bare call of one query.

        It is called in a thread of its own. The queries of a `user` (0, 1, ...) come one after the other on a connection that is open when
        this returns, and stays so until the runtime closes. A call without one opens a connection of its own: it is made again and again,
        in several threads at once. The same list of inputs comes many times, so that its request may be made once.

        Raises:
            ConfigError: see `Runtime.bind`.
            AnswerError: (the call, and its outputs) the server did not answer it.
        """


def names() -> list[str]:
    """Return the names of all known runtimes, ours first."""
    return plugin_names(RUNTIMES, ENTRY_POINTS)


def create(name: str) -> Runtime:
    """Return a runtime that has loaded nothing yet.

    Raises:
        ConfigError: no runtime has that name, or `FILE.py:NAME` is none.
        UnavailableError: it is another package's or in a file, and cannot be imported.
    """
    runtime: Runtime = (plugin_class("runtime", name, Runtime) or find_plugin("runtime", RUNTIMES, name, ENTRY_POINTS))()
    return runtime


def dequantise(array: Array, info: TensorInfo) -> NDArray[np.float32]:
    """Return the real values of an output: float32, same shape; integers without a scale are only converted."""
    if info.scale is None:
        return array.astype(np.float32, copy=False)
    zero = np.float32(info.zero_point or 0)
    real: NDArray[np.float32] = (array.astype(np.float32) - zero) * np.float32(info.scale)
    return real


def fixed_batch(loaded: Loaded) -> int:
    """Return the batch that the model's one picture input is fixed to: 1 where it is open or has no such axis."""
    shape = loaded.inputs[0].shape if len(loaded.inputs) == 1 else ()
    return (shape[0] or 1) if len(shape) == 4 else 1


def with_batch_of_1(loaded: Loaded) -> Loaded:
    """Return what was loaded with the outputs of one photograph: a fixed batch above 1 is filled with copies of it, the first counts."""
    batch = fixed_batch(loaded)
    if batch == 1:
        return loaded
    outputs = (replace(info, shape=(1, *info.shape[1:])) if info.shape[:1] == (batch,) else info for info in loaded.outputs)
    return replace(loaded, outputs=tuple(outputs))
