"""Hugging Face transformers (PyTorch): a model by its Auto class, or a whole pipeline on pictures; from a local folder only.

Library: `pip install transformers`, with PyTorch; pipelines also Pillow.
Options: `model` (the folder that `save_pretrained` or a download made; nothing is fetched), `dtype` (as of `torch_eager`), and either

- `auto` (default AutoModel; AutoModelForImageClassification ...) with `input` (as of `torch_eager`). Left out, the configuration gives it:
  pictures `pixel_values`, or `input_ids` and `attention_mask` of `tokens` (128). Noise draws ids of the vocabulary, and masks are 1; or
- `task=image-classification`: its pipeline, preparation and softmax timed too, on `input` (default 1x480x640x3, RGB bytes). Its output is
  the score of each class. Other pipelines take no arrays: measure their model.

`trust_remote_code=yes` runs code of the folder, otherwise none.
Backend and threads: those of `torch_eager`. The names of classes, mean and deviation of pictures come from the folder.
Example: `edgemeter run edgemeter.agent.factories.hugging_face:make --option model=vit --option auto=AutoModelForImageClassification`.
Tested with transformers 5.24.0 and torch 2.13.0 on the CPU.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.factories.arguments import existing, import_framework, mapped, one_of, parse_inputs, parse_switch
from edgemeter.agent.factories.torch_module import TorchDevice, open_device
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.runtimes.python_model import PythonModel

# What determines its numbers, weights first: configuration, preparation and code too.
_FILES = ("*.safetensors", "pytorch_model*.bin", "*.json", "*.py")
# The pipelines whose answers are arrays of one shape, and the class of their model.
_PIPELINES = {"image-classification": "AutoModelForImageClassification"}


def make(  # noqa: PLR0913 - an option each
    *,
    model: str,
    auto: str = "AutoModel",
    task: str | None = None,
    input: str | None = None,  # noqa: A002
    tokens: str = "128",
    dtype: str = "float32",
    trust_remote_code: str = "no",
    backend: str | None = None,
    threads: int = 1,
) -> PythonModel:
    """Return the model, or the pipeline of a task; raises ConfigError, UnavailableError."""
    folder = existing("model", model)
    files = [file for pattern in _FILES for file in sorted(folder.glob(pattern))]
    if folder / "config.json" not in files:
        raise ConfigError(f"model={model!r} holds no config.json: name a folder that save_pretrained or a download made")
    # Read when it is imported.
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
    device = open_device(backend, dtype, threads)
    transformers = import_framework("transformers", "pip install transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    settings = {
        "local_files_only": True,
        "trust_remote_code": parse_switch("trust_remote_code", trust_remote_code),
        "dtype": getattr(device.torch, dtype),
    }
    if task is not None:
        auto = _PIPELINES[one_of("task", task, _PIPELINES)]
    loader: Any = getattr(transformers, auto, None) if auto.startswith("Auto") else None
    if not hasattr(loader, "from_pretrained"):
        raise ConfigError(f"auto={auto!r} is no class of transformers: name one such as AutoModelForImageClassification")
    load = lambda: loader.from_pretrained(folder, **settings)  # noqa: E731
    network = device.ready(mapped(f"{auto} of model={model!r}", load, "name the class that the folder is of, and check the folder"))
    fields = {"packages": ("transformers", "torch"), "weights": tuple(files), "metadata": _texts(folder)}
    if task is None:
        return _of_network(network, device, _inputs(network, tokens) if input is None else parse_inputs(input), fields)
    prepare = lambda: transformers.AutoImageProcessor.from_pretrained(folder, local_files_only=True)  # noqa: E731
    processor = mapped(f"the image processor of model={model!r}", prepare, "the folder must hold a preprocessor_config.json")
    pipeline = transformers.pipeline(task, model=network, image_processor=processor, device=device.name)
    return _of_pipeline(pipeline, device, parse_inputs(input or "1x480x640x3"), fields)


def _of_network(network: Any, device: TorchDevice, inputs: Sequence[TensorInfo], fields: dict[str, Any]) -> PythonModel:
    names = tuple(info.name for info in inputs)
    words = getattr(network.config, "vocab_size", None)
    limits = {
        "token_type_ids": getattr(network.config, "type_vocab_size", 1),
        "position_ids": getattr(network.config, "max_position_embeddings", 1),
    }
    inputs = [
        replace(info, noise_range=info.noise_range or (0, (limits.get(info.name) or words) - 1))
        if words and np.dtype(info.dtype).kind in "iu"
        else info
        for info in inputs
    ]

    def call(*tensors: Any) -> Any:
        return network(**dict(zip(names, tensors, strict=True)))

    return device.model("eager", network, call=call, inputs=tuple(inputs), **fields)


def _inputs(network: Any, tokens: str) -> tuple[TensorInfo, ...]:
    """Return the inputs that the configuration gives."""
    config, name = network.config, network.main_input_name
    if name == "input_ids" and tokens.isdecimal() and int(tokens):
        return parse_inputs(f"input_ids=?x{tokens}:int64,attention_mask=?x{tokens}:int64")
    size = getattr(config, "image_size", None)
    if name == "pixel_values" and size is not None:
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return (TensorInfo(name, (None, getattr(config, "num_channels", 3), height, width), "float32"),)
    raise ConfigError(f"the configuration of {type(network).__name__} gives no size of {name}: give it, as input={name}=1x3x224x224")


def _of_pipeline(pipeline: Any, device: TorchDevice, inputs: Sequence[TensorInfo], fields: dict[str, Any]) -> PythonModel:
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].shape[0] != 1:
        raise ConfigError("the pipeline takes one picture: give its size as input=1x480x640x3")
    image = import_framework("PIL.Image", "pip install pillow")
    numbers: dict[str, int] = {str(label): int(number) for number, label in pipeline.model.config.id2label.items()}

    def scores(result: list[dict[str, Any]]) -> list[Array]:
        by_number = np.zeros((1, len(numbers)), np.float32)
        for entry in result:
            by_number[0, numbers[entry["label"]]] = entry["score"]
        return [by_number]

    return device.model(
        "eager,pipeline",
        pipeline.model,
        call=partial(pipeline, top_k=len(numbers)),
        place=lambda array: image.fromarray(array[0]),
        arrays=scores,
        inputs=(replace(inputs[0], dtype="uint8"),),
        **fields,
    )


def _texts(folder: Path) -> dict[str, str]:
    """Return what the folder states of classes and of how pictures are prepared, under the names that exported models have."""
    config, prepared = (_document(folder / name) for name in ("config.json", "preprocessor_config.json"))
    texts = {"names": repr({int(number): label for number, label in config.get("id2label", {}).items()})} if "id2label" in config else {}
    if any(name.endswith("ForImageClassification") for name in config.get("architectures") or ()):
        texts["task"] = "classify"
    if prepared.get("do_normalize") and prepared.get("do_rescale", True):
        for name, key in (("input_mean", "image_mean"), ("input_sd", "image_std")):
            texts[name] = ", ".join(f"{value * 255:.6g}" for value in prepared.get(key) or ())
    return texts


def _document(path: Path) -> dict[str, Any]:
    read = lambda: json.loads(path.read_text()) if path.exists() else {}  # noqa: E731
    document: dict[str, Any] = mapped(f"reading {str(path)!r}", read, "copy the folder again")
    return document
