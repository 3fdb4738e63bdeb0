"""TensorFlow: a SavedModel's signature, or a Keras model (.keras, .h5) through `tf.function`.

Library: `pip install tensorflow` (`tensorflow-cpu` without a GPU).
Options: `model` (the SavedModel's folder, or the Keras file, which is read with `safe_mode` on: one that holds code is refused);
`signature` (of a SavedModel, default serving_default).
Backend: `cpu` (the default) or `gpu`. Threads: the case's, in an operator; operators run one at a time. TensorFlow must not have been used
in the process before. Its own messages are off, but for errors.
Facts: `compilations` (how often the function was traced; a SavedModel's was when it was saved), `compiled_ns`.
Example: `edgemeter run edgemeter.agent.factories.tensorflow_saved_model:make --option model=net.keras`.
Tested with tensorflow-cpu 2.21.0 and keras 3.15.1; GPUs are untested.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.factories.arguments import existing, import_framework, installed, mapped, one_of
from edgemeter.agent.factories.compilations import Compilations
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.runtimes.adapter import captured_stderr
from edgemeter.agent.runtimes.python_model import PythonModel

# The builds of TensorFlow, and what reads its Keras files.
_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras")
_KERAS = (".keras", ".h5")
# The files of a SavedModel that hold its graph and its weights.
_SAVED = ("saved_model.pb", "variables/*")


def make(model: str, signature: str = "serving_default", backend: str | None = None, threads: int = 1) -> PythonModel:
    """Return the signature's or the Keras model's call; raises ConfigError, UnavailableError."""
    path = existing("model", model)
    is_saved = (path / "saved_model.pb").is_file()
    if not is_saved and path.suffix not in _KERAS:
        raise ConfigError(f"model={model!r} is neither the folder of a SavedModel nor a .keras or .h5 file: name one")
    # Read once, when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with captured_stderr():
        tf = import_framework("tensorflow", "pip install tensorflow")
    device = _device(tf, backend or "cpu", threads)
    traced = Compilations()
    with tf.device(device):
        load = _saved_model if is_saved else _keras
        call, inputs, outputs = load(tf, path, signature, traced)

    def put(array: Array) -> Any:
        with tf.device(device):
            return tf.constant(array)

    files = sorted(file for pattern in _SAVED for file in path.glob(pattern)) if is_saved else [path]
    return PythonModel(
        call=call,
        inputs=inputs,
        outputs=outputs,
        place=put,
        wait=None if device == "CPU:0" else lambda _: tf.test.experimental.sync_devices(),
        arrays=lambda result: [tensor.numpy() for tensor in tf.nest.flatten(result)],
        backend=f"function,{device.partition(':')[0].lower()}",
        packages=installed(_PACKAGES),
        weights=tuple(files),
        facts=traced.facts,
    )


def _device(tf: Any, backend: str, threads: int) -> str:
    """Return the device's name, after setting the threads: both only before TensorFlow is used."""
    kind = one_of("backend", backend, ("cpu", "gpu")).upper()
    if not tf.config.list_physical_devices(kind):
        raise UnavailableError(f"tensorflow {tf.__version__} sees no {backend}: choose cpu, or install its build for the GPU")

    def limit() -> None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)

    mapped("setting the threads of TensorFlow", limit, "do not use it before the factory is called")
    return f"{kind}:0"


def _saved_model(tf: Any, path: Path, signature: str, _: Compilations) -> Any:
    loaded = mapped(f"loading model={str(path)!r}", lambda: tf.saved_model.load(str(path)), "save it again with this TensorFlow")
    function = loaded.signatures[one_of("signature", signature, loaded.signatures)]
    # A signature lets its variables go with the object that holds it.
    function.owner = loaded
    # Their order changes from one load to the next; results are in that of their names.
    specs, results = (dict(sorted(infos.items())) for infos in (function.structured_input_signature[1], function.structured_outputs))

    def call(*tensors: Any) -> Any:
        return function(**dict(zip(specs, tensors, strict=True)))

    return call, _infos(specs), _infos(results)


def _keras(tf: Any, path: Path, _: str, traced: Compilations) -> Any:
    keras = import_framework("keras", "pip install keras")
    read = lambda: keras.models.load_model(path, compile=False, safe_mode=True)  # noqa: E731
    model = mapped(f"loading model={str(path)!r}", read, "save it again with this Keras, without Lambda layers or classes of your own")
    inputs, outputs = ({tensor.name: tensor for tensor in tensors} for tensors in (model.inputs, model.outputs))
    is_single = len(inputs) == 1

    def predict(*tensors: Any) -> Any:
        return model(tensors[0] if is_single else list(tensors), training=False)

    return tf.function(traced.counted(predict)), _infos(inputs), _infos(outputs)


def _infos(specs: Mapping[str, Any]) -> tuple[TensorInfo, ...]:
    if any(spec.shape.rank is None if hasattr(spec.shape, "rank") else False for spec in specs.values()):
        raise ConfigError("the model declares a tensor without a shape: save it with an input_signature")
    return tuple(TensorInfo(name, tuple(spec.shape), getattr(spec.dtype, "name", spec.dtype)) for name, spec in specs.items())
