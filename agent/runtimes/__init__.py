"""Runtimes, which run models: their base class, and the table of names.

A runtime is one file here, one line in `RUNTIMES` and one fixture under `tests/fixtures/runtimes/`.
Packages register runtimes in the entry point group `edgemeter.runtimes`; a runtime in a file is
named `FILE.py:NAME`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.sandbox.user_code import plugin_class

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]
else:
    # A session reads this table, and needs no NumPy (9 MB).
    Array = Any

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
    """The options of a runtime: threads, its backend (provider, delegate), and further settings.

    `sha256` is the hash from the suite, the command or the model's card; outside a sandbox, formats
    with code need one.
    """

    threads: int = 1
    backend: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output as the model declares it.

    An open dimension is None. `scale` and `zero_point` are the tensor's affine quantisation (real =
    scale x (q - zero_point)), if any.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The facts that a runtime learns when it loads a model.

    `metadata` has the file's texts by name (ONNX metadata_props, TorchScript's extra files, TFLite
    metadata and labels). `facts` are further facts for the record (the clock of an Edge TPU, the
    number of operators on it). `import_ns` and `load_ns` are the durations of importing the
    library, and of reading and compiling the model. `precision` is that of its tensors (fp32, fp16,
    int8, or int8-dynamic, in which only weights are integers), None if unknown. `threads_reason` is
    why the number of threads is unknown.

    A model from code has its `name`, and hash and size of all its files. `first_ns` is the duration
    of the first call, which loading makes on inputs of the declared shapes with an open batch of 1.
    `compiles_at_call`: the first call compiles.
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
    """Runs one model in this process, and is used from one thread.

    It is constructed without arguments and without importing its library.

    The calls come in the order load, (bind, call, outputs)*, close; close may be called twice, and
    after a failed load.
    """

    @abstractmethod
    def load(self, model: Path, options: Options) -> Loaded:
        """Import the library, load the model, allocate its tensors.

        Raises:
            UnavailableError: the library is not installed (names the extra), or the backend is not
                on this machine.
            ConfigError: the file is not a model of this runtime, is broken, or needs something that
                this machine lacks.
        """

    @abstractmethod
    def bind(self, inputs: Sequence[Array]) -> Callable[[], object]:
        """Copy `inputs` to where the runtime reads them, and return the bare call.

        Their dtype and shape are those that the model declares. The call is timed: it only runs the
        model, and returns when the results are ready (accelerator synchronised). It may be called
        repeatedly.

        Raises:
            ConfigError: an input has the wrong shape or dtype.
        """

    @abstractmethod
    def outputs(self) -> list[Array]:
        """Return copies of the last call's outputs, in the order and dtypes of the model."""

    @abstractmethod
    def close(self) -> None:
        """Release everything."""

    # Some runtimes have nothing to check.
    def check(self, model: Path, options: Options) -> None:  # noqa: B027
        """Raise the errors of `load` that can be found without loading the model.

        It opens no accelerator, which may be in use. The header of the file, the options, and the
        library's list of backends are checked.
        """

    def with_late_facts(self, loaded: Loaded) -> Loaded:
        """Return `loaded` with facts from the queries.

        It is called between the last timed query and the accuracy pass.
        """
        return loaded


@dataclass(frozen=True, slots=True)
class Answered:
    """A received answer.

    Outside the clock, `end` closes a connection of its own; then `outputs` may be called.

    If it `is_unlike` the answers before, `outputs` must be called, because it may be an error.
    """

    outputs: Callable[[], list[Array]]
    is_unlike: bool = True
    end: Callable[[], None] = lambda: None


class ConcurrentRuntime(Runtime):
    """A runtime that answers several queries at once: a model behind a server.

    Calls of `bind` also return `Answered`.
    """

    @abstractmethod
    def bind_concurrent(
        self, inputs: Sequence[Array], user: int | None = None
    ) -> Callable[[], Answered]:
        """Return the bare call of one query.

        It is called in a thread of its own. The queries of a `user` (0, 1, ...) come one after the
        other, on a connection that is open when this returns and stays open until the runtime
        closes. A call without a user opens a connection of its own, and may be called in several
        threads at once. The same list of inputs comes many times, so its request may be cached.

        Raises:
            ConfigError: see `Runtime.bind`.
            AnswerError: (by the call, and its outputs) the server did not answer.
        """


def names() -> list[str]:
    """Return the names of all known runtimes, ours first."""
    return plugin_names(RUNTIMES, ENTRY_POINTS)


def create(name: str) -> Runtime:
    """Return a runtime that has loaded nothing yet.

    Raises:
        ConfigError: no runtime has that name, or `FILE.py:NAME` is not a runtime.
        UnavailableError: its package or file cannot be imported.
    """
    runtime: Runtime = (
        plugin_class("runtime", name, Runtime)
        or find_plugin("runtime", RUNTIMES, name, ENTRY_POINTS)
    )()
    return runtime


def dequantise(array: Array, info: TensorInfo) -> "NDArray[np.float32]":
    """Return the real values of an output, in float32 and the same shape.

    Integers without a scale are only converted.
    """
    import numpy as np  # noqa: PLC0415 - as above

    if info.scale is None:
        return array.astype(np.float32, copy=False)
    zero = np.float32(info.zero_point or 0)
    return np.asarray((array.astype(np.float32) - zero) * np.float32(info.scale))


def fixed_batch(loaded: Loaded) -> int:
    """Return the fixed batch of the model's one picture input.

    It is 1 if the batch is open or there is no such axis.
    """
    shape = loaded.inputs[0].shape if len(loaded.inputs) == 1 else ()
    return (shape[0] or 1) if len(shape) == 4 else 1


def with_batch_of_1(loaded: Loaded) -> Loaded:
    """Return `loaded` with the outputs of one photograph.

    A larger fixed batch is filled with copies, of which the first counts.
    """
    batch = fixed_batch(loaded)
    outputs = (
        replace(info, shape=(1, *info.shape[1:])) if info.shape[:1] == (batch,) else info
        for info in loaded.outputs
    )
    return replace(loaded, outputs=tuple(outputs))
