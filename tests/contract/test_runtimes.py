"""What every runtime promises, asked of every name in the table."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
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
    "pytorch": ("torch",),
    "tensorrt": ("tensorrt",),
    "replay": (),
}
# Hardware that cannot be here, and what is put in its place.
STAND_INS = {"edgetpu": stand_ins.edgetpu, "tensorrt": stand_ins.tensorrt}
# Runtimes that may run the fixture of another.
READS_TOO = {("openvino", "onnx")}
X = np.array([[0, 1, 2, 3]], np.float32)


def fixture_of(name: str) -> Path:
    """Return the runtime's model of y = 2x + 1 (`NAME.SUFFIX`)."""
    found = sorted(path for path in FIXTURES.glob(f"{name}.*") if path.suffix != ".bin")
    assert len(found) == 1, f"runtime {name!r} needs one fixture tests/fixtures/runtimes/{name}.SUFFIX, has {found}"
    return found[0]


def options_for(name: str, path: Path) -> Options:
    """Return the options that the runtime needs to open a file at all: an engine of TensorRT is opened by its hash only."""
    return Options(sha256=hashlib.sha256(path.read_bytes()).hexdigest()) if name == "tensorrt" and path.is_file() else Options()


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.torch] if name == "pytorch" else []) for name in RUNTIMES])
def installed(request, tmp_path_factory, monkeypatch) -> str:
    """Return the name of a runtime whose library is here or has a stand-in, or skip."""
    libraries = LIBRARIES[request.param]
    if request.param in STAND_INS:
        STAND_INS[request.param](tmp_path_factory.mktemp("stand-in"), monkeypatch)
    if libraries and not any(library in sys.modules or importlib.util.find_spec(library) for library in libraries):
        pytest.skip(f"no {' or '.join(libraries)} is installed")
    return request.param


@pytest.fixture
def loaded(installed):
    """Return a runtime that has loaded its fixture, and what it found."""
    runtime = create(installed)
    yield runtime, runtime.load(fixture_of(installed), options_for(installed, fixture_of(installed)))
    runtime.close()


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_has_a_file_a_fixture_and_its_part_of_the_reference(name):
    """Adding a runtime is one file, one line in the table, and one fixture; the reference is made from it."""
    assert fixture_of(name).stat().st_size < 16_384
    assert f"| [`{name}`](#{name}) |" in (ROOT / "docs" / "reference" / "runtimes.md").read_text()
    assert name in LIBRARIES, "the contract tests must know its library"


@pytest.mark.parametrize("name", RUNTIMES)
def test_importing_and_constructing_a_runtime_imports_no_library(name):
    """Help, doctor and the engine's parent process create runtimes without paying for their libraries."""
    libraries = [library for names in LIBRARIES.values() for library in names]
    code = (
        f"import sys; from edgemeter.agent.runtimes import create; create({name!r}); print([l for l in {libraries!r} if l in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [name for name in RUNTIMES if LIBRARIES[name]])
def test_an_absent_library_is_unavailable_and_names_the_extra(name, monkeypatch):
    """Without its library a runtime says in one line what to install, and that extra exists."""
    for library in LIBRARIES[name]:
        for module in [loaded for loaded in sys.modules if f"{loaded}.".startswith(f"{library}.")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, library, None)
    runtime = create(name)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[\w+\]'$") as caught:
        runtime.load(fixture_of(name), options_for(name, fixture_of(name)))
    assert "\n" not in str(caught.value)
    extra = str(caught.value).rpartition("[")[2].partition("]")[0]
    assert extra in msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]["optional-dependencies"]
    runtime.close()


def broken(kind: str, folder: Path) -> Path:
    """Return a path that is no model of anything."""
    path = folder / f"model.{kind}"
    contents = {
        "empty": b"",
        "text": b"this is a note\nabout a model\n",
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
        "noise": bytes(range(256)) * 64,
    }
    if kind == "directory":
        path.mkdir()
    elif kind in contents:
        path.write_bytes(contents[kind])
    return path


