"""From a PyTorch module to files: TorchScript, exported program, ONNX and LiteRT in fp32, all from the same weights."""

import copy
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

OPSET = 18


def fold(model: nn.Module) -> nn.Module:
    """Return a copy whose normalisations are part of the convolutions before them: the same answers, a third of the operations."""
    folded: nn.Module = copy.deepcopy(model).eval()
    for block in folded.modules():
        if isinstance(block, nn.Sequential) and len(block) > 1 and isinstance(block[1], nn.BatchNorm2d):
            block[0] = nn.utils.fusion.fuse_conv_bn_eval(block[0], block[1])
            block[1] = nn.Identity()
    return contiguous(folded)


def contiguous(model: nn.Module) -> nn.Module:
    """Return the model, its weights laid out in the usual order.

    litert-torch 0.10 tells constants apart by their address after `contiguous()`. Weights in channels_last, as training may leave them,
    are copied by that call, the copies share an address, and the file holds one layer's weights in two places.
    """
    for weight in (*model.parameters(), *model.buffers()):
        weight.data = weight.data.contiguous()
    return model


class _Plain(nn.Module):  # type: ignore[misc]
    """A module that gives one tensor, or a tuple of them, whatever nested lists and dictionaries the one inside gives."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, image: Tensor) -> Any:
        tensors = tuple(leaf for leaf in tree_leaves(self.inner(image)) if isinstance(leaf, Tensor))
        return tensors[0] if len(tensors) == 1 else tensors


def plain(model: nn.Module) -> nn.Module:
    """Return the module for inference, its outputs as plain tensors."""
    return for_inference(_Plain(model))


def for_inference(model: nn.Module) -> nn.Module:
    """Return the module in evaluation mode; that of an exported program refuses eval(), and was made for inference already."""
    for module in model.modules():
        module.training = False
    return model


def to_torchscript(model: nn.Module, example: Tensor, path: Path) -> None:
    """Write a TorchScript file. An older PyTorch reads it too; `config.txt` inside declares the input's shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.freeze(torch.jit.trace(model, example))
        torch.jit.save(script, str(path), _extra_files={"config.txt": json.dumps({"shape": list(example.shape)})})
    _without_source_lines(path)


def _without_source_lines(path: Path) -> None:
    """Write a TorchScript file again without the members that name the source files on the machine that traced it."""
    with ZipFile(path) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist() if not info.filename.endswith(".debug_pkl")]
    with ZipFile(path, "w") as archive:
        for info, content in members:
            archive.writestr(ZipInfo(info.filename), content)


def to_exported(program: Any, path: Path) -> None:
    """Write an exported program (.pt2)."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            # Where each node came from, with paths of the machine that exported it.
            node.meta.pop("stack_trace", None)
    torch.export.save(program, str(path))


def to_onnx(model: Any, example: Tensor, path: Path, outputs: Sequence[str]) -> None:
    """Write an ONNX file of a module or an exported program, input `image`, outputs named as given."""
    import onnx  # noqa: PLC0415 - extra `convert`

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (example,),
            str(path),
            input_names=["image"],
            output_names=list(outputs),
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


def to_litert(model: nn.Module, example: Tensor, path: Path) -> None:
    """Write a LiteRT file; an input [1, C, H, W] becomes [1, H, W, C]."""
    with warnings.catch_warnings():
        # Its dependencies warn of their own future while they are imported.
        warnings.simplefilter("ignore")
        import litert_torch  # noqa: PLC0415 - takes seconds, and only this function needs it

        if example.ndim != 4:
            litert_torch.convert(model, (example,)).export(str(path))
            return
        by_pixel = litert_torch.to_channel_last_io(model, args=[0])
        litert_torch.convert(by_pixel, (example.permute(0, 2, 3, 1).contiguous(),)).export(str(path))
