"""Facts about ONNX Runtime's built-in providers: their threads are those of the record, and what they compute in is in the backend."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes.onnx_built_in import computed_precision, provider_settings


@pytest.mark.parametrize(
    ("name", "of_user", "settings"),
    [
        ("openvino", {}, {"num_of_threads": "3"}),
        ("openvino", {"device_type": "CPU"}, {"num_of_threads": "3", "device_type": "CPU"}),
        ("openvino", {"device_type": "GPU"}, {"device_type": "GPU"}),
        ("xnnpack", {}, {"intra_op_num_threads": "3"}),
        ("cuda", {"device_id": "1"}, {"device_id": "1"}),
        ("cpu", {}, {}),
    ],
)
def test_a_provider_with_threads_of_its_own_gets_those_of_the_record(name, of_user, settings):
    """OpenVINO took 8 whatever was asked for, XNNPACK 1."""
    assert provider_settings(name, 3, of_user) == settings


def test_other_threads_than_those_of_the_record_are_refused():
    """They would run under the name of those."""
    with pytest.raises(ConfigError, match="openvino takes its threads from --threads: leave num_of_threads out"):
        provider_settings("openvino", 1, {"num_of_threads": "2"})


@pytest.mark.parametrize(
    ("name", "settings", "computed"),
    [
        ("cpu", {}, "f32"),
        ("openvino", {}, "f32"),
        ("openvino", {"device_type": "CPU", "precision": "ACCURACY"}, "f32"),
        ("openvino", {"load_config": "x.json"}, "auto"),
        ("openvino", {"device_type": "GPU"}, "f16"),
        ("openvino", {"device_type": "GPU.1", "precision": "FP32"}, "f32"),
        ("openvino", {"device_type": "GPU", "precision": "ACCURACY"}, "auto"),
        ("openvino", {"device_type": "NPU"}, "auto"),
        ("openvino", {"device_type": "HETERO:GPU,CPU"}, "auto"),
        ("tensorrt", {}, "f32"),
        ("tensorrt", {"trt_fp16_enable": "True"}, "f16"),
        ("tensorrt", {"trt_fp16_enable": "1", "trt_int8_enable": "1"}, "int8"),
        ("tensorrt", {"trt_bf16_enable": "1", "trt_fp16_enable": "0"}, "bf16"),
        ("qnn", {}, "auto"),
        ("qnn", {"backend_path": "/opt/libQnnHtp.so"}, "auto"),
        ("qnn", {"backend_path": "libQnnCpu.so"}, "f32"),
        ("acl", {"enable_fast_math": "true"}, "auto"),
    ],
)
def test_what_a_provider_computes_in_follows_from_its_settings(name, settings, computed):
    """By its documentation: a model of fp32 that runs in fp16 is not published as fp32."""
    assert computed_precision(name, settings) == computed
