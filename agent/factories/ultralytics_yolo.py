"""Ultralytics YOLO: the network of a .pt as PyTorch runs it, without non-maximum suppression, which Edgemeter's decoders apply.

Library: `pip install ultralytics`, your own install: it is licensed under the AGPL, no dependency of Edgemeter's, and imported by this
factory alone.
Options: `file` (yolov8n.pt; a pickle, whose code runs: use files that you trust; it is not fetched), `input` (default: 1x3 of the size that
it was trained with), `fuse` (yes, the default, as `YOLO.predict` does: batch normalisation becomes part of the convolutions; or no),
`dtype` (as of `torch_eager`).
Outputs are those of an exported model. Backend and threads: those of `torch_eager`. Its settings are written to a folder of this run; its
reports and installations are off.
Example: `edgemeter run edgemeter.agent.factories.ultralytics_yolo:make --option file=yolov8n.pt`.
Tested with ultralytics 8.4.190 and torch 2.13.0 on the CPU.
"""

import os
import tempfile
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.factories.arguments import existing, import_framework, mapped, parse_inputs, parse_switch
from edgemeter.agent.factories.torch_module import open_device
from edgemeter.agent.runtimes.python_model import PythonModel

_QUIET = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_VERBOSE": "false"}


def make(
    file: str,
    input: str | None = None,  # noqa: A002
    fuse: str = "yes",
    dtype: str = "float32",
    backend: str | None = None,
    threads: int = 1,
) -> PythonModel:
    """Return the network; raises ConfigError, UnavailableError."""
    path, is_fused = existing("file", file), parse_switch("fuse", fuse)
    if path.suffix != ".pt":
        raise ConfigError(f"file={file!r} is no .pt: exported files are models of their own, `edgemeter run {path.name}`")
    settings = tempfile.TemporaryDirectory(prefix="edgemeter-ultralytics-")
    # Read when it is imported.
    os.environ.update(_QUIET, YOLO_CONFIG_DIR=settings.name)
    device = open_device(backend, dtype, threads)
    ultralytics = import_framework("ultralytics", "pip install ultralytics (licensed under the AGPL)")
    device.mode.callback(settings.cleanup)
    ultralytics.settings.update(sync=False)
    network = mapped(f"loading file={file!r}", lambda: ultralytics.YOLO(str(path)).model, "name a .pt of Ultralytics")
    if is_fused:
        network.fuse(verbose=False)
    network = device.ready(network)
    for part in network.modules():
        # Leaves out what only training reads.
        if hasattr(part, "export"):
            part.export, part.format = True, "torchscript"
    return device.model(
        "eager",
        network,
        call=network,
        inputs=parse_inputs(input or f"images={_size(network)}"),
        packages=("ultralytics", "torch"),
        weights=(path,),
        metadata=_texts(network),
        facts=lambda: {"fused": "yes" if is_fused else "no"},
    )


def _side(network: Any) -> int:
    trained = getattr(network, "args", None) or {}
    side = trained.get("imgsz", 640) if isinstance(trained, dict) else getattr(trained, "imgsz", 640)
    return int(max(side) if isinstance(side, list | tuple) else side)


def _size(network: Any) -> str:
    return f"1x{network.yaml.get('channels', 3)}x{_side(network)}x{_side(network)}"


def _texts(network: Any) -> dict[str, str]:
    """Return the texts that Ultralytics writes into what it exports."""
    head = network.model[-1]
    return {
        "names": repr(dict(network.names)),
        "task": str(network.task),
        "imgsz": repr([_side(network)] * 2),
        "head": type(head).__name__,
        "end2end": str(getattr(network, "end2end", False)),
        "stride": str(int(max(network.stride))),
    }
