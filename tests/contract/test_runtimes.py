"""What every runtime promises, asked of every name in the table."""

import hashlib
import importlib.util
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.conformance import runtimes as conformance
from edgemeter.agent.conformance.runtimes import RuntimeCase
from edgemeter.agent.runtimes import RUNTIMES, Options, create
from tests.fixtures import stand_ins

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "runtimes"
LITERT = ("ai_edge_litert", "tflite_runtime")
LIBRARIES = {
    "litert": LITERT,
    "edgetpu": LITERT,
    "onnx": ("onnxruntime",),
    "openvino": ("openvino",),
    "ncnn": ("ncnn",),
    "executorch": ("executorch",),
    "pytorch": ("torch",),
    "tensorrt": ("tensorrt",),
    "python": (),
    "hailo": ("hailo_platform",),
    "rknn": ("rknnlite",),
    "replay": (),
    "served": (),
}
# Its fixture is the address of a server that no check starts: tests/agent/runtimes/test_served.py asks one.
UNSERVED = {"served"}
# Hardware that cannot be here, and what is put in its place.
STAND_INS = {"edgetpu": stand_ins.edgetpu, "tensorrt": stand_ins.tensorrt, "hailo": stand_ins.hailo, "rknn": stand_ins.rknn}
COMPILED = {"edgetpu", "tensorrt"}
# Runtimes that may run the fixture of another.
READS_TOO = {("openvino", "onnx")}
X = np.array([[0, 1, 2, 3]], np.float32)
# What is compiled for an NPU takes integers.
PIXELS = {"hailo": X.astype(np.uint8).reshape(1, 1, 1, 4), "rknn": X.astype(np.uint8)}
# What works for tens of milliseconds: a matrix is squared forty times, rows of sum 1 stay so. OpenVINO reads ONNX's.
LARGE = {
    "litert": "tflite",
    "onnx": "onnx",
    "openvino": "onnx",
    "ncnn": "param",
    "executorch": "pte",
    "pytorch": "torchscript",
    "python": "py",
}
LARGE |= {"hailo": "hef", "rknn": "rknn"}
STOCHASTIC = np.random.default_rng(0).random((1, 384, 384), np.float32)
STOCHASTIC /= STOCHASTIC.sum(axis=-1, keepdims=True)
NEED_NO_LIBRARY = (
    conformance.constructing_imports_no_library,
    conformance.an_absent_library_is_unavailable,
    conformance.options_that_cannot_be_meant_are_refused,
)
CHECKS = [check for check in conformance.CHECKS if check not in NEED_NO_LIBRARY]


def fixture_of(name: str) -> Path:
    """Return the runtime's model of y = 2x + 1 (`NAME.SUFFIX`)."""
    paths = sorted(path for path in FIXTURES.glob(f"{name}.*") if path.suffix != ".bin")
    assert len(paths) == 1, f"runtime {name!r} needs one fixture tests/fixtures/runtimes/{name}.SUFFIX, has {paths}"
    return paths[0]


def options_for(name: str, path: Path) -> Options:
    """Return the options that the runtime needs to open a file at all: an engine of TensorRT is opened by its hash only."""
    return Options(sha256=hashlib.sha256(path.read_bytes()).hexdigest()) if name == "tensorrt" and path.is_file() else Options()


def case_of(name: str) -> RuntimeCase:
    """Return what the contract is checked with: y = 2x + 1."""
    model = fixture_of(name)
    x = PIXELS.get(name, X)
    y = 2 * x + 1 if name != "rknn" else 2 * X + 1
    large, inputs = FIXTURES / f"large.{LARGE.get(name)}", (x if name in PIXELS else STOCHASTIC,)
    if not large.exists():
        large, inputs = FIXTURES / "large.replay.json" if name == "replay" else model, (X,)
    weights = model.with_suffix(".bin")
    return RuntimeCase(
        name,
        model=model,
        inputs=(x,),
        outputs=(y,),
        libraries=LIBRARIES[name],
        options=lambda path: options_for(name, path),
        beside=(weights,) if weights.exists() else (),
        # ONNX keeps its notes behind the graph.
        cuts_unnoticed=4 if name == "onnx" else 0,
        large=(large, inputs),
    )


