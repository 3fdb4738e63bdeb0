"""From an fp32 LiteRT file to fp16 and int8 ones, by ai-edge-quantizer."""

import re
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import Array
from edgemeter.models.convert import litert_tail


def fp16(source: Path, target: Path, keep: Sequence[str]) -> None:
    """Write the file with fp16 weights; sums stay in fp32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ai_edge_quantizer import qtyping  # noqa: PLC0415 - extra `convert`

        weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
        settings = qtyping.OpQuantizationConfig(
            weight_tensor_config=weights, compute_precision=qtyping.ComputePrecision.FLOAT, explicit_dequantize=True
        )
        work = _quantiser(source)
        work.update_quantization_recipe(".*", qtyping.TFLOperationName.ALL_SUPPORTED, settings, "float_casting")
        _write(work, target, keep, None)


def int8_dynamic(source: Path, target: Path, keep: Sequence[str]) -> None:
    """Write the file with int8 weights, per channel; activations are quantised at run time (dynamic range)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ai_edge_quantizer import recipe  # noqa: PLC0415 - extra `convert`

        work = _quantiser(source)
        work.load_quantization_recipe(recipe.dynamic_wi8_afp32())
        _write(work, target, keep, None)


def int8(source: Path, target: Path, inputs: Iterable[Array], keep: Sequence[str]) -> list[str]:
    """Write the int8 version: every operation, input and output integer; weights per channel, ranges as `inputs` show them.

    Where the outputs join values of very unlike ranges, boxes in pixels beside scores of 0..1, what follows the last weights stays float.

    Returns:
        What was kept in float for that: how many operations of which kind.
    """
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ai_edge_quantizer import recipe  # noqa: PLC0415 - extra `convert`

        # The quantiser asks for all inputs at once, to count them: they wait on disk, not in memory.
        arrays = [_on_disk(array, Path(folder) / f"{place}.npy") for place, array in enumerate(inputs)]
        tail = litert_tail.joining_unlike(source, arrays)
        work = _quantiser(source)
        work.load_quantization_recipe(recipe.static_wi8_ai8())
        _write(work, target, [*keep, *(f"^{re.escape(scope)}$" for scope in tail.scopes)], arrays, signature=_signature(source))
    return [f"{tail.kinds.count(kind)} {kind}" for kind in dict.fromkeys(tail.kinds)]


def _quantiser(source: Path) -> Any:
    from ai_edge_quantizer import quantizer  # noqa: PLC0415 - extra `convert`

    return quantizer.Quantizer(str(source))


def _write(work: Any, target: Path, keep: Sequence[str], inputs: Sequence[Array] | None, signature: tuple[str, str] = ("", "")) -> None:
    from ai_edge_quantizer import qtyping  # noqa: PLC0415 - extra `convert`

    for pattern in keep:
        try:
            re.compile(pattern)
        except re.error as error:
            message = f"--exclude {pattern!r} is not a regular expression: {error}"
            raise ConfigError(message) from error
        work.update_quantization_recipe(pattern, qtyping.TFLOperationName.ALL_SUPPORTED, algorithm_key="no_quantize")
    ranges = None if inputs is None else work.calibrate({signature[0]: [{signature[1]: array} for array in inputs]}, num_threads=1)
    work.quantize(ranges).export_model(str(target), overwrite=True)
    # The quantiser leaves an executable file behind.
    target.chmod(0o644)


def _on_disk(array: Array, path: Path) -> Array:
    np.save(path, array)
    mapped: Array = np.load(path, mmap_mode="r")
    return mapped


def _signature(model: Path) -> tuple[str, str]:
    """Return the names of a LiteRT file's only signature and of that signature's only input.

    Raises:
        ConfigError: it has none, or several.
    """
    signatures = _interpreter(model).get_signature_list()
    inputs = [(name, tensor) for name, tensors in signatures.items() for tensor in tensors["inputs"]]
    if len(inputs) != 1:
        message = f"{str(model)!r} has {len(signatures)} signatures with {len(inputs)} inputs, calibration takes one of each: export it so"
        raise ConfigError(message)
    return inputs[0]


def _interpreter(model: Path) -> Any:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - extra `convert`

    return Interpreter(str(model))
