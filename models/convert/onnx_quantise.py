"""From an fp32 ONNX file to fp16, int8 weights and static int8, by ONNX Runtime's own tools.

Static int8 has weights per channel, activations by ranges measured on images; input and outputs stay float32. Activations are uint8, as
ONNX Runtime's kernels for x86 take them: it turns some int8 ones into uint8 by itself, and what then reads both computes in float (110 of
YOLOX nano's 113 convolutions, by 1.31.1). Symmetric ones are int8, for TensorRT.
Ranges are those of the values (min-max), or cut off what is rare: at a percentile, or where the distribution loses least (entropy, after
NVIDIA's calibration). A sensitivity pass finds what int8 harms most: it leaves one stretch of the network after the other in float and
measures by how much the outputs come closer to those of the source.
"""

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Array
from edgemeter.models.convert.converter_output import without_warnings
from edgemeter.models.convert.formats import is_unlike, unweighted_tail

RangeMethod = Literal["min-max", "percentile", "entropy"]
PERCENTILE = 99.99
# Histograms need every value of every tensor, which takes seconds an image.
HISTOGRAM_IMAGES = 32
_ENTROPY_BINS = 512
_LOOKED_AT = 8
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# Stretches that the sensitivity pass tells apart, and the inputs that it runs each with.
STRETCHES = 8
_TRIED_ON = 4
# From this operator set on a scale may be one per channel.
_OPSET = 13


@without_warnings()
def onnx_fp16(source: Path, target: Path, keep: Sequence[str]) -> None:
    """Write the file with its weights and sums in fp16, but for the nodes whose names `keep` matches."""
    import onnx  # noqa: PLC0415 - extra `convert`
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415 - extra `convert`

    model = onnx.load(str(source))
    onnx.save(convert_float_to_float16(model, keep_io_types=True, node_block_list=_kept_nodes(model, keep)), str(target))


@without_warnings()
def onnx_int8_dynamic(source: Path, target: Path, keep: Sequence[str]) -> None:
    """Write the file with int8 weights; activations are quantised at run time, by the range of each tensor."""
    with tempfile.TemporaryDirectory() as folder:
        from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - extra `convert`

        prepared, model = _prepare(source, Path(folder))
        # Convolutions of this kind exist for unsigned weights only.
        quantize_dynamic(str(prepared), str(target), weight_type=QuantType.QUInt8, nodes_to_exclude=_kept_nodes(model, keep))


def _prepare(source: Path, folder: Path) -> tuple[Path, Any]:
    """Return the file, and its graph, as the quantiser wants it: new enough, shapes inferred, operations fused, every node named."""
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
    for index, node in enumerate(model.graph.node):
        if not node.name:
            node.name = next(name for name in (f"{node.op_type}_{index}", f"unnamed_{node.op_type}_{index}") if name not in names)
    onnx.save(model, str(target))
    return target, model


def _kept_nodes(model: Any, patterns: Sequence[str]) -> list[str]:
    """Return the nodes whose names match; raises ConfigError if a pattern is none, or matches nothing."""
    excluded = []
    for pattern in patterns:
        try:
            matching = [node.name for node in model.graph.node if re.search(pattern, node.name)]
        except re.error as error:
            raise ConfigError(f"--exclude {pattern!r} is not a regular expression: {error}") from error
        if not matching:
            last_names = ", ".join(repr(node.name) for node in list(model.graph.node)[-6:])
            raise ConfigError(f"--exclude {pattern!r} matches no node of the ONNX graph, whose last are {last_names}")
        excluded += matching
    return excluded


@dataclass(frozen=True, slots=True)
class Int8Recipe:
    """How activations get their ranges, and the nodes that are left in float because a sensitivity pass blames them."""

    ranges: RangeMethod = "min-max"
    blamed: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        """The ranges as the card names them."""
        cut = {"min-max": "", "percentile": f" {PERCENTILE}", "entropy": ""}[self.ranges]
        return f"{self.ranges}{cut}{f', {len(self.blamed)} blamed nodes in float' if self.blamed else ''}"


