"""ONNX Runtime's built-in providers use the record's threads.

The backend names the precision in which they compute.
"""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.onnx_runtime import computed_precision, provider_settings
from tests.fixtures.rows import table_row


def settings_of(name, of_user):
    """Return the settings of a provider with three threads and these settings of the user's."""
    return provider_settings(
        name, Options(threads=3, extra={f"{name}.{key}": value for key, value in of_user.items()})
    )


def test_a_provider_with_threads_of_its_own_gets_those_of_the_record():
    """OpenVINO took 8 threads and XNNPACK 1, whatever was asked for.

    CUDA multiplies in TF32 unless it is told otherwise.
    """
    for name, of_user, settings in [
        ("openvino", {}, {"num_of_threads": "3"}),
        ("openvino", {"device_type": "GPU"}, {"device_type": "GPU"}),
        (
            "openvino",
            {"device_type": "HETERO:GPU,CPU"},
            {"num_of_threads": "3", "device_type": "HETERO:GPU,CPU"},
        ),
        ("xnnpack", {}, {"intra_op_num_threads": "3"}),
        ("DnnlExecutionProvider", {"num_of_threads": "2"}, {"num_of_threads": "2"}),
        ("cuda", {"device_id": "1"}, {"use_tf32": "0", "device_id": "1"}),
        ("cuda", {"use_tf32": "1"}, {"use_tf32": "1"}),
        ("cpu", {}, {}),
    ]:
        assert settings_of(name, of_user) == settings


def test_other_threads_than_those_of_the_record_are_refused():
    """They would run under the recorded number; a load_config can hold them too."""
    for setting, value in (
        ("num_of_threads", "2"),
        ("load_config", '{"CPU": {"INFERENCE_NUM_THREADS": "8"}}'),
    ):
        with table_row(setting, value), pytest.raises(ConfigError, match=f"leave {setting} out"):
            settings_of("openvino", {setting: value})


def test_what_a_provider_computes_in_follows_from_its_settings():
    """By its documentation, a model of fp32 that runs in fp16 is not published as fp32."""
    for name, settings, computed in [
        ("cpu", {}, "f32"),
        ("openvino", {}, "f32"),
        ("openvino", {"device_type": "GPU"}, "auto"),
        ("cuda", {"use_tf32": "0"}, "f32"),
        ("cuda", {"use_tf32": "1"}, "tf32"),
        ("tensorrt", {}, "tf32"),
        ("tensorrt", {"trt_fp16_enable": "True"}, "f16"),
        ("qnn", {}, "auto"),
        ("MIGraphXExecutionProvider", {"migraphx_fp16_enable": "1"}, "auto"),
    ]:
        assert computed_precision(name, settings) == computed, (name, settings)
