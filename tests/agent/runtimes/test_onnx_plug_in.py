"""Facts about ONNX Runtime's plug-in providers, on real ones: what each takes is counted, and nothing runs under another's name."""

import gc
import json
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.runtimes import Options, onnx_plug_in
from edgemeter.agent.runtimes.onnx_runtime import OnnxRuntime

RUNTIME = OnnxRuntime
SHIPPED = Path(__file__).resolve().parents[3] / "models" / "shipped"
GGML, OPENVINO = pytest.mark.needs(module="onnxruntime_ggml"), pytest.mark.needs(module="onnxruntime_ep_openvino")
ON_INTEL = pytest.mark.skipif(
    "GenuineIntel" not in Path("/proc/cpuinfo").read_text(), reason="OpenVINO's provider finds processors of Intel alone"
)


@pytest.fixture(scope="module", autouse=True)
def unregistered():
    """Let the libraries go: ONNX Runtime lists their providers as its own from their registration on."""
    yield
    # Sessions that the trace of an error holds crash the process if they go after their library.
    gc.collect()
    for library, providers in onnx_plug_in._registered.items():
        for package in onnx_plug_in.PACKAGES.values():
            if package.provider in providers and Path(library).is_file():
                onnxruntime.unregister_execution_provider_library(package.provider)
    onnx_plug_in._registered.clear()


@GGML
def test_a_provider_that_takes_all_is_named_with_both_versions(runtime, models, x, capfd):
    """By the name of its package, without a path; it writes nothing beside the results."""
    loaded = runtime.load(models / "onnx.onnx", Options(backend="ggml-ep"))
    assert loaded.backend == "ggml-ep"
    assert loaded.version == f"{version('onnxruntime')}+{version('onnxruntime-ggml')}"
    assert loaded.facts["operators_on_ggml-ep"] == "2"
    assert "left_to_cpu" not in loaded.facts
    runtime.bind([x])()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
    assert capfd.readouterr().out == ""


@GGML
def test_a_provider_that_takes_a_part_states_which_operators_are_elsewhere(opened, models):
    """The model has two operators that ggml lacks; outputs are those of the CPU."""
    plugged, loaded = opened("onnx", models / "onnx_uint8.onnx", backend="ggml-ep", extra={"ggml-ep.partial": "1"})
    assert (loaded.facts["operators_on_ggml-ep"], loaded.facts["operators_on_cpu"]) == ("2", "2")
    assert loaded.facts["left_to_cpu"] == "DequantizeLinear 1, QuantizeLinear 1"
    plain, _ = opened("onnx", models / "onnx_uint8.onnx")
    values = [np.array([[0, 1, 2, 3]], np.uint8)]
    for runtime in (plugged, plain):
        runtime.bind(values)()
    np.testing.assert_array_equal(plugged.outputs()[0], plain.outputs()[0])


@GGML
def test_a_provider_that_takes_nothing_is_an_error(runtime, models):
    """Left to itself ggml takes a model whole or not at all, and the CPU would run it under its name."""
    with pytest.raises(UnavailableError, match=r"ggml takes no operator of .*onnx_uint8.*: choose cpu"):
        runtime.load(models / "onnx_uint8.onnx", Options(backend="ggml-ep"))
    with pytest.raises(ConfigError, match="fallback to CPU EP has been explicitly disabled"):
        runtime.load(
            models / "onnx_uint8.onnx",
            Options(backend="ggml-ep", extra={"ggml-ep.partial": "1", "session.disable_cpu_ep_fallback": "1"}),
        )


