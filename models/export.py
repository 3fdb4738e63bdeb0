"""From the trained detector to files: TorchScript, ONNX and LiteRT in fp32, all from the same folded weights."""

import copy
import json
import warnings
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import torch
from torch import Tensor, nn

from edgemeter.models.detector import Detector
from edgemeter.models.scene import SIZE_PX

OPSET = 18


def fold(model: Detector) -> Detector:
    """Return a copy whose normalisations are part of the convolutions before them: the same answers, a third of the operations."""
    folded: Detector = copy.deepcopy(model).eval()
    for block in folded.modules():
        if isinstance(block, nn.Sequential) and len(block) > 1 and isinstance(block[1], nn.BatchNorm2d):
            block[0] = nn.utils.fusion.fuse_conv_bn_eval(block[0], block[1])
            block[1] = nn.Identity()
    for parameter in folded.parameters():
        # litert-torch 0.10 tells constants apart by their address after `contiguous()`. Weights in channels_last, as training leaves them,
        # are copied by that call, the copies share an address, and the file holds one layer's weights in two places.
        parameter.data = parameter.data.contiguous()
    return folded


def to_torchscript(model: Detector, path: Path) -> None:
    """Write a TorchScript file, input float32 [1, 3, H, W].

    TorchScript rather than an exported program: an older PyTorch reads it too. `config.txt` inside declares the input's shape.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.freeze(torch.jit.trace(model, _example()))
        torch.jit.save(script, str(path), _extra_files={"config.txt": json.dumps({"shape": list(_example().shape)})})
    _without_source_lines(path)


def _without_source_lines(path: Path) -> None:
    """Write a TorchScript file again without the members that name the source files on the machine that traced it."""
    with ZipFile(path) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist() if not info.filename.endswith(".debug_pkl")]
    with ZipFile(path, "w") as archive:
        for info, content in members:
            archive.writestr(ZipInfo(info.filename), content)


def to_onnx(model: Detector, path: Path) -> None:
    """Write an ONNX file, input `image` float32 [1, 3, H, W], outputs `boxes` and `scores`."""
    import onnx  # noqa: PLC0415 - extra `convert`

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        torch.onnx.export(
            model,
            (_example(),),
            str(path),
            input_names=["image"],
            output_names=["boxes", "scores"],
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    written = onnx.load(str(path))
    # The exporter notes beside every node the source lines, with their paths, that led to it.
    for part in (written, written.graph, *written.graph.node, *written.graph.value_info, *written.graph.input, *written.graph.output):
        del part.metadata_props[:]
    onnx.save(written, str(path))


def to_litert(model: Detector, path: Path) -> None:
    """Write a LiteRT file, input float32 [1, H, W, 3]."""
    with warnings.catch_warnings():
        # Its dependencies warn of their own future while they are imported.
        warnings.simplefilter("ignore")
        import litert_torch  # noqa: PLC0415 - takes seconds, and only this function needs it

        by_pixel = litert_torch.to_channel_last_io(model, args=[0]).eval()
        litert_torch.convert(by_pixel, (_example().permute(0, 2, 3, 1).contiguous(),)).export(str(path))


def _example() -> Tensor:
    """Return an input of the right shape; its values leave no trace in the files."""
    return torch.zeros(1, 3, SIZE_PX, SIZE_PX)
