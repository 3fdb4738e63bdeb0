"""Facts about `docs/examples/`: the index has each file, and each file runs.

The test that docs/tasks/python.md shows passes. Other tests of examples:
tests/agent/tasks/test_task_plugins.py (tasks), tests/contract/test_plugins.py (plug-ins) and
tests/docs/test_corrupt_photographs.py.
"""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import edgemeter
from edgemeter.agent import runtimes, tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import order_suite
from edgemeter.agent.datasets.dataset import open_folder
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from tests.fixtures.command import edgemeter as edgemeter_command
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.plugin_site import install
from tests.fixtures.record_factory import STARTED_AT_NS
from tests.fixtures.vision_factory import make_card, make_loaded

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PLUGINS = EXAMPLES / "plugins"
INT8, FP32 = "edgemeter-shapes_int8.tflite", "edgemeter-shapes_fp32.tflite"
WEEK_NS = 7 * 86_400 * 10**9


def run(name, *arguments, home):
    environment = os.environ | {"EDGEMETER_HOME": str(home)}
    command = [sys.executable, EXAMPLES / name, *map(str, arguments)]
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env=environment, cwd=home
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture
def classifier(tmp_path):
    """Return a folder with a model of dense layers, two photographs and their classes.

    It also has a battery that gives 6.5 W.
    """
    folder = tmp_path / "classifier"
    (folder / "photos").mkdir(parents=True)
    np.save(folder / "net.npy", np.vstack([np.eye(4), np.arange(4)]).astype(np.float32))
    for index in range(2):
        Image.new("RGB", (4, 4), (index, 9, 9)).save(folder / "photos" / f"{index}.png")
    (folder / "classes.csv").write_text("file,class\n0.png,3\n1.png,0\n")
    (folder / "supplies" / "BAT0").mkdir(parents=True)
    for name, text in {"power_now": "6500000\n", "status": "Discharging\n"}.items():
        (folder / "supplies" / "BAT0" / name).write_text(text)
    for path in PLUGINS.glob("*.py"):
        text = path.read_text().replace("/sys/class/power_supply", str(folder / "supplies"))
        (folder / path.name).write_text(text)
    (folder / "counts.py").write_text(COUNTS)
    return folder


# A task that makes its inputs by itself: its model has no card.
COUNTS = """import numpy as np
from edgemeter.plugin import Accuracy

class Counts:
    def __init__(self, model, loaded, data):
        self.data, self.best = data, {}
    def prepare(self, index):
        return [{"x": np.zeros((1, 4), np.float32)}]
    def predict(self, index, calls):
        self.best[index] = int(np.argmax(calls[0][0]))
    def same_predictions(self, index, calls, other):
        return 1.0
    def score(self, parts="all"):
        data = self.data
        right = [
            data.classes[item.name] == self.best[index] for index, item in enumerate(data.items)
        ]
        return Accuracy(
            metric="right", value=sum(right) / len(right), images=len(right),
            dataset_sha256=data.sha256
        )
"""


@pytest.mark.services
def test_plug_ins_in_files_measure_and_score(classifier, tmp_path):
    """A runtime, a task and a sensor in files measure and score without registration.

    A suite and an option name them, and the record names their files.
    """
    (classifier / "suite.toml").write_text(
        'name = "own"\n[[case]]\nmodel = "net.npy"\nruntime = "runtime.py:DenseLayer"\ntask = '
        '"counts.py:Counts"\ndata = "photos"\n'
        'annotations = "classes.csv"\nmode = "rapid"\nseconds = 3\nrepeats = 1\n'
    )
    out, home = tmp_path / "runs.json", os.environ | {"EDGEMETER_HOME": str(tmp_path)}
    ended = edgemeter_command(
        "run",
        classifier / "suite.toml",
        "--power",
        f"{classifier}/sensor.py:Battery",
        "-o",
        out,
        env=home,
    )
    assert ended.returncode == 0, ended.stderr
    (record,) = json.loads(out.read_text())["runs"]
    assert (record["runtime"]["name"], record["model"]["task"]) == (
        "runtime.py:DenseLayer",
        "counts.py:Counts",
    )
    assert re.fullmatch(r"\d[\w.]*, file [0-9a-f]{8}", record["runtime"]["version"])
    assert (record["accuracy"]["metric"], record["accuracy"]["value"]) == ("right", 0.5)
    assert [(trace["name"], trace["sensor"]) for trace in record["power_traces"]] == [
        ("sensor.py:Battery", "battery")
    ]