@pytest.mark.parametrize("kind", ["absent", "directory", "empty", "pointer", "text", "noise"])
def test_what_is_no_model_ends_in_one_line(installed, kind, tmp_path):
    """A missing, empty or foreign file is a ConfigError that names it, and close still works."""
    path = broken(kind, tmp_path)
    runtime = create(installed)
    with pytest.raises(ConfigError) as caught:
        runtime.load(path, options_for(installed, path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    runtime.close()
    runtime.close()


def test_a_model_of_another_runtime_is_refused(installed):
    """A runtime that is given another's fixture says that it is none of its own."""
    for other in RUNTIMES:
        if other == installed or (installed, other) in READS_TOO:
            continue
        runtime = create(installed)
        with pytest.raises(ConfigError):
            runtime.load(fixture_of(other), options_for(installed, fixture_of(other)))
        runtime.close()


def test_a_model_cut_off_anywhere_is_refused_or_whole(installed, tmp_path):
    """No truncation ends the process or changes an answer; what was cut behind the graph (ONNX keeps its notes there) may go unnoticed."""
    whole = fixture_of(installed).read_bytes().rstrip()
    path = tmp_path / f"cut{fixture_of(installed).suffix}"
    if fixture_of(installed).with_suffix(".bin").exists():
        shutil.copy(fixture_of(installed).with_suffix(".bin"), path.with_suffix(".bin"))
    survivors = []
    for length in sorted({*range(1, 64), *range(64, len(whole), max(1, len(whole) // 200)), len(whole) - 1}):
        path.write_bytes(whole[:length])
        runtime = create(installed)
        try:
            runtime.load(path, options_for(installed, path))
            runtime.bind([X])()
            np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
            survivors.append(length)
        except ConfigError as error:
            assert "\n" not in str(error)  # noqa: PT017  most lengths raise, a few may not
        runtime.close()
    assert len(survivors) <= (4 if installed == "onnx" else 0), survivors


@pytest.mark.parametrize("name", RUNTIMES)
@pytest.mark.parametrize("options", [Options(threads=0), Options(extra={"nobody": "knows"})], ids=["threads", "setting"])
def test_options_that_cannot_be_meant_are_refused(name, options):
    """Zero threads and unknown settings are errors of the user, found before any library is imported."""
    with pytest.raises(ConfigError):
        create(name).load(fixture_of(name), options)


def test_a_backend_that_is_not_here_is_an_error(installed):
    """A backend asked for is never replaced in silence."""
    with pytest.raises((ConfigError, UnavailableError), match="nowhere"):
        create(installed).load(fixture_of(installed), Options(backend="nowhere"))


def test_load_tells_what_it_found(loaded):
    """Package, version, backend, tensors and both durations are there."""
    _, found = loaded
    assert found.package
    assert found.version[0].isdigit()
    assert found.backend
    assert [(info.shape, info.dtype) for info in found.inputs] == [((1, 4), "float32")]
    assert [(info.shape, info.dtype) for info in found.outputs] == [((1, 4), "float32")]
    assert found.inputs[0].name == "x"
    assert found.import_ns >= 0
    assert found.load_ns > 0


def test_the_call_computes_and_outputs_are_copies(loaded):
    """The answer is 2x + 1, and what was given out stays when the call runs again."""
    runtime, _ = loaded
    call = runtime.bind([X])
    call()
    first = runtime.outputs()
    np.testing.assert_array_equal(first[0], [[1, 3, 5, 7]])
    first[0][:] = -1
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
    call()
    np.testing.assert_array_equal(first[0], [[-1, -1, -1, -1]])
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


def test_bind_copies_its_inputs(loaded):
    """Changing an array after bind changes nothing."""
    runtime, _ = loaded
    given = X.copy()
    call = runtime.bind([given])
    given[:] = 100
    call()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


def test_bind_takes_arrays_that_are_not_contiguous(loaded):
    """A view with strides is taken like any other array."""
    runtime, _ = loaded
    call = runtime.bind([np.repeat(X, 2, axis=1)[:, ::2]])
    call()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


@pytest.mark.parametrize(
    "inputs",
    [[], [X, X], [X[0]], [X[:, :3]], [X.astype(np.float64)], [X.astype(np.uint8)]],
    ids=["none", "two", "rank", "size", "float64", "uint8"],
)
def test_bind_refuses_other_inputs_than_declared(loaded, inputs):
    """Number, rank, size and dtype are checked, and the message says what is wanted."""
    with pytest.raises(ConfigError, match="x"):
        loaded[0].bind(inputs)


def test_close_may_come_twice_and_before_load(installed):
    """Close is safe at any time."""
    runtime = create(installed)
    runtime.close()
    runtime.load(fixture_of(installed), options_for(installed, fixture_of(installed)))
    runtime.close()
    runtime.close()


def test_two_of_one_kind_do_not_disturb_each_other(installed):
    """Each runtime keeps its own inputs and outputs."""
    one, other = create(installed), create(installed)
    for runtime in (one, other):
        runtime.load(fixture_of(installed), options_for(installed, fixture_of(installed)))
    calls = [one.bind([X]), other.bind([X])]
    calls[0]()
    kept = one.outputs()[0]
    calls[1]()
    other.close()
    np.testing.assert_array_equal(one.outputs()[0], kept)
    calls[0]()
    one.close()


def test_an_unknown_name_is_refused_with_those_known():
    """The error lists every runtime."""
    with pytest.raises(ConfigError, match="litert, edgetpu, onnx, openvino, ncnn, pytorch, tensorrt, replay"):
        create("tensorrt-of-tomorrow")
