"""A PyTorch file as an exported program with fixed shapes, and from it ONNX and LiteRT in fp32.

The file was loaded before by the runtime `pytorch`, which refuses pickles and everything else that
is not data. TorchScript becomes a program by `TS2EPConverter` in a private module of PyTorch; there
is no public way (2.13). Operations that converters cannot write are replaced in the program's
graph, with equal results: LiteRT's converter supports neither numbers computed from tensors nor a
square written as a power. Importing this module imports PyTorch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils._pytree import tree_leaves

from edgemeter.agent.runtimes import pytorch
from edgemeter.models.convert.converter_output import without_warnings
from edgemeter.models.convert.formats import ConversionFacts, MakerInputs

OPSET = 18


class _Plain(nn.Module):  # type: ignore[misc]
    """A module that returns one tensor or a tuple of tensors.

    The inner module may return nested lists and dictionaries.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, image: Tensor) -> Any:
        tensors = tuple(leaf for leaf in tree_leaves(self.inner(image)) if isinstance(leaf, Tensor))
        return tensors[0] if len(tensors) == 1 else tensors


def _for_inference(model: nn.Module) -> nn.Module:
    """Return the module in evaluation mode.

    That of an exported program refuses eval(), and is for inference already.
    """
    for module in model.modules():
        module.training = False
    return model


class _ConstantFolder(torch.fx.Transformer):  # type: ignore[misc]
    """Rebuilds a program with known shapes.

    Everything independent of the input becomes a constant, and a square becomes a product.
    """

    def run_node(self, n: Any) -> Any:
        return (
            n.args[0].meta["tensor_meta"].shape[n.args[1]]
            if "sym_size" in str(n.target)
            else super().run_node(n)
        )

    def get_attr(self, target: Any, _args: Any, _kwargs: Any) -> Any:
        return self.fetch_attr(target).detach()

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not any(isinstance(leaf, torch.fx.Proxy) for leaf in tree_leaves((args, kwargs))):
            return target(*args, **kwargs)
        exponent: Any = args[1] if "pow" in str(target) else None
        is_number = isinstance(exponent, int | float) or (
            isinstance(exponent, Tensor) and exponent.ndim == 0
        )
        if is_number and float(exponent) == 2:
            return torch.ops.aten.mul.Tensor(args[0], args[0])
        return super().call_function(target, args, kwargs)


@without_warnings()
def make_onnx(base: Path, target: Path, inputs: MakerInputs) -> ConversionFacts:
    """Write an ONNX file of a PyTorch program; its input is called `image`."""
    import onnx  # noqa: PLC0415 - extra `convert`

    program, example = _load_program(base, inputs.shape())
    count = len(program.graph_signature.user_outputs)
    torch.onnx.export(
        program,
        (example,),
        str(target),
        input_names=["image"],
        output_names=["output"] if count == 1 else [f"output_{index}" for index in range(count)],
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    written = onnx.load(str(target))
    # The exporter adds the source lines, with their paths, to every node.
    for part in (
        written,
        written.graph,
        *written.graph.node,
        *written.graph.value_info,
        *written.graph.input,
        *written.graph.output,
    ):
        del part.metadata_props[:]
    onnx.save(written, str(target))
    return {}


@without_warnings()
def make_litert(base: Path, target: Path, inputs: MakerInputs) -> ConversionFacts:
    """Write a LiteRT file of a PyTorch program; an input [1, C, H, W] becomes [1, H, W, C]."""
    import litert_torch  # noqa: PLC0415 - takes seconds, and only this function needs it

    program, example = _load_program(base, inputs.shape())
    module = _for_inference(program.module(check_guards=False))
    if example.ndim == 4:
        module = litert_torch.to_channel_last_io(module, args=[0])
        example = example.permute(0, 2, 3, 1).contiguous()
    litert_torch.convert(module, (example,)).export(str(target))
    return {}


@without_warnings()
def _load_program(model: Path, shape: Sequence[int]) -> tuple[Any, Tensor]:
    """Return the program in the file, and an input of this shape for it.

    The program is a torch.export.ExportedProgram whose outputs are plain tensors.
    """
    example = torch.zeros(*shape)
    if pytorch.read_archive(model).kind == "torchscript":
        from torch._export.converter import TS2EPConverter  # noqa: PLC0415 - extra `convert`

        read = TS2EPConverter(
            torch.jit.load(str(model), map_location="cpu").eval(), (example,)
        ).convert()
    else:
        read = torch.export.load(str(model))
    module = read.run_decompositions({}).module(check_guards=False)
    # litert-torch 0.10 identifies constants by their address after `contiguous()`, and copies of
    # weights in channels_last may share one.
    for weight in (*module.parameters(), *module.buffers()):
        weight.data = weight.data.contiguous()
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    # A tensor that the program writes into must not become a constant.
    if not any(
        getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in calls
    ):
        with torch.no_grad():
            ShapeProp(module).propagate(example)
            module = _ConstantFolder(module).transform()
    return torch.export.export(_for_inference(_Plain(module)), (example,)), example