@OPENVINO
@ON_INTEL
@pytest.mark.parametrize("name", ["edgemeter-shapes_fp32.onnx", "edgemeter-shapes_int8.onnx"])
def test_a_detector_on_openvino_gives_what_the_cpu_gives(opened, name):
    """In f32, and in as many threads as asked for; the fused operators are counted as the model's own."""
    plugged, loaded = opened("onnx", SHIPPED / name, backend="openvino-ep", extra={"graph_optimisation": "none"})
    onnx = pytest.importorskip("onnx")
    count, of_file = int(loaded.facts["operators_on_openvino-ep"]), len(onnx.load(SHIPPED / name).graph.node)
    # ONNX Runtime gives each consumer of a quantised tensor a DequantizeLinear of its own before it shares out a model.
    assert count == of_file if "fp32" in name else of_file <= count < 1.1 * of_file
    assert loaded.facts["provider_devices"].startswith("cpu ")
    plain, info = opened("onnx", SHIPPED / name)
    values = np.random.default_rng(0).random(info.inputs[0].shape).astype(info.inputs[0].dtype)
    for runtime in (plugged, plain):
        runtime.bind([values])()
    for output, expected in zip(plugged.outputs(), plain.outputs(), strict=True):
        if "fp32" in name:
            np.testing.assert_allclose(output, expected, atol=1e-4 * np.abs(expected).max())
        else:
            assert np.corrcoef(output.ravel(), expected.ravel())[0, 1] > 0.98


@OPENVINO
@ON_INTEL
def test_a_kind_of_device_that_the_provider_lacks_is_refused(runtime, models):
    """It would run on the CPU instead."""
    with pytest.raises(UnavailableError, match=r"openvino-ep finds cpu here, no npu: choose --backend openvino-ep:cpu"):
        runtime.load(models / "onnx.onnx", Options(backend="openvino-ep:npu"))
    with pytest.raises(ConfigError, match=r"has no device 'tpu'"):
        runtime.load(models / "onnx.onnx", Options(backend="openvino-ep:tpu"))


def device(kind, **metadata):
    """Return a device as ONNX Runtime describes it."""
    return SimpleNamespace(ep_metadata=metadata, device=SimpleNamespace(type=SimpleNamespace(name=kind)))


def plug_in(name, kind=""):
    """Return a choice of this package, installed or not."""
    package = onnx_plug_in.PACKAGES.get(name)
    provider = package.provider if package else name
    return onnx_plug_in.PlugInChoice(f"{name}:{kind}" if kind else name, name, provider, kind, "", package)


@pytest.mark.parametrize(
    ("name", "kind", "metadata", "of_user", "backend"),
    [
        ("openvino-ep", "CPU", {"ov_device": "CPU"}, {}, "openvino-ep:cpu"),
        ("openvino-ep", "GPU", {"ov_device": "GPU.1"}, {}, "openvino-ep:gpu"),
        ("openvino-ep", "GPU", {}, {"GPU": {"INFERENCE_PRECISION_HINT": "f16"}}, "openvino-ep:gpu,f16"),
        ("openvino-ep", "NPU", {"ov_device": "NPU"}, {}, "openvino-ep:npu,auto"),
        ("openvino-ep", "NPU", {"ov_device": "NPU"}, {"NPU": {"NPU_TURBO": "YES"}}, "openvino-ep:npu,auto"),
        ("qnn-ep", "NPU", {}, {}, "qnn-ep:npu,auto"),
        ("webgpu-ep", "GPU", {}, {}, "webgpu-ep:gpu"),
        ("nobodys", "GPU", {}, {}, "nobodys:gpu,auto"),
        ("nobodys", "CPU", {}, {}, "nobodys:cpu,auto"),
    ],
)
def test_a_precision_other_than_f32_is_in_the_backend(name, kind, metadata, of_user, backend):
    """OpenVINO computes in fp16 on a GPU and on an NPU, if it is left to itself: that is not published as fp32."""
    choice, devices = plug_in(name, kind.lower()), [device(kind, **metadata)]
    settings = choice.settings(4, devices, {"load_config": json.dumps(of_user)} if of_user else {})
    assert choice.recorded_backend(devices, settings) == backend


