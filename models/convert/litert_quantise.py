"""From an fp32 LiteRT file to fp16 and int8 ones, by ai-edge-quantizer."""

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Array
from edgemeter.models.convert.converter_output import without_warnings
from edgemeter.models.convert.formats import is_unlike, unweighted_tail

_LOOKED_AT = 8
_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"})


def _joining_unlike(model: Path, inputs: Sequence[Array]) -> list[str]:
    """Return all operations after the last that carry weights, if one of them joins values of very unlike ranges; else none.

    Each is its scope, as ai-edge-quantizer names operations: by their outputs.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # noqa: PLC0415 - extra `convert`

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(model), experimental_op_resolver_type=plain, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    # The library has no public API for its operations.
    operations = interpreter._get_ops_details()  # noqa: SLF001
    flow = [(operation["op_name"] in _WEIGHTED, operation["inputs"].tolist(), operation["outputs"].tolist()) for operation in operations]
    tail = [operations[index] for index in unweighted_tail(flow)]
    joints = [operation for operation in tail if operation["op_name"] == "CONCATENATION"]
    largest = _largest(interpreter, joints, inputs[:_LOOKED_AT])
    if not any(is_unlike([largest[index] for index in joint["inputs"].tolist() if largest.get(index)]) for joint in joints):
        return []
    names = {entry["index"]: str(entry["name"]) for entry in interpreter.get_tensor_details()}
    return ["".join(f"{names[at]};" for at in operation["outputs"].tolist() if names.get(at)) for operation in tail]


def _largest(interpreter: Any, joints: Sequence[Mapping[str, Any]], inputs: Sequence[Array]) -> Mapping[int, float]:
    """Return the largest magnitude of every joined tensor, over the inputs."""
    largest: dict[int, float] = defaultdict(float)
    (input_info, *_) = interpreter.get_input_details()
    for array in inputs if joints else ():
        interpreter.set_tensor(input_info["index"], array)
        interpreter.invoke()
        for index in {index for joint in joints for index in joint["inputs"].tolist()}:
            value = interpreter.get_tensor(index)
            if value.dtype.kind == "f" and value.size:
                largest[index] = max(largest[index], float(np.abs(value).max()))
    return largest


@without_warnings()
def litert_fp16(source: Path, target: Path, keep: Sequence[str]) -> None:
    """Write the file with fp16 weights; sums stay in fp32."""
    from ai_edge_quantizer import qtyping  # noqa: PLC0415 - extra `convert`

    weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
    settings = qtyping.OpQuantizationConfig(
        weight_tensor_config=weights, compute_precision=qtyping.ComputePrecision.FLOAT, explicit_dequantize=True
    )
    work = _quantiser(source)
    work.update_quantization_recipe(".*", qtyping.TFLOperationName.ALL_SUPPORTED, settings, "float_casting")
    _write(work, target, keep, None)


@without_warnings()
def litert_int8_dynamic(source: Path, target: Path, keep: Sequence[str]) -> None:
    """Write the file with int8 weights, per channel; activations are quantised at run time (dynamic range)."""
    from ai_edge_quantizer import recipe  # noqa: PLC0415 - extra `convert`

    work = _quantiser(source)
    work.load_quantization_recipe(recipe.dynamic_wi8_afp32())
    _write(work, target, keep, None)


@without_warnings()
def litert_int8(source: Path, target: Path, inputs: Iterable[Array], keep: Sequence[str]) -> None:
    """Write the int8 version: every operation, input and output integer; weights per channel, ranges as `inputs` show them.

    Where the outputs join values of very unlike ranges, boxes in pixels beside scores of 0..1, what follows the last weights stays float.
    """
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
        from ai_edge_quantizer import recipe  # noqa: PLC0415 - extra `convert`

        # The quantiser asks for all inputs at once, to count them: they wait on disk, not in memory.
        paths: list[Path] = []
        for array in inputs:
            paths.append(Path(folder) / f"{len(paths)}.npy")
            np.save(paths[-1], array)
        arrays: list[Array] = [np.load(path, mmap_mode="r") for path in paths]
        tail = _joining_unlike(source, arrays)
        work = _quantiser(source)
        work.load_quantization_recipe(recipe.static_wi8_ai8())
        _write(work, target, [*keep, *(f"^{re.escape(scope)}$" for scope in tail)], arrays, signature=_signature(source))


def _quantiser(source: Path) -> Any:
    from ai_edge_quantizer import quantizer  # noqa: PLC0415 - extra `convert`

    return quantizer.Quantizer(str(source))


def _write(work: Any, target: Path, keep: Sequence[str], inputs: Sequence[Array] | None, signature: tuple[str, str] = ("", "")) -> None:
    from ai_edge_quantizer import qtyping  # noqa: PLC0415 - extra `convert`

    for pattern in keep:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"--exclude {pattern!r} is not a regular expression: {error}") from error
        work.update_quantization_recipe(pattern, qtyping.TFLOperationName.ALL_SUPPORTED, algorithm_key="no_quantize")
    ranges = None if inputs is None else work.calibrate({signature[0]: [{signature[1]: array} for array in inputs]}, num_threads=1)
    work.quantize(ranges).export_model(str(target), overwrite=True)
    # The quantiser leaves an executable file behind.
    target.chmod(0o644)


def _signature(model: Path) -> tuple[str, str]:
    """Return the names of a LiteRT file's only signature and of that signature's only input.

    Raises:
        ConfigError: it has none, or several.
    """
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - extra `convert`

    signatures = Interpreter(str(model)).get_signature_list()
    inputs = [(name, tensor) for name, tensors in signatures.items() for tensor in tensors["inputs"]]
    if len(inputs) != 1:
        raise ConfigError(
            f"{str(model)!r} has {len(signatures)} signatures with {len(inputs)} inputs, calibration takes one of each: export it so"
        )
    return inputs[0]
