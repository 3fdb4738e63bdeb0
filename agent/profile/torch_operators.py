"""Operators of PyTorch's exported programs (.pt2): cut out of a program, and written from the lists of shapes, in floats.

PyTorch's profiler names calls by their operator only: the nth call of `aten::conv2d` in an inference, with all that it calls, is the nth
such node of the graph. TorchScript has no such graph. Tested with torch 2.13.0.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from edgemeter.agent.base.plugins import ModuleOfExtra
from edgemeter.agent.engine.loading import OPERATOR_MARK
from edgemeter.agent.profile.operator_models import OperatorModel, Shape, operator_file, operator_flops, operator_name
from edgemeter.agent.profile.profiler import ProfileEvent
from edgemeter.agent.runtimes import torch_archive

_torch = ModuleOfExtra("torch", "torch", "PyTorch's operators are cut by torch")
# Ours for what has a formula.
_KINDS = {"conv2d": "Conv", "conv_transpose2d": "ConvTranspose", "linear": "MatMul", "matmul": "MatMul", "mm": "MatMul", "bmm": "MatMul"}


class TorchCutter:
    """Cuts calls out of a program's graph; the file itself, copied to `target`, has them all named.

    Raises:
        ConfigError: it is no archive of PyTorch's.
        UnavailableError: torch is not installed.
    """

    def __init__(self, model: Path, target: Path) -> None:
        torch_archive.read(model)
        program = _torch.export.load(str(model))
        signature, values = program.graph_signature, {**program.constants, **program.state_dict}
        sources = (signature.inputs_to_parameters, signature.inputs_to_buffers, signature.inputs_to_lifted_tensor_constants)
        # What is a placeholder in the graph and a constant of the program, by the name of the placeholder.
        self._fixed = {node: values[name] for source in sources for node, name in source.items()}
        self._nodes = [node for node in program.graph.nodes if node.op == "call_function" and hasattr(node.target, "name")]
        self._numbers: dict[str, list[int]] = defaultdict(list)
        for number in range(len(self._nodes)):
            self._numbers[f"aten::{self._kind(number)}"].append(number)
        target.write_bytes(model.read_bytes())

    def nodes_of(self, events: Sequence[ProfileEvent]) -> Callable[[ProfileEvent], int | None]:
        """Return what finds the node of an event: that of the outermost call around it."""
        node_by_event: dict[Hashable, int | None] = {}
        calls: Counter[str] = Counter()
        end_us, node = -math.inf, None
        for event in sorted(events, key=lambda event: (event.start_us, -event.duration_us)):
            if event.category == "inference":
                calls.clear()
                end_us = -math.inf
                continue
            if event.start_us >= end_us:
                end_us = event.start_us + event.duration_us
                numbers, nth = self._numbers.get(event.name, []), calls[event.name]
                node = numbers[nth] if nth < len(numbers) else None
                calls[event.name] += 1
            node_by_event[_key(event)] = node
        return lambda event: node_by_event[_key(event)]

    def describe(self, node: int) -> str:
        """Return its operator and its name in the graph."""
        return f"{self._kind(node)} {self._nodes[node].name!r}"

    def signature(self, node: int) -> Hashable:
        """Return operator, settings, and shapes and types of inputs."""
        call = self._nodes[node]
        ends = [
            (tuple(tensor.shape), str(tensor.dtype), other.name in self._fixed)
            for other in call.all_input_nodes
            for tensor in _tensors(other)
        ]
        settings = _torch.fx.map_arg((call.args, call.kwargs), call.all_input_nodes.index)
        return str(call.target), str(settings), str(ends)

    def obstacle(self, node: int) -> str | None:
        """Return why it cannot be cut out, None if it can."""
        inputs = self._nodes[node].all_input_nodes
        for other in (*inputs, self._nodes[node]):
            if any(not isinstance(size, int) for tensor in _tensors(other) for size in tensor.shape):
                return f"the shape of {other.name!r} is not known before the model runs"
        moving = [other for other in inputs if other.name not in self._fixed]
        if not moving or any(len(_tensors(other)) != 1 or not _tensors(other)[0].is_floating_point() for other in moving):
            return "it computes on whole numbers, for which noise will not do"
        return None

    def write(self, nodes: Sequence[int], ratio: float, folder: Path) -> OperatorModel:
        """Write the call with its constants alone."""
        fx, node = _torch.fx, self._nodes[nodes[0]]
        graph, root, examples = fx.Graph(), _torch.nn.Module(), []
        new: dict[Any, Any] = {}
        for other in node.all_input_nodes:
            if other.name in self._fixed:
                root.register_buffer(other.name, self._fixed[other.name].detach())
            else:
                new[other] = graph.placeholder(other.name)
                examples.append(_torch.zeros(_tensors(other)[0].shape, dtype=_tensors(other)[0].dtype))
        new |= {other: graph.get_attr(other.name) for other in node.all_input_nodes if other.name in self._fixed}
        call = graph.call_function(node.target, *(fx.map_arg(each, new.__getitem__) for each in (node.args, node.kwargs)))
        graph.output(call)
        inputs, outputs = ([tensor for end in ends for tensor in _tensors(end)] for ends in (node.all_input_nodes, [node]))
        shapes, kind = [tuple(tensor.shape) for tensor in inputs], self._kind(nodes[0])
        name = operator_name(kind, shapes[:2])
        return OperatorModel(
            name=name,
            kind=kind,
            file=_save(fx.GraphModule(root, graph), tuple(examples), name, folder),
            count=len(nodes),
            flops=operator_flops(_KINDS.get(kind, kind), shapes, tuple(outputs[0].shape)),
            bytes=sum(tensor.numel() * tensor.element_size() for tensor in (*inputs, *outputs)),
            profiled_ratio=ratio,
        )

    def _kind(self, node: int) -> str:
        return str(self._nodes[node].target.name()).removeprefix("aten::").partition(".")[0]


def _key(event: ProfileEvent) -> Hashable:
    return event.thread, event.start_us, event.duration_us, event.name


def _tensors(node: Any) -> list[Any]:
    value = node.meta["val"]
    return [each for each in (value if isinstance(value, list | tuple) else [value]) if hasattr(each, "shape")]


open_model = TorchCutter


def write_shape(shape: Shape, folder: Path) -> OperatorModel:
    """Write an operator of a list as a program, with seeded weights."""
    # Each its own tensor: export takes one that is given twice for one input.
    examples = [_torch.zeros(sizes) for sizes in (shape.first, *([shape.second] * 2 if shape.kind == "Attention" else []))]
    weights = _torch.from_numpy(shape.weights())

    class Operator(_torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", weights)

        def forward(self, *inputs: Any) -> Any:
            functional = _torch.nn.functional
            if shape.kind == "Attention":
                return functional.scaled_dot_product_attention(*inputs)
            if shape.kind == "Gemm":
                return inputs[0] @ self.w
            return functional.conv2d(inputs[0], self.w, stride=shape.stride, padding=shape.pad, groups=shape.groups)

    return shape.model(_save(Operator(), tuple(examples), shape.name, folder))


def _save(module: Any, examples: tuple[Any, ...], name: str, folder: Path) -> Path:
    file = operator_file(name, ".pt2", folder)
    _torch.export.save(_torch.export.export(module.eval(), examples), str(file), extra_files={OPERATOR_MARK: name})
    return file
