"""From fp32 files to int8 files: static quantisation, ranges measured on scenes of the calibration stream."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.models.scene import Stream, draw

CALIBRATION_SCENES = 200


def calibration(seed: int) -> NDArray[np.float32]:
    """Return the scenes that ranges are measured on: float32 [n, H, W, 3], RGB, 0..1."""
    images = [draw(seed, Stream.CALIBRATION, index).image for index in range(CALIBRATION_SCENES)]
    values: NDArray[np.float32] = np.stack(images).astype(np.float32) / np.float32(255)
    return values


def onnx(source: Path, target: Path, images: NDArray[np.float32]) -> None:
    """Write the int8 version of an ONNX file: QDQ, weights per channel, activations and weights signed; input and outputs stay float."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static  # noqa: PLC0415 - extra `convert`

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = Path(folder) / "prepared.onnx"
        _prepare(source, prepared)
        quantize_static(
            str(prepared),
            str(target),
            _reader(images),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )


def litert(source: Path, target: Path, images: NDArray[np.float32]) -> None:
    """Write the int8 version of a LiteRT file: every operation, input and output integer; weights per channel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ai_edge_quantizer import quantizer, recipe  # noqa: PLC0415 - extra `convert`

        work = quantizer.Quantizer(str(source), recipe.static_wi8_ai8())
        signature, name = _signature(source)
        ranges = work.calibrate({signature: [{name: image[None]} for image in images]})
        work.quantize(ranges).export_model(str(target), overwrite=True)
        # The quantiser leaves an executable file behind.
        target.chmod(0o644)


def _prepare(source: Path, target: Path) -> None:
    """Write the file as the quantiser wants it: shapes inferred, operations fused."""
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415 - extra `convert`

    quant_pre_process(str(source), str(target), skip_symbolic_shape=True)


def _reader(images: NDArray[np.float32]) -> Any:
    """Return what ONNX Runtime reads calibration inputs from, one image after the other, channels first."""
    from onnxruntime.quantization import CalibrationDataReader  # noqa: PLC0415 - extra `convert`

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rest = iter(images)

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            image = next(self._rest, None)
            return None if image is None else {"image": np.ascontiguousarray(image.transpose(2, 0, 1)[None])}

    return Reader()


def _signature(model: Path) -> tuple[str, str]:
    """Return the names of a LiteRT file's only signature and of that signature's only input."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - extra `convert`

    ((signature, tensors),) = Interpreter(str(model)).get_signature_list().items()
    (name,) = tensors["inputs"]
    return signature, name
