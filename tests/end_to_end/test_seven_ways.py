"""Facts about one detector in seven ways, measured as its user would: a suite, in one table, scored on photographs.

ONNX Runtime, LiteRT, PyTorch operator by operator and compiled, JAX, TensorFlow, and a server: MLServer and Triton. Which of them run
depends on what is installed; TensorFlow runs in the environment of `make frameworks`.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby

import pytest

from tests.benchmarks.detectors import DETECTORS, photographs, reference
from tests.fixtures import onnx_networks
from tests.fixtures.command import edgemeter
from tests.fixtures.ml_server import serving
from tests.fixtures.onnx_networks import MODEL
from tests.fixtures.real_triton import onnx_model, real_triton
from tests.requirements import absent

pytestmark = [
    pytest.mark.realdata, pytest.mark.torch, pytest.mark.long, pytest.mark.one_worker("seven ways"),
    *(pytest.mark.needs(module=name) for name in ("onnx", "onnxruntime", "pycocotools", "cv2")),
]  # fmt: skip
FACTORIES = "edgemeter.agent.factories"
TORCH = {"module": "yolox.py:torch_module", "weights": "yolox.pt", "input": "1x3x416x416"}
IMAGES, ROWS = {"images": (1, 3, 416, 416)}, {"output": (1, 3549, 85)}


@dataclass(frozen=True)
class Way:
    """A way: the case's model and options, what its record says of the framework, and what it needs.

    `kind` is what the copy of onnx_networks.py writes to `file` before. Where something is compiled at the first call, `compiles`.
    """

    name: str
    model: str
    package: str
    backend: str
    options: dict[str, str] = field(default_factory=dict)
    kind: str = ""
    file: str = ""
    compiles: bool = False
    marks: tuple[pytest.MarkDecorator, ...] = ()


def needs(*programs, **module):
    """Return the marker of a way that needs what is named."""
    return pytest.mark.needs(*programs, **module)


WAYS = (
    Way("onnx runtime", MODEL.name, "onnxruntime", "cpu"),
    Way("litert", "yolox_nano.tflite", "ai-edge-litert", "xnnpack", kind="litert", file="yolox_nano.tflite", marks=(pytest.mark.convert,)),
    Way("torch eager", f"{FACTORIES}.torch_eager:make", "torch", "eager,cpu", TORCH, "torch", "yolox.pt"),
    Way("torch.compile", f"{FACTORIES}.torch_compiled:make", "torch", "compile,cpu", TORCH, "torch", "yolox.pt", True, (needs("g++"),)),
    Way(
        "jax", f"{FACTORIES}.jax_jit:make", "jax", "jit,cpu", {"file": "yolox.stablehlo"}, "jax", "yolox.stablehlo", True,
        (needs(module="jax"),),
    ),
    Way("served", "yolox_nano.server", "mlserver", "oip,json", marks=(pytest.mark.mlserver,)),
    Way("served by triton", "triton.server", "triton", "oip,binary", marks=(pytest.mark.triton,)),
    Way(
        "tensorflow", f"{FACTORIES}.tensorflow_saved_model:make", "tensorflow", "function,cpu", {"model": "yolox_saved"}, "tensorflow",
        "yolox_saved", True, (pytest.mark.frameworks,),
    ),
)  # fmt: skip
MLSERVER, TRITON, TENSORFLOW = WAYS[-3:]
HERE = [way for way in WAYS if absent(mark.mark for mark in way.marks) is None]
each_way = pytest.mark.parametrize("way", [pytest.param(way, id=way.name, marks=way.marks) for way in WAYS])


def case(way):
    """Return the way as a case of a suite."""
    options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in way.options.items())
    role = 'role = "reference"\n' if way is WAYS[0] else ""
    return f'[[case]]\nmodel = "{way.model}"\nprecision = "fp32"\noptions = {{ {options} }}\n{role}'


@pytest.fixture(scope="module")
def measured(realdata, tmp_path_factory):
    """Return the records by package and backend, and what `run` and `compare` printed; each way is measured once."""
    folder = tmp_path_factory.mktemp("ways")
    shutil.copy(realdata / "models" / MODEL.name, folder)
    shutil.copy(onnx_networks.__file__, folder / "yolox.py")
    images, annotations = photographs()
    head = (
        f'name = "ways"\n[defaults]\nname = "yolox_nano"\nmode = "rapid"\nrepeats = 1\ndata = "{images}"\nannotations = "{annotations}"\n'
    )
    documents, printed = [], ""
    with ExitStack() as servers:
        if MLSERVER in HERE:
            address = servers.enter_context(serving(folder / MODEL.name, IMAGES, ROWS, folder / "served"))
            (folder / MLSERVER.model).write_text(f'url = "{address}"\nprotocol = "oip"\ntransport = "json"\n')
        if TRITON in HERE:
            model = onnx_model(folder / MODEL.name, IMAGES, ROWS)
            triton = servers.enter_context(real_triton(folder / "triton_server", {"yolox_nano": model}))
            (folder / TRITON.model).write_text(f'url = "{triton.url}"\nprotocol = "oip"\n')
        for python, ways in groupby(HERE, lambda way: os.environ["EDGEMETER_FRAMEWORKS"] if way is TENSORFLOW else sys.executable):
            cases = list(ways)
            for kind, file in dict.fromkeys((way.kind, way.file) for way in cases if way.kind):
                subprocess.run([python, "yolox.py", kind, file], cwd=folder, check=True, capture_output=True)
            (folder / "suite.toml").write_text(head + "".join(map(case, cases)))
            documents.append(f"runs{len(documents)}.json")
            command = [python, "-m", "edgemeter.agent.cli", "run", "suite.toml", "--output", documents[-1], "--format", "markdown"]
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert ended.returncode == 0, ended.stderr
            printed += ended.stdout
    records = [record for document in documents for record in json.loads((folder / document).read_text())["runs"]]
    ledgers = [word for document in documents for word in ("--ledger", document)]
    compared = edgemeter("compare", "--reference", "reference", *ledgers, "--json", cwd=folder)
    by_way = {(record["runtime"]["package"].removesuffix("-cpu"), record["runtime"]["backend"]): record for record in records}
    return by_way, printed, json.loads(compared.stdout)["rows"]


@each_way
def test_every_way_scores_as_pycocotools_scores_onnx_runtime(measured, way):
    """AP to 0.001 of what other code decoded and scored, and of ONNX Runtime measured by us."""
    (detector,) = (entry for entry in DETECTORS if entry.file == MODEL.name and entry.runtime == "onnx" and entry.to is None)
    expected, _ = reference(photographs()[0].parents[1] / "models" / MODEL.name, detector.find)
    accuracy = measured[0][way.package, way.backend]["accuracy"]
    assert (accuracy["metric"], accuracy["images"]) == ("coco_ap", 80)
    assert accuracy["value"] == pytest.approx(expected[0], abs=1e-3)
    assert accuracy["value"] == pytest.approx(measured[0]["onnxruntime", "cpu"]["accuracy"]["value"], abs=1e-3)


@each_way
def test_every_way_has_its_cold_start_split(measured, way):
    """Process, import, load, first query; and of the first query the compilation, where there is one."""
    cold = measured[0][way.package, way.backend]["cold_start"]
    assert min(cold["process_ms"], cold["load_ms"], cold["first_ms"]) > 0
    assert (cold["import_ms"] > 0) == ("served" not in way.name)
    assert (cold["compile_ms"] is not None) == way.compiles
    if way.name in ("torch.compile", "jax"):
        p50_ms = measured[0][way.package, way.backend]["latency"]["p50_ms"]
        assert 5 * p50_ms < cold["compile_ms"] < cold["first_ms"]


def test_they_stand_in_one_table(measured):
    """A row each beside ONNX Runtime as the reference, named apart, with accuracies that are alike, and the cold start of each."""
    records, printed, compared = measured
    assert len({(row["runtime_package"], row["backend"]) for row in compared}) == len(compared) == len(HERE)
    assert {row["accuracy_verdict"] for row in compared if not row["is_reference"]} == {"alike"}
    assert all(row["cold_start_first_ms"] > 0 for row in compared)
    headings = [set(line.strip("| ").split(" | ")) for line in printed.splitlines() if "p50 ms" in line and line.startswith("|")]
    assert all({"process ms", "import ms", "load ms", "first query ms"} <= heading for heading in headings)
    frameworks = [record["runtime"] for record in records.values() if record["runtime"]["name"] == "python"]
    assert all(f"fp32 {runtime['package']} {runtime['backend']} 1T" in printed for runtime in frameworks)