@pytest.mark.services
def test_a_runtime_in_one_file_is_measured_as_a_package_registers_it(classifier, tmp_path):
    """The same file as a registered package's is measured by its name in the entry points."""
    text = (PLUGINS / "runtime.py").read_text()
    install(
        tmp_path / "site",
        "dense",
        [(runtimes.ENTRY_POINTS, "dense-layer", "dense:DenseLayer")],
        text,
    )
    environment = os.environ | {
        "EDGEMETER_HOME": str(tmp_path),
        "PYTHONPATH": str(tmp_path / "site"),
    }
    options = (
        "--runtime=dense-layer",
        "--mode=rapid",
        "--seconds=3",
        "--repeats=1",
        "--power=none",
        "-o",
        tmp_path / "runs.json",
    )
    command = [sys.executable, "-m", "edgemeter.agent.cli", "run", "net.npy", *options]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=classifier, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    (record,) = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert (record["runtime"]["name"], record["runtime"]["package"]) == ("dense-layer", "numpy")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--power=sensor.py:Batery", "has no 'Batery': did you mean Battery?"),
        (
            "--power=task.py:TopThree",
            "task.py:TopThree is not a power sensor, it has no describe, read, close",
        ),
    ],
)
def test_a_plug_in_that_is_none_is_refused_in_a_line(option, words, classifier, tmp_path):
    """A missing file, a missing name and a class of another kind are refused in one line."""
    defaults = [
        "--runtime=runtime.py:DenseLayer",
        "--power=none",
        "--data=photos",
        "--annotations=classes.csv",
    ]
    options = [
        default for default in defaults if default.partition("=")[0] != option.partition("=")[0]
    ]
    environment = os.environ | {"EDGEMETER_HOME": str(tmp_path)}
    ended = edgemeter_command(
        "run",
        "net.npy",
        *options,
        option,
        "--mode=rapid",
        "--repeats=1",
        env=environment,
        cwd=classifier,
    )
    last = ended.stderr.splitlines()[-1]
    assert (ended.returncode, words in last) == (2, True), ended.stderr


def test_a_card_or_an_order_names_no_code(tmp_path):
    """A card or an order may not name code, because both come from elsewhere.

    Only a command or a suite on this machine runs a file.
    """
    card = make_card("classifier", f"{PLUGINS / 'task.py'}:TopThree", classes=3)
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(ConfigError, match="no task is called"):
        tasks.create(card, make_loaded(), open_folder(tmp_path))
    for line in ('runtime = "runtime.py:DenseLayer"', 'task = "task.py:TopThree"'):
        with pytest.raises(ConfigError, match="the ordered suite is refused"):
            order_suite.read(f'name = "own"\n[[case]]\nmodel = "net.npy"\n{line}\n'.encode())


def test_the_index_has_one_sentence_for_each_example():
    """The index has one entry for each file, and no entry without a file."""
    entries = re.findall(
        r"^- \[(.+?)\]\((.+?)\): ([^.]+(?:\.\w[^.]*)*\.)$",
        (EXAMPLES / "README.md").read_text(),
        re.MULTILINE,
    )
    files = {
        path.relative_to(EXAMPLES).as_posix()
        for path in EXAMPLES.rglob("*")
        if path.suffix not in (".md", ".pyc") and path.is_file()
    }
    assert sorted(name for name, _, _ in entries) == sorted(files)
    assert all(name == path for name, path, _ in entries)


@pytest.mark.nightly
def test_two_models_are_compared_and_drawn(tmp_path):
    """The drawing has a bar for each run, below the sentence that says how the models differ."""
    printed = run("compare_two.py", SHIPPED_FOLDER / FP32, SHIPPED_FOLDER / INT8, 3, home=tmp_path)
    assert printed.startswith("B: ")
    assert len(re.findall(r"^  #+ +[\d.]+ ms$", printed, re.MULTILINE)) == 6