def test_a_load_config_of_the_user_leaves_the_rest_as_it_is():
    """Threads and f32 are not lost with it."""
    choice, devices = plug_in("openvino-ep"), [device("CPU", ov_device="CPU")]
    of_user = {"CPU": {"INFERENCE_PRECISION_HINT": "bf16", "NUM_STREAMS": "1"}, "GPU": {"CACHE_DIR": "/x"}}
    merged = json.loads(choice.settings(4, devices, {"load_config": json.dumps(of_user)})["load_config"])
    assert merged == {**of_user, "CPU": {"INFERENCE_NUM_THREADS": "4", **of_user["CPU"]}}
    for garbled in ("nobody.json", "[]", '{"CPU": 1}'):
        with pytest.raises(ConfigError, match="give the properties of each device as JSON"):
            choice.settings(4, devices, {"load_config": garbled})


@pytest.mark.parametrize(
    ("name", "of_user"), [("openvino-ep", {"load_config": '{"CPU": {"INFERENCE_NUM_THREADS": "2"}}'}), ("ggml-ep", {"threads": "2"})]
)
def test_threads_are_those_that_the_record_names(name, of_user):
    """Other ones would run under the name of those."""
    with pytest.raises(ConfigError, match="takes its threads from --threads: leave "):
        plug_in(name).settings(1, [device("CPU", ov_device="CPU")], of_user)


def test_a_plug_in_that_nobody_gives_threads_may_be_set_and_the_record_does_not_name_their_number():
    """Their number is that of the settings, or of the provider's own choice."""
    choice, devices = plug_in("nobodys"), [device("CPU")]
    assert choice.settings(1, devices, {"num_of_threads": "8"}) == {"num_of_threads": "8"}
    assert choice.threads_reason == "nobodys chooses how many it computes with, or its settings do"
    assert plug_in("ggml-ep").threads_reason is None


@GGML
@pytest.mark.parametrize(("weights", "backend", "error"), [(None, "ggml-ep", 1e-7), ("f16", "ggml-ep,f16", 1e-3)])
def test_ggml_keeps_weights_as_the_file_has_them_unless_the_record_states_otherwise(runtime, tmp_path, weights, backend, error):
    """Left to itself it rounds them to fp16, in which 1 + 1/8192 is 1."""
    onnx = pytest.importorskip("onnx")
    values, factor = np.random.default_rng(0).random((1, 256)).astype(np.float32), np.float32(1 + 2**-13)
    save_graph(onnx, tmp_path / "m.onnx", "MatMul", values, np.eye(256, dtype=np.float32) * factor)
    loaded = runtime.load(tmp_path / "m.onnx", Options(backend="ggml-ep", extra={"ggml-ep.weights": weights} if weights else {}))
    assert loaded.backend == backend
    runtime.bind([values])()
    largest = np.abs(runtime.outputs()[0] / (values.astype(np.float64) * factor) - 1).max()
    assert error / 100 < largest + 1e-8 < error


@GGML
def test_ggml_reads_each_input_whole(runtime, tmp_path):
    """Left to itself it takes a large one for the last one, by 640 of its values: its copy would not be timed, or a picture be scored."""
    onnx = pytest.importorskip("onnx")
    values = np.random.default_rng(0).random((1, 1 << 18)).astype(np.float32)
    save_graph(onnx, tmp_path / "m.onnx", "Mul", values, np.array(2, np.float32))
    runtime.load(tmp_path / "m.onnx", Options(backend="ggml-ep"))
    for _ in range(3):
        runtime.bind([values])()
    values[0, 777:787] = -5
    runtime.bind([values])()
    np.testing.assert_array_equal(runtime.outputs()[0], values * 2)


