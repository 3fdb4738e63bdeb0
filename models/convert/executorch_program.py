"""From a PyTorch program to an ExecuTorch file (.pte), in fp32 and int8, delegated to XNNPACK as far as that goes.

int8 is PyTorch's own way: XNNPACKQuantizer marks what XNNPACK computes in int8, observers measure ranges on the calibration inputs (its own
would cut off the largest values), and the program then holds symmetric weights per channel. Inputs and outputs stay float32.
The quantiser knows layers, not what `run_decompositions` makes of them: those are put together again first.
Importing this module imports PyTorch; the functions import ExecuTorch, which takes seconds.
Tested with executorch 1.5.1, torchao 0.18.0 and torch 2.13.0.
"""

import math
import operator as operator_module
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from edgemeter.agent.runtimes import Array
from edgemeter.models.convert.converter_output import without_warnings
from edgemeter.models.convert.float_nodes import CountedNode, float_facts
from edgemeter.models.convert.formats import ConversionFacts
from edgemeter.models.convert.torch_program import TorchProgram


@without_warnings()
def to_executorch(program: TorchProgram, path: Path) -> ConversionFacts:
    """Write the program as it is; return what was delegated."""
    return _delegation(_write(program.exported, path))


@without_warnings()
def to_executorch_int8(program: TorchProgram, inputs: Iterable[Array], path: Path) -> ConversionFacts:
    """Write the program in int8, ranges measured on `inputs` (float32, as the program takes them); return how and what was delegated."""
    quantised = _quantised(program, inputs)
    settings = "what XNNPACK computes in int8, weights per channel, ranges min-max; input and outputs float32"
    portable = _write(quantised, path)
    # Portable kernels compute in float, between those that convert.
    nodes = [replace(node, is_int8=node.is_int8 and node.operator not in portable) for node in _nodes(quantised)]
    return {"settings": settings, **float_facts(nodes), **_delegation(portable)}


def _nodes(exported: Any) -> Iterator[CountedNode]:
    """Yield the nodes of a quantised program that compute on values: int8 if all that they read, but a bias, was int8 before.

    XNNPACK makes an activation after an int8 node a part of that.
    """
    int8_nodes = set()
    for node in exported.graph.nodes:
        value = node.meta.get("val")
        operator = str(node.target).removeprefix("aten.").partition(".")[0]
        is_value = isinstance(value, torch.Tensor) and value.is_floating_point()
        if node.op != "call_function" or not is_value or "quantize" in str(node.target) or node.target is operator_module.getitem:
            continue
        if operator in {"relu", "hardtanh"} and node.args[0] in int8_nodes:
            continue
        weights = node.args[1] if operator in {"conv2d", "linear", "convolution", "matmul", "bmm"} else None
        read = node.args[:2] if weights is not None else node.all_input_nodes
        is_int8 = bool(read) and all("dequantize" in str(getattr(source, "target", "")) for source in read)
        if is_int8:
            int8_nodes.add(node)
        size = 0 if weights is None else value.numel() * math.prod(weights.meta["val"].shape[1:])
        yield CountedNode(operator, is_int8, size)


def _quantised(program: TorchProgram, inputs: Iterable[Array]) -> Any:
    """Return the program with what XNNPACK computes in int8."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack  # noqa: PLC0415 - extra `executorch`
    from torchao.quantization.pt2e import MinMaxObserver  # noqa: PLC0415 - extra `executorch`
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: PLC0415 - extra `executorch`

    usual = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    activations = replace(usual.input_activation, observer_or_fake_quant_ctr=MinMaxObserver.with_args(eps=2**-12))
    quantiser = xnnpack.XNNPACKQuantizer().set_global(replace(usual, input_activation=activations, output_activation=activations))
    observed = prepare_pt2e(_in_layers(program.exported.module(check_guards=False)), quantiser)
    with torch.no_grad():
        for array in inputs:
            observed(torch.from_numpy(array))
    return torch.export.export(convert_pt2e(observed), (program.example,))


def _in_layers(module: Any) -> Any:
    """Return the module (torch.fx.GraphModule), changed in place: convolutions, matrix products and batch norms as the layers they were."""
    aten = torch.ops.aten
    _weights_as_parameters(module)
    for node in list(module.graph.nodes):
        replacement: tuple[Any, tuple[Any, ...]] | None = None
        if node.target is aten.convolution.default and not node.args[6] and len(node.args[3]) == 2:
            image, weight, bias, stride, padding, dilation, _, _, groups = node.args
            replacement = aten.conv2d.default, (image, weight, bias, stride, padding, dilation, groups)
        elif node.target is aten.addmm.default and (weight := _transposed(node.args[2])) is not None:
            replacement = aten.linear.default, (node.args[1], weight, node.args[0])
        elif node.target is operator_module.getitem and node.args[0].target is aten._native_batch_norm_legit_no_training.default:  # noqa: SLF001 - an operator
            image, *parameters, momentum, epsilon = node.args[0].args
            replacement = aten.batch_norm.default, (image, *parameters, False, momentum, epsilon, False)
        if replacement is not None:
            with module.graph.inserting_before(node):
                layer = module.graph.call_function(*replacement)
            layer.meta = dict(node.meta)
            node.replace_all_uses_with(layer)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _weights_as_parameters(module: Any) -> None:
    """Let every layer have parameters of its own: the quantiser takes neither a TorchScript file's constants nor weights of two layers."""
    for node in [node for node in module.graph.nodes if node.op == "get_attr"]:
        owner_name, _, name = node.target.rpartition(".")
        owner = module.get_submodule(owner_name)
        value = getattr(owner, name)
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        delattr(owner, name)
        owner.register_parameter(name, torch.nn.Parameter(value.detach(), requires_grad=False))
        for number, user in enumerate(list(node.users)[1:], 1):
            copy = f"{node.name}_of_{number}"
            module.register_parameter(copy, torch.nn.Parameter(value.detach().clone(), requires_grad=False))
            with module.graph.inserting_before(node):
                user.replace_input_with(node, module.graph.get_attr(copy))


def _transposed(node: Any) -> Any:
    """Return what a node is the transpose of, None if it is none of a matrix."""
    is_transpose = node.target is torch.ops.aten.t.default or (
        node.target is torch.ops.aten.permute.default and list(node.args[1]) == [1, 0]
    )
    return node.args[0] if is_transpose else None


def _write(exported: Any, path: Path) -> Counter[str]:
    """Write the program; return how often each operator was left to a portable kernel."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner  # noqa: PLC0415 - extra `executorch`
    from executorch.exir import to_edge_transform_and_lower  # noqa: PLC0415 - extra `executorch`

    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    path.write_bytes(lowered.to_executorch().buffer)
    targets = (str(node.target) for node in lowered.exported_program().graph.nodes if node.op == "call_function")
    return Counter(target.partition("aten.")[2].partition(".")[0] for target in targets if "aten." in target)


def _delegation(portable: Mapping[str, int]) -> ConversionFacts:
    text = ", ".join(f"{kind} {count}" for kind, count in sorted(portable.items()))
    return {"left_to_portable": text} if text else {}
