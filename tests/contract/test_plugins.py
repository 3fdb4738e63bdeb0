"""The contracts of runtimes, power sensors, tasks and readers.

Ours keep them, and so do the examples in docs/examples/plugins.
"""

import hashlib
import importlib.util
import json
import math
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent import datasets, power, runtimes, tasks
from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    MeasurementError,
    UnavailableError,
)
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.pi5_pmic import Pi5Pmic
from edgemeter.agent.runtimes import Options, TensorInfo
from edgemeter.agent.runtimes.adapter import check_inputs
from edgemeter.agent.sandbox.user_code import plugin_class
from tests.fixtures import stand_ins
from tests.fixtures.cifar_factory import batch
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import in_folders, table_row
from tests.fixtures.vision_factory import make_card, make_loaded, make_truth, tensors

ROOT = Path(__file__).resolve().parents[2]
FIXTURES, EXAMPLES = ROOT / "tests" / "fixtures", ROOT / "docs" / "examples" / "plugins"
# Runtimes: a model of y = 2x + 1 in tests/fixtures/runtimes/NAME.SUFFIX, and the libraries of which
# one is needed.
LITERT = ("ai_edge_litert", "tflite_runtime")
LIBRARIES = {
    "litert": LITERT, "edgetpu": LITERT, "onnx": ("onnxruntime",), "openvino": ("openvino",),
    "ncnn": ("ncnn",), "pytorch": ("torch",),
    "executorch": ("executorch",), "tensorrt": ("tensorrt",), "hailo": ("hailo_platform",),
}  # fmt: skip
# Hardware that cannot be here, and what is put in its place. The address of a server is asked in
# tests/agent/runtimes/test_served.py.
STAND_INS = {"edgetpu": stand_ins.edgetpu, "tensorrt": stand_ins.tensorrt, "hailo": stand_ins.hailo}
MARKS = dict.fromkeys(("edgetpu", "tensorrt"), pytest.mark.needs("gcc")) | {
    "pytorch": pytest.mark.torch,
    **{name: pytest.mark.needs(module=name) for name in ("executorch", "ncnn", "openvino")},
}
EXAMPLE = f"{EXAMPLES / 'runtime.py'}:DenseLayer"
# An interpreter has memory for outputs from the beginning.
ALWAYS_WITH_OUTPUTS = ("litert", "edgetpu", EXAMPLE)
X = np.array([[0, 1, 2, 3]], np.float32)
# A matrix that is squared forty times takes tens of milliseconds; its rows of sum 1 stay so.
LARGE = {
    "litert": "tflite", "onnx": "onnx", "openvino": "onnx", "ncnn": "param", "executorch": "pte",
    "pytorch": "torchscript", "python": "py",
}  # fmt: skip
every_runtime = pytest.mark.parametrize(
    "runtime_name",
    [
        pytest.param(name, marks=MARKS.get(name, ()))
        for name in (*runtimes.RUNTIMES, EXAMPLE)
        if name != "served"
    ],
    ids=lambda name: name.rpartition(":")[2],
)


@pytest.fixture
def runtime_case(runtime_name, tmp_path, monkeypatch):
    """Return a runtime, its model, the input and the right output for it.

    A replay spins and does not sleep.
    """
    if runtime_name in STAND_INS:
        STAND_INS[runtime_name](tmp_path, monkeypatch)
    if runtime_name == "replay":
        monkeypatch.setattr(time, "sleep", lambda _: None)
    x = X.astype(np.uint8).reshape(1, 1, 1, 4) if runtime_name == "hailo" else X
    with closing(runtimes.create(runtime_name)) as runtime:
        yield runtime, model_of(runtime_name, tmp_path), x, 2 * x + 1


def model_of(name, folder):
    if name == EXAMPLE:
        np.save(folder / "net.npy", np.vstack([2 * np.eye(4), np.ones(4)]).astype(np.float32))
        return folder / "net.npy"
    (path,) = (path for path in (FIXTURES / "runtimes").glob(f"{name}.*") if path.suffix != ".bin")
    return path