@GGML
def test_ggml_runs_on_the_cpu_unless_the_record_states_otherwise(monkeypatch):
    """Left to itself it takes a GPU, and ONNX Runtime shows it on the CPU all the same."""
    monkeypatch.setattr(onnx_plug_in.vulkan, "gpu_names", lambda: ["A GPU"])
    choice, devices = plug_in("ggml-ep"), [device("CPU")]
    assert choice.settings(1, devices, {})["device"] == "cpu"
    settings = choice.settings(1, devices, {"device": "gpu"})
    assert (choice.recorded_backend(devices, settings), choice.facts(devices, settings)) == ("ggml-ep,auto", {"gpu": "A GPU"})


@GGML
@pytest.mark.parametrize("backend", ["ggml-ep:gpu", "ggml-ep:cpu", "ggml-ep:npu"])
def test_a_kind_of_device_is_refused_where_a_setting_chooses_it(runtime, models, backend):
    """Else `ggml-ep:gpu` would be sent to the CPU, by the setting."""
    kind = backend.partition(":")[2]
    with pytest.raises(ConfigError, match=rf"takes its device by a setting: choose --backend ggml-ep, with ggml-ep.device = '{kind}'"):
        runtime.load(models / "onnx.onnx", Options(backend=backend))


def test_several_kinds_of_device_are_no_choice_where_a_setting_chooses(monkeypatch):
    """A build of ggml that lists a GPU beside the CPU."""
    kinds = [
        SimpleNamespace(ep_name="ggml", device=SimpleNamespace(type=SimpleNamespace(name=name)), ep_metadata={}) for name in ("CPU", "GPU")
    ]
    library = SimpleNamespace(
        package="onnxruntime", version="1", module=SimpleNamespace(register_execution_provider_library=0, get_ep_devices=lambda: kinds)
    )
    monkeypatch.setitem(onnx_plug_in._registered, "/opt/lib.so", frozenset({"ggml"}))
    assert onnx_plug_in.choose("ggml", {"provider_library": "/opt/lib.so"}).devices(library) == kinds[:1]


@GGML
def test_a_query_that_a_provider_fails_on_is_one_line(runtime, tmp_path):
    """It takes two-dimensional convolutions, and fails at the first."""
    onnx = pytest.importorskip("onnx")
    values = np.ones((1, 1, 8, 8), np.float32)
    save_graph(onnx, tmp_path / "m.onnx", "Conv", values, np.ones((1, 1, 3, 3), np.float32))
    runtime.load(tmp_path / "m.onnx", Options(backend="ggml-ep"))
    with pytest.raises(MeasurementError, match=r"^ONNX Runtime failed on a query: .*Conv\(\)") as failure:
        runtime.bind([values])()
    assert "[ONNXRuntimeError]" not in str(failure.value)


def save_graph(onnx, path, operator, values, weights):
    """Write a model of one operator on an input like `values` and constant weights."""
    ends = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", values.shape), ("y", None))]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(operator, ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [onnx.numpy_helper.from_array(weights, "w")]
    )
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)


@OPENVINO
def test_a_provider_by_the_path_of_its_library_is_set_as_by_its_name():
    """Its threads, and f32: else it computes in what it chooses, under the name of the file's precision."""
    library = onnx_plug_in._library_of(onnx_plug_in.PACKAGES["openvino-ep"])
    choice = onnx_plug_in.choose("OpenVINOExecutionProvider", {"provider_library": library})
    properties = json.loads(choice.settings(3, [device("CPU", ov_device="CPU")], {})["load_config"])
    assert (choice.backend, properties) == ("openvino", {"CPU": {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "3"}})


@OPENVINO
@ON_INTEL
def test_openvino_takes_the_merged_settings(runtime, models, x):
    """In the library itself, in another precision too, where the record names it."""
    loaded = runtime.load(
        models / "onnx.onnx", Options(backend="openvino-ep", extra={"openvino-ep.load_config": '{"CPU":{"NUM_STREAMS":"1"}}'})
    )
    assert loaded.backend == "openvino-ep"
    runtime.bind([x])()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


