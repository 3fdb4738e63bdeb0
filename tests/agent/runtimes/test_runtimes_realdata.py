"""Models that others made: each loads and runs, or ends in the right line."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Options, create
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.realdata

U8, F32 = "uint8", "float32"
BOXES = [(1, 10, 4), (1, 10), (1, 10), (1,)]
BOXES_25 = [(1, 25, 4), (1, 25), (1, 25), (1,)]
RUNS = [
    ("litert", "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite", (U8, (1, 300, 300, 3), 0.0078125, 128), BOXES),
    ("litert", "efficientdet_lite0_int8_metadata.tflite", (U8, (1, 320, 320, 3), 0.0078125, 127), BOXES_25),
    ("litert", "mobilenet_v1_0.25_128_quant.tflite", (U8, (1, 128, 128, 3), 0.0078125, 128), [(1, 1001)]),
    ("litert", "mobilenet_v2_1.0_224_quant.tflite", (U8, (1, 224, 224, 3), 0.0078125, 128), [(1, 1001)]),
    ("litert", "yolov8n_full_integer_quant.tflite", ("int8", (1, 640, 640, 3), pytest.approx(1 / 255), -128), [(1, 84, 8400)]),
    ("onnx", "yolov8n.onnx", (F32, (1, 3, 640, 640), None, None), [(1, 84, 8400)]),
    ("onnx", "yolox_nano.onnx", (F32, (1, 3, 416, 416), None, None), [(1, 3549, 85)]),
]


def test_models_from_outside_load_and_run(opened, realdata):
    """Inputs as declared by their makers, outputs of the shapes and dtypes that load reported."""
    for name, file, declared, shapes in RUNS:
        runtime, loaded = opened(name, realdata / "models" / file)
        (info,) = loaded.inputs
        with table_row(file):
            assert (info.dtype, info.shape, info.scale, info.zero_point) == declared
            runtime.bind([np.zeros(info.shape, info.dtype)])()
            arrays = runtime.outputs()
            assert [array.shape for array in arrays] == shapes
            assert [array.dtype.name for array in arrays] == [output.dtype for output in loaded.outputs]


def test_a_real_model_cut_off_anywhere_does_not_end_the_process(realdata, tmp_path):
    """Cut in the weights or the tables it is refused; cut in the labels behind the model it is whole."""
    content = (realdata / "models" / RUNS[2][1]).read_bytes()
    runtime = create("litert")
    path = tmp_path / "cut.tflite"
    for length in [*range(len(content) // 20, len(content) * 95 // 100, len(content) // 20), 8, 100, 4096]:
        path.write_bytes(content[:length])
        with pytest.raises(ConfigError, match="truncated or garbled"):
            runtime.load(path, Options())
