"""From an fp32 ONNX file to fp16 and int8 ones, by ONNX Runtime's own tools. Input and outputs stay float32."""

import re
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Array
from edgemeter.models.convert.formats import is_unlike

_LOOKED_AT = 8
# From this operator set on a scale may be one per channel.
_OPSET = 13
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def onnx_fp16(source: Path, target: Path, keep: Sequence[str]) -> list[str]:
    """Write the file with its weights and sums in fp16, and return the nodes that `keep` left as they are."""
    import onnx  # noqa: PLC0415 - extra `convert`

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415 - extra `convert`

        model = onnx.load(str(source))
        kept = _kept(model, keep)
        onnx.save(convert_float_to_float16(model, keep_io_types=True, node_block_list=kept), str(target))
    return kept


def onnx_int8_dynamic(source: Path, target: Path, keep: Sequence[str]) -> list[str]:
    """Write the file with int8 weights; activations are quantised at run time, by the range of each tensor."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - extra `convert`

        prepared = _prepared(source, Path(folder))
        kept = _kept(_graph_of(prepared), keep)
        # Convolutions of this kind exist for unsigned weights only.
        quantize_dynamic(str(prepared), str(target), weight_type=QuantType.QUInt8, nodes_to_exclude=kept)
    return kept


def onnx_int8(source: Path, target: Path, inputs: Iterable[Array], keep: Sequence[str], *, symmetric: bool = False) -> list[str]:
    """Write the file in QDQ form: weights per channel, activations by the ranges that `inputs` show, all signed.

    Where the outputs join values of very unlike ranges, boxes in pixels beside scores of 0..1, what follows the last weights stays float.

    Args:
        source: the fp32 file.
        target: the file to write.
        inputs: arrays as the model takes them, one at a time.
        keep: regular expressions; nodes whose names they match stay in float.
        symmetric: whether zero points are 0 and biases float, which TensorRT asks for.

    Returns:
        The names of the nodes that were kept in float.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static  # noqa: PLC0415 - extra `convert`

        prepared = _prepared(source, Path(folder))
        model = _graph_of(prepared)
        arrays = iter(inputs)
        first = [array for array, _ in zip(arrays, range(_LOOKED_AT), strict=False)]
        tail = _tail(model)
        joins_unlike = set(tail).intersection(_unlike(model, first, Path(folder)))
        kept = [*_kept(model, keep), *(tail if joins_unlike else ())]
        quantize_static(
            str(prepared),
            str(target),
            _reader(model.graph.input[0].name, _chain(first, arrays)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=kept,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False} if symmetric else {},
        )
    return list(dict.fromkeys(kept))


def _chain(first: Sequence[Array], rest: Iterable[Array]) -> Iterable[Array]:
    yield from first
    yield from rest


def _prepared(source: Path, folder: Path) -> Path:
    """Return the file as the quantiser wants it: new enough, shapes inferred, operations fused, every node named."""
    import onnx.version_converter  # noqa: PLC0415 - extra `convert`
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415 - extra `convert`

    target = folder / "prepared.onnx"
    model = onnx.load(str(source))
    if min((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=_OPSET) < _OPSET:
        source = folder / "newer.onnx"
        onnx.save(onnx.version_converter.convert_version(model, _OPSET), str(source))
    quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
    model = onnx.load(str(target))
    names = {node.name for node in model.graph.node}
    for place, node in enumerate(model.graph.node):
        if not node.name:
            node.name = next(name for name in (f"{node.op_type}_{place}", f"unnamed_{node.op_type}_{place}") if name not in names)
    onnx.save(model, str(target))
    return target


def _graph_of(path: Path) -> Any:
    import onnx  # noqa: PLC0415 - extra `convert`

    return onnx.load(str(path))


def _kept(model: Any, patterns: Sequence[str]) -> list[str]:
    """Return the nodes whose names match.

    Raises:
        ConfigError: a pattern is none, or matches nothing.
    """
    kept = []
    for pattern in patterns:
        try:
            found = [node.name for node in model.graph.node if re.search(pattern, node.name)]
        except re.error as error:
            raise ConfigError(f"--exclude {pattern!r} is not a regular expression: {error}") from error
        if not found:
            some = ", ".join(repr(node.name) for node in list(model.graph.node)[-6:])
            raise ConfigError(f"--exclude {pattern!r} matches no node of the ONNX graph, whose last are {some}")
        kept += found
    return kept


def _unlike(model: Any, inputs: Sequence[Array], folder: Path) -> list[str]:
    """Return the names of the Concat nodes that join values of very unlike ranges, as the inputs show them."""
    import onnx  # noqa: PLC0415 - extra `convert`
    import onnxruntime  # noqa: PLC0415 - extra `convert`

    constants = {tensor.name for tensor in model.graph.initializer}
    joints = [node for node in model.graph.node if node.op_type == "Concat"]
    wanted = sorted({name for node in joints for name in node.input if name not in constants})
    if not wanted or not inputs:
        return []
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    there = {output.name for output in opened.graph.output}
    opened.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in wanted if name not in there)
    path = folder / "opened.onnx"
    onnx.save(opened, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    largest: dict[str, float] = defaultdict(float)
    for array in inputs:
        for name, value in zip(wanted, session.run(wanted, {session.get_inputs()[0].name: array}), strict=True):
            if np.asarray(value).dtype.kind == "f" and np.size(value):
                largest[name] = max(largest[name], float(np.abs(value).max()))
    return [node.name for node in joints if is_unlike([largest[name] for name in node.input if largest.get(name)])]


def _tail(model: Any) -> list[str]:
    """Return the nodes after the last that carry weights: they cost next to nothing, and their values are the outputs."""
    awaited: set[str] = set()
    found = []
    # Nodes are in execution order: backwards, every consumer comes before what it consumes.
    for node in reversed(model.graph.node):
        if node.op_type in _WEIGHTED or awaited.intersection(node.output):
            awaited.update(node.input)
        else:
            found.append(node.name)
    return found[::-1]


def _reader(name: str, inputs: Iterable[Array]) -> Any:
    """Return what ONNX Runtime reads calibration inputs from, one after the other."""
    from onnxruntime.quantization import CalibrationDataReader  # noqa: PLC0415 - extra `convert`

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rest = iter(inputs)

        def get_next(self) -> dict[str, Array] | None:
            array = next(self._rest, None)
            return None if array is None else {name: array}

    return Reader()