class OnnxInt8:
    """Writes one fp32 file as int8, by one recipe after the other; ranges are measured once.

    Where the outputs join values of very unlike ranges, boxes in pixels beside scores of 0..1, what follows the last weights stays float.
    """

    def __init__(self, source: Path, folder: Path, inputs: Callable[[], Iterable[Array]], keep: Sequence[str], *, symmetric: bool) -> None:
        """Prepare the file.

        Args:
            source: the fp32 file.
            folder: an empty folder for what is made on the way.
            inputs: returns the arrays to measure on, as the model takes them, anew with each call.
            keep: regular expressions; nodes whose names they match stay in float.
            symmetric: whether zero points are 0 and biases float, which TensorRT asks for.
        """
        self._folder, self._inputs, self._symmetric = folder, inputs, symmetric
        self._prepared, self._model = _prepare(source, folder)
        nodes = self._model.graph.node
        tail = [nodes[index].name for index in unweighted_tail([(node.op_type in _WEIGHTED, node.input, node.output) for node in nodes])]
        joins_unlike = set(tail).intersection(_unlike(self._model, list(islice(inputs(), _LOOKED_AT)), folder))
        self._kept = [*_kept_nodes(self._model, keep), *(tail if joins_unlike else ())]
        self._measured: dict[RangeMethod, Any] = {}

    @without_warnings()
    def write(self, target: Path, recipe: Int8Recipe) -> list[str]:
        """Write the file and return the names of the nodes that were kept in float."""
        from onnxruntime.quantization import QuantType  # noqa: PLC0415 - extra `convert`
        from onnxruntime.quantization.qdq_quantizer import QDQQuantizer  # noqa: PLC0415 - extra `convert`
        from onnxruntime.quantization.quant_utils import load_model_with_shape_infer  # noqa: PLC0415 - extra `convert`

        if recipe.ranges not in self._measured:
            self._measured[recipe.ranges] = self._measure(recipe.ranges)
        excluded = list(dict.fromkeys([*self._kept, *recipe.blamed]))
        extra = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False} if self._symmetric else {}
        quantiser = QDQQuantizer(
            load_model_with_shape_infer(self._prepared),
            True,  # per channel
            False,  # in 8 bits, not 7
            QuantType.QInt8,  # weights
            QuantType.QInt8 if self._symmetric else QuantType.QUInt8,
            self._measured[recipe.ranges],
            [],
            excluded,
            _operators(),
            extra,
        )
        quantiser.quantize_model()
        quantiser.model.save_model_to_file(str(target))
        return excluded

    def blamed(self, ranges: RangeMethod) -> list[tuple[str, ...]]:
        """Return the stretches of the network, as the names of their nodes, that int8 harms, the most harmful first."""
        images = list(islice(self._inputs(), _TRIED_ON))
        expected = _outputs(self._prepared, images)
        target = self._folder / "tried.onnx"

        def loss(stretch: Sequence[str]) -> float:
            self.write(target, Int8Recipe(ranges, tuple(stretch)))
            return output_loss(expected, _outputs(target, images))

        total_loss = loss(())
        gains = {stretch: total_loss - loss(stretch) for stretch in _stretches(self._model, self._kept)}
        return sorted((stretch for stretch, gain in gains.items() if gain > 0), key=lambda stretch: -gains[stretch])

    @without_warnings()
    def _measure(self, method: RangeMethod) -> Any:
        """Return the ranges of all tensors, as ONNX Runtime's quantiser takes them."""
        from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator  # noqa: PLC0415 - extra `convert`

        methods = {"min-max": CalibrationMethod.MinMax, "percentile": CalibrationMethod.Percentile, "entropy": CalibrationMethod.Entropy}
        # With ONNX Runtime's own 128 bins the entropy's search has nothing to cut off.
        extra = {"percentile": {"percentile": PERCENTILE}, "entropy": {"num_bins": _ENTROPY_BINS}}.get(method, {})
        calibrator = create_calibrator(
            str(self._prepared),
            _operators(),
            augmented_model_path=str(self._folder / "augmented.onnx"),
            calibrate_method=methods[method],
            extra_options=extra,
        )
        name = self._model.graph.input[0].name
        # One image at a time: a histogram's calibrator keeps all values of all images that it is given together.
        parts = [self._inputs()] if method == "min-max" else ([array] for array in islice(self._inputs(), HISTOGRAM_IMAGES))
        for part in parts:
            calibrator.collect_data(_reader(name, part))
        return calibrator.compute_data()


