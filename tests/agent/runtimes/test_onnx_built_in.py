"""Facts about ONNX Runtime's built-in providers: their threads are those of the record, and what they compute in is in the backend."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes.onnx_built_in import computed_precision, provider_settings, threads_reason
from tests.fixtures.rows import table_row


def test_a_provider_with_threads_of_its_own_gets_those_of_the_record():
    """OpenVINO took 8 whatever was asked for, XNNPACK 1."""
    for name, of_user, settings in [
        ("openvino", {}, {"num_of_threads": "3"}),
        ("openvino", {"device_type": "GPU"}, {"device_type": "GPU"}),
        ("openvino", {"device_type": "HETERO:GPU,CPU"}, {"num_of_threads": "3", "device_type": "HETERO:GPU,CPU"}),
        ("xnnpack", {}, {"intra_op_num_threads": "3"}),
        ("DnnlExecutionProvider", {"num_of_threads": "2"}, {"num_of_threads": "2"}),
        ("cpu", {}, {}),
    ]:
        assert provider_settings(name, 3, of_user) == settings


def test_other_threads_than_those_of_the_record_are_refused():
    """They would run under the name of those: OpenVINO takes its load_config's before the others. A path is no load_config."""
    for setting, value, words in [
        ("num_of_threads", "2", "leave num_of_threads out"),
        ("load_config", '{"CPU": {"NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "8"}}', "leave INFERENCE_NUM_THREADS out"),
        ("load_config", "/opt/config.json", "as JSON"),
    ]:
        with table_row(setting, value), pytest.raises(ConfigError, match=words):
            provider_settings("openvino", 1, {setting: value})


def test_where_edgemeter_gives_no_threads_the_record_does_not_name_their_number():
    """OpenVINO's AUTO may take the CPU, whose threads it then chooses: `--threads 1` would be published for all cores."""
    for name, settings, is_known in [
        ("cpu", {}, True),
        ("cuda", {}, True),
        ("xnnpack", {}, True),
        ("openvino", {"device_type": "AUTO:GPU,CPU"}, True),
        ("openvino", {"device_type": "AUTO"}, False),
        ("DnnlExecutionProvider", {}, False),
    ]:
        assert (threads_reason(name, provider_settings(name, 1, settings)) is None) == is_known


def test_cuda_computes_in_f32_unless_the_record_states_otherwise():
    """Left to itself it multiplies in TF32, where the GPU can: its mantissa has 10 bits."""
    assert provider_settings("cuda", 1, {"device_id": "1"}) == {"use_tf32": "0", "device_id": "1"}
    assert provider_settings("cuda", 1, {"use_tf32": "1"}) == {"use_tf32": "1"}


def test_what_a_provider_computes_in_follows_from_its_settings():
    """By its documentation: a model of fp32 that runs in fp16 is not published as fp32. NVIDIA's libraries heed the environment first."""
    for name, settings, computed in [
        ("cpu", {}, "f32"),
        ("openvino", {}, "f32"),
        ("openvino", {"load_config": "x.json"}, "auto"),
        ("openvino", {"device_type": "GPU"}, "f16"),
        ("cuda", {"use_tf32": "0"}, "f32"),
        ("cuda", {"use_tf32": "1"}, "tf32"),
        ("tensorrt", {}, "tf32"),
        ("tensorrt", {"trt_fp16_enable": "True"}, "f16"),
        ("qnn", {"backend_path": "libQnnCpu.so"}, "f32"),
        ("MIGraphXExecutionProvider", {"migraphx_fp16_enable": "1"}, "auto"),
    ]:
        assert computed_precision(name, settings, {}) == computed, (name, settings)
    for name, settings in (("cuda", {"use_tf32": "1"}), ("tensorrt", {})):
        computed = [computed_precision(name, settings, {"NVIDIA_TF32_OVERRIDE": switch}) for switch in ("0", "1")]
        assert computed == ["f32", "tf32"]
