"""The runtime of a model, by its file's suffix or its address."""

from contextlib import suppress
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.toml import parse_toml

FORMATS = {
    ".tflite": "litert", ".onnx": "onnx", ".ort": "onnx", ".pt": "pytorch", ".pth": "pytorch",
    ".torchscript": "pytorch", ".pt2": "pytorch", ".pte": "executorch", ".xml": "openvino",
    ".param": "ncnn", ".engine": "tensorrt", ".plan": "tensorrt", ".json": "replay",
    ".gguf": "llama", ".server": "server", ".hef": "hailo",
}  # fmt: skip
# The runtime of factories with an address, `FILE.py:make` or `package.module:make`, and of
# functions measured in their own process.
PYTHON = "python"
# The runtime of models, except language models, behind a server.
SERVED = "served"
# Runtimes that only generate text; `replay` replays both kinds.
GENERATORS = frozenset({"llama", "server"})
# The runtimes of each format; suites skip other combinations.
READERS = {suffix: {runtime} for suffix, runtime in FORMATS.items()} | {
    ".tflite": {"litert", "edgetpu"},
    ".onnx": {"onnx", "openvino"},
    ".server": {"server", "served"},
}
OUR_RUNTIMES = {PYTHON}.union(*READERS.values())


def runtime_for(model: Path) -> str:
    """Return the runtime that reads this file.

    Raises:
        ConfigError: no runtime is known for its suffix.
    """
    # The names of the runtimes do not need it.
    from edgemeter.agent.base import python_target  # noqa: PLC0415

    if python_target.parse(str(model)):
        return PYTHON
    if model.suffix == ".py":
        raise ConfigError(
            f"{model.name!r} is Python code: name the factory in it that returns the model, as "
            f"{model.name}:make"
        )
    if model.suffix.lower() == ".server":
        # An unreadable file is reported when it is loaded.
        with suppress(ConfigError):
            return (
                SERVED if "protocol" in parse_toml(model, "server's file") else FORMATS[".server"]
            )
    if model.suffix.lower() == ".json" and not is_model_file(model):
        raise ConfigError(
            f"{model.name!r} is no model: ground truth is given by --annotations (a replay is "
            "called NAME.replay.json)"
        )
    if model.suffix.lower() in FORMATS:
        return FORMATS[model.suffix.lower()]
    if model.is_dir():
        inside = next(filter(is_model_file, sorted(model.glob("*"))), None)
        instead = (
            "photographs and other data are given by --data"
            if inside is None
            else f"give a file in it, such as {inside.name}"
        )
        raise ConfigError(f"{model.name!r} is a folder, not a model: {instead}")
    raise ConfigError(
        f"no runtime is known for {model.name!r}: use one of {', '.join(FORMATS)}, convert it to "
        "one of these, or name the runtime"
    )


def is_model_file(path: Path) -> bool:
    """Return whether a path has a model's suffix; the only JSON models are replays."""
    return path.name.lower().endswith(".replay.json") or (
        path.suffix.lower() in FORMATS and path.suffix.lower() != ".json"
    )


def reads(runtime: str, model: Path) -> bool:
    """Return whether `runtime` reads files with this suffix; True if either is unknown."""
    if runtime not in OUR_RUNTIMES:
        return True
    # The names of the runtimes do not need it.
    from edgemeter.agent.base import python_target  # noqa: PLC0415

    if runtime == PYTHON or python_target.parse(str(model)):
        return runtime == PYTHON and model.suffix.lower() not in FORMATS
    return runtime in READERS.get(model.suffix.lower(), {runtime})