def output_loss(expected: Sequence[Sequence[Array]], actual: Sequence[Sequence[Array]]) -> float:
    """Return how much of the outputs' values is lost, 0..1: the energy of the differences by that of the values, a mean over channels.

    Each channel counts by itself, so that boxes in pixels do not hide scores of 0..1 beside them.

    Args:
        expected: for each input, the outputs of the source.
        actual: the same of the quantised file.
    """
    shares = [
        share
        for expected_outputs, actual_outputs in zip(expected, actual, strict=True)
        for reference, other in zip(expected_outputs, actual_outputs, strict=True)
        for share in _lost_shares(_by_channel(reference), _by_channel(other))
    ]
    return float(np.mean(shares)) if shares else 0.0


def _lost_shares(reference: NDArray[np.float64], other: NDArray[np.float64]) -> list[float]:
    if reference.shape != other.shape:
        return [1.0]
    noise, signal = ((reference - other) ** 2).sum(axis=1), (reference**2).sum(axis=1)
    shares = np.where(signal > 0, noise / np.where(signal > 0, signal, 1), noise > 0)
    return [float(share) for share in np.clip(np.nan_to_num(shares, nan=1.0), 0, 1)]


def _by_channel(array: Array) -> NDArray[np.float64]:
    """Return the values with the shortest axis beside the batch first: [channels, values]; of a single row [1, values]."""
    values = (array[0] if array.ndim > 1 and len(array) == 1 else array).astype(np.float64)
    if values.ndim < 2:
        return values.reshape(1, -1)
    axis = int(np.argmin(values.shape))
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def _outputs(model: Path, images: Sequence[Array]) -> list[list[Array]]:
    import onnxruntime  # noqa: PLC0415 - extra `convert`

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return [session.run(None, {name: image}) for image in images]


def _stretches(model: Any, excluded: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the nodes that may be quantised in stretches with about as many weighted nodes each, in execution order."""
    nodes = [node for node in model.graph.node if node.name not in set(excluded)]
    weighted = [index for index, node in enumerate(nodes) if node.op_type in _WEIGHTED]
    starts = [int(part[0]) for part in np.array_split(weighted, min(STRETCHES, len(weighted))) if len(part)] if weighted else []
    ends = [*starts[1:], len(nodes)]
    starts = [0, *starts[1:]]
    return [tuple(node.name for node in nodes[start:end]) for start, end in zip(starts, ends, strict=False)]


def _operators() -> list[str]:
    """Return the kinds of operators that ONNX Runtime quantises."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry  # noqa: PLC0415 - extra `convert`

    return sorted({*QLinearOpsRegistry, *QDQRegistry})


def _unlike(model: Any, inputs: Sequence[Array], folder: Path) -> list[str]:
    """Return the names of the Concat nodes that join values of very unlike ranges, as the inputs show them."""
    import onnx  # noqa: PLC0415 - extra `convert`
    import onnxruntime  # noqa: PLC0415 - extra `convert`

    constants = {tensor.name for tensor in model.graph.initializer}
    joints = [node for node in model.graph.node if node.op_type == "Concat"]
    joined = sorted({name for node in joints for name in node.input if name not in constants})
    if not joined or not inputs:
        return []
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    declared = {output.name for output in opened.graph.output}
    opened.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in joined if name not in declared)
    path = folder / "opened.onnx"
    onnx.save(opened, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    largest: dict[str, float] = defaultdict(float)
    for array in inputs:
        for name, value in zip(joined, session.run(joined, {session.get_inputs()[0].name: array}), strict=True):
            if np.asarray(value).dtype.kind == "f" and np.size(value):
                largest[name] = max(largest[name], float(np.abs(value).max()))
    return [node.name for node in joints if is_unlike([largest[name] for name in node.input if largest.get(name)])]


def _reader(name: str, inputs: Iterable[Array]) -> Any:
    """Return what ONNX Runtime reads calibration inputs from, one after the other."""
    from onnxruntime.quantization import CalibrationDataReader  # noqa: PLC0415 - extra `convert`

    class CalibrationInputs(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rest = iter(inputs)

        def get_next(self) -> dict[str, Array] | None:
            array = next(self._rest, None)
            return None if array is None else {name: array}

    return CalibrationInputs()