@GGML
def test_settings_and_backends_that_would_have_no_effect_are_refused(runtime, models):
    """ONNX Runtime writes the provider's settings over those of the session; two plug-ins are no order of preference."""
    for backend, extra, words in (
        ("ggml-ep", {"ep.ggml.weights": "f16"}, r"ep.ggml.weights would be overwritten: set ggml-ep.weights"),
        ("ggml-ep,openvino-ep", {}, "a plug-in provider runs alone, before the CPU: choose --backend ggml-ep or openvino-ep"),
    ):
        with pytest.raises(ConfigError, match=words):
            runtime.load(models / "onnx.onnx", Options(backend=backend, extra=extra))
    with pytest.raises(UnavailableError, match=r"no provider ggmlep: choose --backend .*ggml-ep"):
        runtime.load(models / "onnx.onnx", Options(backend="ggmlep"))


@pytest.mark.needs(module="onnxruntime_ep_webgpu")
def test_a_provider_without_a_device_is_refused(runtime, models):
    """There is no GPU node on a machine that runs tests."""
    if any("GPU" in str(device.device.type) for device in onnxruntime.get_ep_devices()):
        pytest.skip("this machine has a GPU")
    with pytest.raises(UnavailableError, match="finds no device of WebGpuExecutionProvider on this machine"):
        runtime.load(models / "onnx.onnx", Options(backend="webgpu-ep"))


def test_an_absent_package_is_named_with_the_line_that_installs_it(runtime, models, monkeypatch):
    """Before a model is loaded, by `check` too."""
    monkeypatch.setitem(onnx_plug_in.PACKAGES, "qnn-ep", onnx_plug_in.PlugInPackage("nobody_has_this", "QNNExecutionProvider"))
    for refused in (runtime.load, runtime.check):
        with pytest.raises(UnavailableError, match="no nobody_has_this is installed, which brings qnn-ep"):
            refused(models / "onnx.onnx", Options(backend="qnn-ep"))


def test_of_several_kinds_of_device_one_must_be_named(monkeypatch):
    """As OpenVINO reports a laptop with an NPU, and QNN a Snapdragon: what ran would not be known."""
    kinds = [
        SimpleNamespace(ep_name="QNNExecutionProvider", device=SimpleNamespace(type=SimpleNamespace(name=name))) for name in ("CPU", "NPU")
    ]
    library = SimpleNamespace(
        package="onnxruntime", version="1", module=SimpleNamespace(register_execution_provider_library=0, get_ep_devices=lambda: kinds)
    )
    monkeypatch.setitem(onnx_plug_in._registered, "/opt/lib.so", frozenset({"QNNExecutionProvider"}))
    settings = {"provider_library": "/opt/lib.so"}
    with pytest.raises(UnavailableError, match="qnn finds cpu, npu here: choose --backend qnn:cpu or --backend qnn:npu"):
        onnx_plug_in.choose("QNNExecutionProvider", settings).devices(library)
    assert onnx_plug_in.choose("QNNExecutionProvider:npu", settings).devices(library) == kinds[1:]


def test_a_setting_in_place_of_a_refused_one_is_accepted():
    """Under the label of a provider by its path; `OpenVINOExecutionProvider.load_config` is none."""
    settings = {"provider_library": "/opt/lib.so", "ep.openvinoexecutionprovider.load_config": "{}"}
    with pytest.raises(ConfigError, match=r"would be overwritten: set openvino\.load_config"):
        onnx_plug_in.choose("OpenVINOExecutionProvider", settings)


def test_the_table_fits_what_the_packages_give():
    """Those that are installed here: the function that names the library, and the name of the provider."""
    for name, package in onnx_plug_in.PACKAGES.items():
        module = sys.modules.get(package.module)
        if module is not None:
            assert Path(getattr(module, package.path_function)()).is_file(), name
            provider = module.EP_NAME if hasattr(module, "EP_NAME") else module.get_ep_name()
            assert provider == package.provider, name