def options_of(path):
    """Return options that open a file that contains code too: by its hash."""
    return Options(sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@every_runtime
def test_a_runtime_computes_what_was_bound_and_refuses_what_it_cannot_run(
    runtime_case, runtime_name, tmp_path
):
    """A runtime computes what was bound, and refuses a model that it cannot run.

    Inputs and outputs are copies, and of one query; `load` states what it found. A refusal is one
    line, and `close` still works.
    """
    runtime, model, x, y = runtime_case
    loaded = runtime.load(model, options_of(model))
    assert all((loaded.package, loaded.backend, loaded.version[:1].isdigit()))
    assert loaded.import_ns >= 0 < loaded.load_ns
    check_inputs([x], loaded.inputs)
    check_inputs([y], loaded.outputs)
    inputs = [np.repeat(x, 2, axis=-1)[..., ::2]]
    for _ in range(2):
        call = runtime.bind(inputs)
        if runtime_name not in ALWAYS_WITH_OUTPUTS:
            with pytest.raises(MeasurementError):
                runtime.outputs()
        overwritten, inputs[0] = inputs[0], inputs[0].copy()
        overwritten[:] = 0
        for _ in range(2):
            call()
            (output,) = runtime.outputs()
            assert output.tolist() == y.tolist()
            output[:] = 0
    runtime.close()
    (tmp_path / "folder").mkdir()
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "cut").write_bytes(model.read_bytes()[: model.stat().st_size // 2])
    for path in (tmp_path / "absent", tmp_path / "folder", tmp_path / "noise", tmp_path / "cut"):
        with pytest.raises(ConfigError, match=path.name) as refusal:
            runtime.load(path, options_of(path) if path.is_file() else Options(sha256="0" * 64))
        assert "\n" not in str(refusal.value)
        runtime.close()
    for options in (
        Options(threads=0),
        Options(extra={"nobody": "knows"}),
        Options(backend="nowhere"),
    ):
        with pytest.raises(EdgemeterError):
            runtime.load(model, options)
    runtime.load(model, options_of(model))
    for inputs in ([], [x, x], [x[0]], [x.astype(np.int16)]):
        with pytest.raises(ConfigError):
            runtime.bind(inputs)


@pytest.mark.alone
@pytest.mark.parametrize(
    "runtime_name", [pytest.param(name, marks=MARKS.get(name, ())) for name in LARGE]
)
def test_the_timed_call_does_the_work(runtime_case, runtime_name):
    """The timed call takes longer than binding or reading the outputs.

    It waits for an accelerator, and nothing is computed before it.
    """
    runtime, _, _, _ = runtime_case
    rows = np.random.default_rng(0).random((1, 384, 384), np.float32)
    rows /= rows.sum(axis=-1, keepdims=True)
    large = FIXTURES / "runtimes" / f"large.{LARGE[runtime_name]}"
    runtime.load(large, options_of(large))
    took_ns = []
    for number in range(5):
        moments = [time.monotonic_ns()]
        call = runtime.bind([np.roll(rows, number, axis=-1)])
        moments.append(time.monotonic_ns())
        call()
        moments.append(time.monotonic_ns())
        runtime.outputs()
        moments.append(time.monotonic_ns())
        took_ns.append(np.diff(moments))
    bind_ns, call_ns, read_ns = np.min(took_ns, axis=0)
    assert call_ns > max(bind_ns, read_ns)


@pytest.mark.services
def test_runtimes_and_generators_are_made_without_their_libraries():
    """Help and `doctor` make runtimes and generators in an installation without their libraries."""
    code = (
        "import sys; from edgemeter.agent import generators, runtimes\n"
        "for table in (generators, runtimes):\n"
        "    [table.create(name) for name in getattr(table, 'RUNTIMES', None) or "
        "table.GENERATORS]\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {
        "xllamacpp",
        *(library for libraries in LIBRARIES.values() for library in libraries),
    } & {*loaded}


def test_an_absent_library_names_its_extra(monkeypatch):
    """An absent library gives one line that says how to install it."""
    for name, libraries in LIBRARIES.items():
        for module in [module for module in sys.modules if module.partition(".")[0] in libraries]:
            monkeypatch.delitem(sys.modules, module)
        for library in libraries:
            monkeypatch.setitem(sys.modules, library, None)
        model = model_of(name, ROOT)
        with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[\w+\]'"):
            runtimes.create(name).load(model, options_of(model))


# Sensors: what its source holds in tests/fixtures/power/NAME, a tree or what was printed; a library
# is played by a module there. Those at a port, and those whose service or instrument is played by a
# test, have tests of their own.
EXAMPLE_SENSOR = f"{EXAMPLES / 'sensor.py'}:Battery"
LIVE = {"fnirsi", "um25c", "jtop", "joulescope"}


def open_sensor(sensor_name, folder, monkeypatch, *, is_here):
    if sensor_name == EXAMPLE_SENSOR:
        write(
            folder,
            {"BAT0/power_now": "6500000\n", "BAT0/status": "Discharging\n"} if is_here else {},
        )
        return power.create(sensor_name, supplies=str(folder))
    (recorded,) = (path for path in (FIXTURES / "power" / sensor_name).iterdir() if path.is_file())
    if recorded.suffix == ".py" and is_here:
        spec = importlib.util.spec_from_file_location(recorded.stem, recorded)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setitem(sys.modules, recorded.stem, module)
        return power.create(sensor_name)
    root = write(
        folder, json.loads(recorded.read_text()) if recorded.name == "tree.json" and is_here else {}
    )
    settings = {
        "replay": {"path": str(recorded)},
        "shelly": {"address": "192.0.2.7"},
        "tasmota": {"address": "192.0.2.7"},
    }
    if is_here and sensor_name in ("shelly", "tasmota"):
        sensor = power.sensor_class(sensor_name)(**settings[sensor_name])
        sensor.get = lambda _: recorded.read_bytes()
        return sensor
    sensor = power.create(
        sensor_name, root=root, **(settings.get(sensor_name, {}) if is_here else {})
    )
    if sensor_name == "pi5_pmic":
        printed = recorded.read_bytes() if is_here else b"no rail"
        sensor = Pi5Pmic(run=lambda command: subprocess.CompletedProcess(command, 0, printed, b""))
    return sensor


def test_a_sensor_states_what_it_is_and_reads_or_that_it_is_not_here(tmp_path, monkeypatch):
    """A sensor describes itself and reads, or says that it is not here.

    Readings are of its kind, finite and stamped in order. It may be closed twice, and an unknown
    setting is refused before.
    """
    for folder, sensor_name in in_folders(
        tmp_path, (*sorted({*power.SENSORS} - LIVE), EXAMPLE_SENSOR)
    ):
        with table_row(sensor_name):
            sensor = open_sensor(sensor_name, folder / "here", monkeypatch, is_here=True)
            description = sensor.describe()
            assert description.id
            assert description.period_ms > 0
            readings = [sensor.read() for _ in range(2)]
            for reading in readings:
                assert math.isfinite(
                    reading.power_w if description.kind == "power" else reading.energy_mj
                )
                # The range of a board or a machine: a wrong unit is off by a factor of 1,000.
                assert reading.power_w is None or 0.1 < abs(reading.power_w) < 1500
            assert readings[1].taken_ns >= readings[0].taken_ns > 0
            sensor.close()
            sensor.close()
            for method in ("describe", "read"):
                sensor = open_sensor(sensor_name, folder / "absent", monkeypatch, is_here=False)
                with pytest.raises((AbsentError, UnavailableError, ConfigError)):
                    getattr(sensor, method)()
                sensor.close()
            with pytest.raises(ConfigError, match="nobody_knows"):
                power.create(sensor_name, nobody_knows="9")


# Tasks: a card, the model's outputs for two photographs, and their ground truth. Those of other
# inputs have it in tests of their own.
ONE_HOT = [np.eye(3, dtype=np.float32)[None, index] for index in (0, 2)]
BOXES = np.zeros((1, 6, 20), np.float32)
BOXES[0, :, 0], BOXES[0, :, 1] = (8, 16, 16, 16, 0.9, 0), (24, 16, 16, 16, 0, 0.9)
EXAMPLE_TASK = f"{EXAMPLES / 'task.py'}:TopThree"
TASK_CASES = {
    "classification": (
        make_card("classifier", "classification", classes=3),
        ONE_HOT,
        {"photo_0.png": 0, "photo_1.png": 2},
    ),
    "detection": (make_card("yolov8", classes=2, nms_iou=0.7), [BOXES, BOXES], make_truth(2)),
    EXAMPLE_TASK: (
        make_card("classifier", "TopThree", classes=9),
        [np.eye(9, dtype=np.float32)[None, 4]] * 2,
        {"photo_0.png": 4},
    ),
}


def test_a_task_prepares_and_scores(tmp_path):
    """A task prepares inputs as the model declares, and gives the right score.

    Without truth or predictions it gives none, of spoilt outputs a finite one.
    """
    for folder, name in in_folders(tmp_path, TASK_CASES):
        with table_row(name):
            check_task(name, folder)


def check_task(name, folder):
    card, outputs, truth = TASK_CASES[name]
    for index in range(2):
        Image.new("RGB", (64, 64), (index, 128, 255)).save(folder / f"photo_{index}.png")
    (folder / "truth.json").write_text(json.dumps(truth))
    data = open_folder(folder, folder / "truth.json")
    loaded = make_loaded(
        tensors(outputs[0].shape), [TensorInfo("image", (1, 64, 64, 3), "float32")]
    )
    make = plugin_class("task", name, tasks.Task) or tasks.create

    def scored(by_item, scored_data=data):
        task = make(card, loaded, scored_data)
        for index in range(len(scored_data.items)):
            check_inputs(tasks.prepared(task, index, loaded)[0], loaded.inputs)
            task.predict(index, [[by_item[index]]])
        return task.score()

    accuracy = scored(outputs)
    assert (accuracy.value, accuracy.images, accuracy.dataset_sha256) == (
        1.0,
        len(data.items),
        data.sha256,
    )
    assert accuracy.low is None or accuracy.low <= 1.0 <= accuracy.high
    assert (
        scored([np.zeros_like(output) for output in outputs]).value < 1 or name == "classification"
    )
    assert math.isfinite(scored([np.full_like(output, np.nan) for output in outputs]).value)
    task = make(card, loaded, data)
    task.prepare(0)
    assert task.same_predictions(0, [[outputs[0]]], [[outputs[0]]]) == 1.0
    assert task.score() is None
    assert (
        scored(
            outputs,
            replace(data, truth=None, image_ids=None, classes=None, class_names=None, targets=None),
        )
        is None
    )


# Readers of ground truth: where two photographs lie, and their annotations.
PHOTOS = ("photo_0.png", "photo_1.png")
READER_CASES = {
    "cifar-10": (
        ("00000", "00001"),
        "test_batch.bin",
        batch(np.arange(6144, dtype=np.uint8).reshape(2, 32, 32, 3), (4, 9)),
    ),
    "mlperf-tiny": (
        ("a.bin", "b.bin"),
        "y_labels.csv",
        b"a.bin,2,0,2560,512\nb.bin,2,1,2560,512\n",
    ),
    "visual-wake-words": (PHOTOS, "vww.json", json.dumps(make_truth(2, ("person",))).encode()),
    "class-folders": (("cat/a.png", "dog/b.png"), None, b""),
    "class-list": (PHOTOS, "index.csv", b"file,class\nphoto_0.png,0\nphoto_1.png,2\n"),
    "coco": (PHOTOS, "truth.json", json.dumps(make_truth(2)).encode()),
}


def test_a_reader_recognises_its_own_and_refuses_what_is_spoilt(tmp_path):
    """A reader recognises only its own annotations, and refuses spoilt ones.

    The items have ground truth. Foreign or absent annotations are not its own; truncated ones are
    read whole, or refused in one line.
    """
    for folder, name in in_folders(tmp_path, READER_CASES):
        with table_row(name):
            check_reader(name, folder)


def check_reader(name, folder):
    items, where, content = READER_CASES[name]
    images = folder / "images"
    for item in items:
        (images / item).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64)).save(images / item, format="png")
    annotations = folder / where if where else None
    if annotations:
        annotations.write_bytes(content)
    path, truth = (annotations, None) if name == "cifar-10" else (images, annotations)
    reader = datasets.create(name)
    assert reader.recognises(path, truth)
    assert tuple(item.name for item in open_folder(path, truth).items) == items
    (folder / "empty").mkdir()
    (folder / "foreign").write_bytes(b"\xff\xfe\x00garbage\n")
    assert not any(
        reader.recognises(folder / "empty", foreign)
        for foreign in (None, folder / "foreign", folder / "absent")
    )
    for length in range(0, len(content), max(1, len(content) // 50)):
        annotations.write_bytes(content[:length])
        with suppress(ConfigError):
            reader.read(path, truth)
    if annotations:
        annotations.write_bytes(b"\xff\xfe\x00garbage\n")
        with pytest.raises(ConfigError, match=annotations.name):
            reader.read(path, truth)


def test_a_runtime_in_a_file_derives_from_the_base_class(tmp_path):
    """A runtime in a file inherits from the base class all that it leaves out.

    One that only looks like a runtime, or lacks a method, is refused before it is loaded.
    """
    methods = "".join(
        f"    def {name}(self, *given): pass\n" for name in ("load", "bind", "outputs", "close")
    )
    source = (
        f"import edgemeter.plugin as em\n\nclass Alike:\n{methods}\nclass Silent(em.Runtime):\n"
        f"{methods.replace('outputs', 'output')}"
    )
    (tmp_path / "mine.py").write_text(source)
    for name, words in [
        (
            "Alike",
            (
                r"is not a runtime, it does not derive from edgemeter\.plugin\.Runtime: write a "
                r"class with load, bind, outputs, close,"
            ),
        ),
        ("Silent", "is not a runtime, it has no outputs: "),
    ]:
        with pytest.raises(ConfigError, match=words):
            plugin_class("runtime", f"{tmp_path / 'mine.py'}:{name}", runtimes.Runtime)