def needs_of(name):
    """Return the marks of a runtime's tests."""
    if name in COMPILED:
        return [pytest.mark.needs("gcc")]
    return [pytest.mark.torch] if name in {"pytorch", "executorch"} else []


@pytest.fixture(params=[pytest.param(name, marks=needs_of(name)) for name in RUNTIMES if name not in UNSERVED])
def installed(request, tmp_path_factory, monkeypatch) -> str:
    """Return the name of a runtime whose library is here or has a stand-in, or skip."""
    libraries = LIBRARIES[request.param]
    if request.param in STAND_INS:
        STAND_INS[request.param](tmp_path_factory.mktemp("stand-in"), monkeypatch)
    if libraries and not any(library in sys.modules or importlib.util.find_spec(library) for library in libraries):
        pytest.skip(f"no {' or '.join(libraries)} is installed")
    return request.param


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_has_a_file_a_fixture_and_its_part_of_the_reference(name):
    """Adding a runtime is one file, one line in the table, and one fixture; the reference is made from it."""
    assert fixture_of(name).stat().st_size < 16_384
    assert f"\n[`{name}`](#{name}) | " in (ROOT / "docs" / "reference" / "runtimes.md").read_text()
    assert name in LIBRARIES, "the contract tests must know its library"


@pytest.mark.parametrize("name", [name for name in RUNTIMES if LIBRARIES[name]])
def test_an_absent_library_is_unavailable_and_names_the_extra(name, monkeypatch):
    """Without its library a runtime says in one line what to install, and that extra exists."""
    for library in LIBRARIES[name]:
        for module in [loaded for loaded in sys.modules if f"{loaded}.".startswith(f"{library}.")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, library, None)
    runtime = create(name)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[\w+\]'") as refusal:
        runtime.load(fixture_of(name), options_for(name, fixture_of(name)))
    assert "\n" not in str(refusal.value)
    extra = str(refusal.value).rpartition("[")[2].partition("]")[0]
    assert extra in msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]["optional-dependencies"]
    runtime.close()


def marked(check):
    """Return a check, alone where it judges the time that a call takes."""
    return pytest.param(check, marks=pytest.mark.alone if check is conformance.the_call_does_the_work else (), id=check.__name__)


@pytest.mark.parametrize("check", [marked(check) for check in CHECKS])
def test_a_runtime_keeps_the_contract(check, installed, tmp_path, monkeypatch):
    """The checks that ship, over every runtime whose library is here or has a stand-in, which computes for as long as it is told."""
    if check is conformance.the_call_does_the_work:
        monkeypatch.setenv("EDGEMETER_STAND_IN_US", "10000")
    check(case_of(installed), tmp_path)


@pytest.mark.parametrize("name", RUNTIMES)
@pytest.mark.parametrize("check", NEED_NO_LIBRARY, ids=lambda check: check.__name__)
def test_a_runtime_without_its_library_keeps_the_contract(check, name, tmp_path):
    """What is checked before a library is imported holds where none is installed."""
    check(case_of(name), tmp_path)


def test_a_model_of_another_runtime_is_refused(installed):
    """A runtime that is given another's fixture says that it is none of its own."""
    for other in RUNTIMES:
        if other == installed or (installed, other) in READS_TOO:
            continue
        runtime = create(installed)
        with pytest.raises(ConfigError):
            runtime.load(fixture_of(other), options_for(installed, fixture_of(other)))
        runtime.close()


def test_an_unknown_name_is_refused_with_those_known():
    """The error lists every runtime."""
    with pytest.raises(
        ConfigError, match="litert, edgetpu, onnx, openvino, ncnn, executorch, pytorch, tensorrt, hailo, rknn, python, replay"
    ):
        create("tensorrt-of-tomorrow")
