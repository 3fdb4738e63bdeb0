"""From an fp32 LiteRT file to fp16, int8 weights and static int8, by ai-edge-quantizer."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.models.convert.converter_output import without_warnings
from edgemeter.models.convert.formats import ConversionFacts, MakerInputs, unweighted_tail

_WEIGHTED = frozenset(
    {"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"}
)
# At a larger ratio, the smaller values would keep fewer than 64 of the 256 steps.
_UNLIKE_RANGES = 4.0


@without_warnings()
def make_fp16(base: Path, target: Path, _inputs: MakerInputs) -> ConversionFacts:
    """Write the file with fp16 weights; sums stay in fp32."""
    from ai_edge_quantizer import qtyping, quantizer  # noqa: PLC0415 - extra `convert`

    weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
    settings = qtyping.OpQuantizationConfig(
        weight_tensor_config=weights,
        compute_precision=qtyping.ComputePrecision.FLOAT,
        explicit_dequantize=True,
    )
    quantiser = quantizer.Quantizer(str(base))
    quantiser.update_quantization_recipe(
        ".*", qtyping.TFLOperationName.ALL_SUPPORTED, settings, "float_casting"
    )
    _export(quantiser.quantize(), target)
    return {}


@without_warnings()
def make_int8(base: Path, target: Path, inputs: MakerInputs) -> ConversionFacts:
    """Write the int8 version: every operation, input and output is integer.

    Weights are per channel, ranges are from the calibration inputs. If the outputs join values of
    very different ranges (boxes in pixels, scores of 0..1), operations after the last weights stay
    float.
    """
    from ai_edge_quantizer import qtyping, quantizer, recipe  # noqa: PLC0415 - extra `convert`

    signature, input_name = _signature(base)
    quantiser = quantizer.Quantizer(str(base))
    quantiser.load_quantization_recipe(recipe.static_wi8_ai8())
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        # The quantiser asks for all inputs at once, to count them: they wait on disk, not in
        # memory.
        paths: list[Path] = []
        for array in inputs.calibration():
            paths.append(Path(folder) / f"{len(paths)}.npy")
            np.save(paths[-1], array)
        ranges = quantiser.calibrate(
            {signature: [{input_name: np.load(path, mmap_mode="r")} for path in paths]},
            num_threads=1,
        )
    tail = _unlike_tail(base, ranges)
    for scope in tail:
        quantiser.update_quantization_recipe(
            f"^{re.escape(scope)}$",
            qtyping.TFLOperationName.ALL_SUPPORTED,
            algorithm_key="no_quantize",
        )
    _export(quantiser.quantize(ranges), target)
    return {"settings": "weights per channel, ranges min-max", "float_nodes": len(tail)}


def _export(result: Any, target: Path) -> None:
    result.export_model(str(target), overwrite=True)
    # The quantiser leaves an executable file behind.
    target.chmod(0o644)


def _unlike_tail(model: Path, ranges: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return all operations after the last one with weights, if they are to stay float.

    That is so if one of them joins values of very different ranges; else there are none. Each is
    its scope, as ai-edge-quantizer names operations: by their outputs.
    """
    # It needs the extra `convert`.
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # noqa: PLC0415

    interpreter = Interpreter(
        str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    names = {entry["index"]: str(entry["name"]) for entry in interpreter.get_tensor_details()}
    # The library has no public API for its operations.
    operations = interpreter._get_ops_details()  # noqa: SLF001
    flow = [
        (
            operation["op_name"] in _WEIGHTED,
            operation["inputs"].tolist(),
            operation["outputs"].tolist(),
        )
        for operation in operations
    ]
    tail = [operations[index] for index in unweighted_tail(flow)]
    for operation in tail:
        joined = [
            ranges[names[index]]
            for index in operation["inputs"].tolist()
            if names.get(index) in ranges
        ]
        largest = [
            max(float(np.abs(entry["min"]).max()), float(np.abs(entry["max"]).max()))
            for entry in joined
        ]
        if (
            operation["op_name"] == "CONCATENATION"
            and largest
            and max(largest) > _UNLIKE_RANGES * min(filter(None, largest), default=0.0)
        ):
            return [
                "".join(
                    f"{names[index]};" for index in step["outputs"].tolist() if names.get(index)
                )
                for step in tail
            ]
    return []


def _signature(model: Path) -> tuple[str, str]:
    """Return the names of a LiteRT file's only signature and of its only input.

    Raises:
        ConfigError: it has none, or several.
    """
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - extra `convert`

    signatures = Interpreter(str(model)).get_signature_list()
    inputs = [
        (name, tensor) for name, tensors in signatures.items() for tensor in tensors["inputs"]
    ]
    if len(inputs) != 1:
        raise ConfigError(
            f"{str(model)!r} has {len(signatures)} signatures with {len(inputs)} inputs, "
            "calibration takes one of each: export it so"
        )
    return inputs[0]
