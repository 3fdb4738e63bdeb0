"""From an fp32 ONNX file to fp16, int8 weights and static int8, by ONNX Runtime's own tools.

Input and output stay float32. Static int8 is QDQ: weights per channel, activations with ranges from
the calibration images. Activations are uint8, as required by ONNX Runtime's kernels for x86: it
turns some int8 ones into uint8 by itself, and operations that read both compute in float (110 of
YOLOX nano's 113 convolutions, by 1.31.1). Symmetric ones are int8, for TensorRT. If the outputs
join several tensors, operations after the last weights stay float: boxes in pixels and scores of
0..1 in one tensor would share one scale, and the scores would be lost.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgemeter.agent.runtimes import Array
from edgemeter.models.convert.converter_output import without_warnings
from edgemeter.models.convert.formats import ConversionFacts, MakerInputs, unweighted_tail

_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# From this operator set on a scale may be one per channel.
_OPSET = 13


@without_warnings()
def make_fp16(base: Path, target: Path, _inputs: MakerInputs) -> ConversionFacts:
    """Write the file with its weights and sums in fp16."""
    import onnx  # noqa: PLC0415 - extra `convert`

    # It needs the extra `convert`.
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415

    onnx.save(convert_float_to_float16(onnx.load(str(base)), keep_io_types=True), str(target))
    return {}


def make_int8(base: Path, target: Path, inputs: MakerInputs) -> ConversionFacts:
    """Write the file in static int8."""
    return _static_int8(base, target, inputs, is_symmetric=False)


def make_int8_symmetric(base: Path, target: Path, inputs: MakerInputs) -> ConversionFacts:
    """Write the file in static int8 with zero points of 0 and float biases, for TensorRT."""
    return _static_int8(base, target, inputs, is_symmetric=True)


@without_warnings()
def _static_int8(
    base: Path, target: Path, inputs: MakerInputs, *, is_symmetric: bool
) -> ConversionFacts:
    # It needs the extra `convert`.
    from onnxruntime.quantization import QuantType, quantize_static  # noqa: PLC0415

    kinds = "all signed, zero points 0, biases float" if is_symmetric else "activations uint8"
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        prepared, model = _prepare(base, Path(folder))
        tail = _joined_tail(model)
        quantize_static(
            str(prepared),
            str(target),
            _CalibrationReader(model.graph.input[0].name, inputs.calibration()),
            per_channel=True,
            activation_type=QuantType.QInt8 if is_symmetric else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=tail,
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "QuantizeBias": False,
            }
            if is_symmetric
            else {},
        )
    return {
        "settings": f"QDQ, weights per channel, {kinds}, ranges min-max; input and outputs float32",
        "float_nodes": len(tail),
    }


def _prepare(source: Path, folder: Path) -> tuple[Path, Any]:
    """Return the file and its graph in the quantiser's form.

    It is new enough, its shapes are inferred, its operations are fused, and every node has a name.
    """
    import onnx.version_converter  # noqa: PLC0415 - extra `convert`

    # It needs the extra `convert`.
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415

    target = folder / "prepared.onnx"
    model = onnx.load(str(source))
    if (
        min(
            (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
            default=_OPSET,
        )
        < _OPSET
    ):
        source = folder / "newer.onnx"
        onnx.save(onnx.version_converter.convert_version(model, _OPSET), str(source))
    quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
    model = onnx.load(str(target))
    names = {node.name for node in model.graph.node}
    for index, node in enumerate(model.graph.node):
        if not node.name:
            node.name = next(
                name
                for name in (f"{node.op_type}_{index}", f"unnamed_{node.op_type}_{index}")
                if name not in names
            )
    onnx.save(model, str(target))
    return target, model


def _joined_tail(model: Any) -> list[str]:
    """Return the nodes after the last weights if one of them joins tensors, else none."""
    nodes = model.graph.node
    tail = [
        nodes[index]
        for index in unweighted_tail(
            [(node.op_type in _WEIGHTED, node.input, node.output) for node in nodes]
        )
    ]
    return [node.name for node in tail] if any(node.op_type == "Concat" for node in tail) else []


class _CalibrationReader:
    """The calibration inputs, one after the other, in ONNX Runtime's interface."""

    def __init__(self, name: str, inputs: Iterable[Array]) -> None:
        self._name, self._inputs = name, iter(inputs)

    def get_next(self) -> dict[str, Array] | None:
        array = next(self._inputs, None)
        return None if array is None else {self._name: array}