@pytest.mark.needs(module="onnx")
def test_models_of_one_operator_are_written_and_run(tmp_path):
    """The suite has as many models as DeepBench has shapes, and the smallest is measured."""
    run("operator_models.py", tmp_path / "models", home=tmp_path)
    names = re.findall(
        r'^model = "(.+)"$', (tmp_path / "models" / "operators.toml").read_text(), re.MULTILINE
    )
    assert sorted(names) == sorted(path.name for path in (tmp_path / "models").glob("*.onnx"))
    record = edgemeter.measure(
        tmp_path / "models" / "MatMul_1x1216_by_1216x64.onnx", mode="rapid", save=False
    )
    assert (len(names), record.latency.p50_ms > 0) == (27, True)


@pytest.mark.services
def test_one_model_is_measured(tmp_path):
    """Latency and accuracy of a shipped model are measured on the shipped scenes.

    No sensor is here.
    """
    scenes = SHIPPED_FOLDER.parent / "scenes"
    printed = run(
        "measure_one.py", INT8, scenes / "images", scenes / "annotations.json", home=tmp_path
    )
    assert "latency p50: " in printed
    assert "accuracy: 0.738 coco_ap on 112 images" in printed


@pytest.mark.services
def test_a_trend_is_fitted_to_a_ledger(tmp_path):
    """The fitted line finds a slow-down of 2% a week in eight weeks of runs."""
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        for week in range(8):
            p50_ms = 10.0 * 1.02**week * (1.001 if week % 2 else 0.999)
            when = {"started_at_ns": STARTED_AT_NS + week * WEEK_NS, "session": 1, "seq": week + 1}
            ledger.keep_own(make_run(p50_ms=p50_ms, **when), 1 << 30)
    assert run("fit_trend.py", home=tmp_path).startswith("pi-1 tiny-detector fp32 onnx: +1.9")


def test_the_sensor_of_the_page_about_plug_ins_reads_its_file(tmp_path):
    """The sensor of the page takes the path of its file as a setting, and reads it."""
    (source,) = re.findall(
        r'```python title="sensor.py"\n(.*?)```',
        (EXAMPLES.parent / "tasks" / "plug-ins.md").read_text(),
        re.DOTALL,
    )
    (tmp_path / "sensor.py").write_text(source)
    (tmp_path / "power_w").write_text("4.25\n")
    sensor = runpy.run_path(str(tmp_path / "sensor.py"))["Meter"](tmp_path / "power_w")
    assert (sensor.describe().scope, sensor.read().power_w) == ("board-input", 4.25)
    sensor.close()


@pytest.mark.nightly
def test_the_test_of_the_page_passes(tmp_path):
    """The test that `docs/tasks/python.md` shows passes in a pytest of its own."""
    page = (EXAMPLES.parent / "tasks" / "python.md").read_text()
    (source,) = re.findall(r'```python title="test_speed.py"\n(.*?)```', page, re.DOTALL)
    (tmp_path / "test_speed.py").write_text(source)
    environment = os.environ | {"EDGEMETER_HOME": str(tmp_path / "home")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        tmp_path / "test_speed.py",
    ]
    completed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=environment,
        cwd=tmp_path,
    )
    assert "1 passed" in completed.stdout, completed.stdout + completed.stderr


FRAMEWORKS = [
    pytest.param("torch_compiled", {}, ("torch", "compile,cpu"), marks=pytest.mark.torch),
    pytest.param(
        "torch_compiled", {"compiled": "no"}, ("torch", "callable,cpu"), marks=pytest.mark.torch
    ),
    pytest.param("jax_jit", {}, ("jax", "jit"), marks=pytest.mark.needs(module="jax")),
    pytest.param(
        "tensorflow_function",
        {},
        ("tensorflow", "function,cpu"),
        marks=pytest.mark.needs(module="tensorflow"),
    ),
]


@pytest.mark.parametrize(("name", "options", "expected"), FRAMEWORKS)
def test_a_model_of_a_framework_is_measured(name, options, expected):
    """A model's factory of a few lines is measured, and the record names the framework."""
    record = edgemeter.measure(f"{EXAMPLES / name}.py:make", mode="rapid", options=options)
    assert (record.runtime.package, record.runtime.backend) == expected
    assert record.latency.p50_ms > 0
