"""From an fp32 ONNX file to fp16 and one with int8 weights, by ONNX Runtime's own tools; static int8 is in `onnx_int8`."""

import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError

# From this operator set on a scale may be one per channel.
_OPSET = 13


def onnx_fp16(source: Path, target: Path, keep: Sequence[str]) -> list[str]:
    """Write the file with its weights and sums in fp16, and return the nodes that `keep` left as they are."""
    import onnx  # noqa: PLC0415 - extra `convert`

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415 - extra `convert`

        model = onnx.load(str(source))
        kept = kept_nodes(model, keep)
        onnx.save(convert_float_to_float16(model, keep_io_types=True, node_block_list=kept), str(target))
    return kept


def onnx_int8_dynamic(source: Path, target: Path, keep: Sequence[str]) -> list[str]:
    """Write the file with int8 weights; activations are quantised at run time, by the range of each tensor."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - extra `convert`

        prepared = prepare_onnx(source, Path(folder))
        kept = kept_nodes(read_graph(prepared), keep)
        # Convolutions of this kind exist for unsigned weights only.
        quantize_dynamic(str(prepared), str(target), weight_type=QuantType.QUInt8, nodes_to_exclude=kept)
    return kept


def prepare_onnx(source: Path, folder: Path) -> Path:
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


def read_graph(path: Path) -> Any:
    """Return the file's content."""
    import onnx  # noqa: PLC0415 - extra `convert`

    return onnx.load(str(path))


def kept_nodes(model: Any, patterns: Sequence[str]) -> list[str]:
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
