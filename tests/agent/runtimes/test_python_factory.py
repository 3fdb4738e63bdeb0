"""Facts about models that a Python factory returns, and about what is recorded of them.

What a factory may return is tested; each mistake is one line.
"""

import _io
import hashlib
import importlib
import io
import sys
import tempfile
import time
import types
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.runtimes import Options, TensorInfo, create
from edgemeter.agent.runtimes.call_results import arrays_of
from tests.fixtures.rows import table_row
from tests.fixtures.still_time import stop_time

X = np.array([[1, 2, 3, 4]], np.float32)
INPUTS = '{"x": ("float32", (1, 4))}'
MODEL = (
    "from edgemeter.agent.runtimes import TensorInfo\nfrom edgemeter.agent.runtimes.python_model "
    "import PythonModel\n"
)


@pytest.fixture
def load(tmp_path):
    """Return a function that loads the factory `make` of a source.

    It returns the runtime and the loaded model's description.
    """
    runtimes = []

    def loaded(source, options=None, name="net"):
        (tmp_path / f"{name}.py").write_text(source)
        runtimes.append(create("python"))
        return runtimes[-1], runtimes[-1].load(tmp_path / f"{name}.py:make", options or Options())

    yield loaded
    for runtime in runtimes:
        runtime.close()


def outputs_of(runtime, *inputs):
    runtime.bind(inputs or [X])()
    return runtime.outputs()


def test_a_factory_returns_one_of_two_forms(load):
    """Each form is run, and its outputs are learnt from the first call."""
    for source in (
        f"def make(): return (lambda x: 2 * x), {INPUTS}",
        (
            f'{MODEL}def make(): return PythonModel(call=lambda x: {{"y": (2 * x,)}}, '
            'inputs=(TensorInfo("x", (1, 4), "float32"),))'
        ),
    ):
        with table_row(source):
            runtime, loaded = load(source)
            assert loaded.inputs == (TensorInfo("x", (1, 4), "float32"),)
            assert loaded.outputs == (TensorInfo("output_0", (1, 4), "float32"),)
            np.testing.assert_array_equal(outputs_of(runtime), [2 * X])


def test_what_is_wrong_with_a_factory_is_one_line(load):
    """The line names the factory's address and the remedy."""
    for source, error, text in [
        (
            "def make():\n 1 / 0",
            ConfigError,
            r"net.py:make: the factory raised ZeroDivisionError.*\(line 2 of net.py\)",
        ),
        ("def make(): pass", ConfigError, "returned nothing: return a pair"),
        ("def mak(): pass", ConfigError, "has no 'make'"),
        ("def make(:", ConfigError, "is not Python in line 1"),
        (
            "import no_such_library\ndef make(): pass",
            UnavailableError,
            "No module named 'no_such_library': install it",
        ),
        (
            f"def make(): return (lambda x: x.nope), {INPUTS}",
            ConfigError,
            r"first call, on x float32 \[1, 4\], raised Attribute",
        ),
        (
            (
                f"{MODEL}def make(): return PythonModel(call=lambda x: x, "
                "inputs=(TensorInfo('x', (1,), 'float32'),), weights=('no.pt',))"
            ),
            ConfigError,
            "weights that are not there: 'no.pt'",
        ),
    ]:
        with table_row(text), pytest.raises(error, match=text) as refusal:
            load(source)
        assert "\n" not in str(refusal.value)


def test_an_output_that_changes_its_form_is_refused(load):
    """Another type, other axes or a change in a fixed size is refused.

    A size is fixed if two first calls showed the same one. A size that the model declares to vary
    may change.
    """
    grows = "def f(x):\n n.append(0)\n return x[:, : 2 if len(n) < 4 else 3]\nn = []\n"
    runtime, _ = load(f"{grows}def make(): return f, {INPUTS}")
    assert outputs_of(runtime)[0].shape == (1, 2)
    with pytest.raises(
        MeasurementError, match=r"output_0 was float32 \[1, 3\], not float32 \[1, 2\]"
    ):
        outputs_of(runtime)
    declared = (
        'PythonModel(call=f, inputs=(TensorInfo("x", (1, 4), "float32"),), '
        'outputs=(TensorInfo("y", (1, None), "float32"),))'
    )
    runtime, loaded = load(f"{MODEL}{grows}def make(): return {declared}")
    assert [outputs_of(runtime)[0].shape for _ in range(2)] == [(1, 2), (1, 3)]
    assert loaded.outputs[0].name == "y"


def test_options_are_the_factorys_keywords(load):
    """Texts are passed unchanged; threads and backend go to parameters of these names."""
    source = (
        "def make(scale, threads, backend='cpu'): return (lambda x: x * float(scale) + "
        f"threads), {INPUTS}"
    )
    runtime, loaded = load(source, Options(threads=2, backend="gpu", extra={"scale": "3"}))
    np.testing.assert_array_equal(outputs_of(runtime), [3 * X + 2])
    assert (loaded.backend, loaded.threads_reason) == ("gpu", None)


def test_what_a_factory_does_not_take_is_refused(load):
    """A record never claims a setting that was not applied."""
    for options, text in [
        (Options(extra={"scales": "1"}), "takes no option 'scales'"),
        (Options(threads=4), "has no parameter `threads`, so 4 cannot be set"),
        (Options(backend="cuda"), "has no parameter `backend`, so 'cuda' cannot be set"),
        (Options(extra={"threads": "4"}), "takes no option 'threads'"),
    ]:
        with table_row(text), pytest.raises(ConfigError, match=text):
            load(f"def make(scale=1): return (lambda x: x), {INPUTS}", options)


def test_the_identity_is_of_source_and_weights(load, tmp_path):
    """Other weights or another source are another model.

    A model without weights has the hash of its source.
    """
    source = (
        f"{MODEL}def make(): return PythonModel(call=lambda x: x, inputs=(TensorInfo('x', (1, "
        "4), 'float32'),), weights=WEIGHTS)"
    )
    plain = load(source.replace("WEIGHTS", "()"))[1]
    assert plain.sha256 == hashlib.sha256((tmp_path / "net.py").read_bytes()).hexdigest()
    files = [tmp_path / "a.bin", tmp_path / "b.bin"]
    hashes = []
    for content in (b"1", b"2"):
        files[0].write_bytes(content)
        files[1].write_bytes(b"0" * 10)
        loaded = load(source.replace("WEIGHTS", str(tuple(map(str, files)))))[1]
        hashes.append(loaded.sha256)
        assert loaded.size_bytes == 11 + (tmp_path / "net.py").stat().st_size
    assert len({plain.sha256, *hashes}) == 3
    assert loaded.name == "a"


def test_files_that_options_name_are_part_of_the_identity(load, tmp_path):
    """A factory that returns a pair cannot name its weights.

    Each file counts once, and other texts do not count.
    """
    source, file = f"def make(file='', text=''): return (lambda x: x), {INPUTS}", tmp_path / "w.bin"
    file.write_bytes(b"1")
    for option, content in (({"text": "absent.bin"}, ""), ({"file": str(file)}, "1")):
        assert (
            load(source, Options(extra=option))[1].sha256
            == hashlib.sha256(f"{source}{content}".encode()).hexdigest()
        )
    named = (
        f"{MODEL}def make(file): return PythonModel(call=lambda x: x, inputs={INPUTS}, "
        "weights=(file,))"
    )
    assert load(named, Options(extra={"file": str(file)}))[1].size_bytes == len(named) + 1


def test_a_folder_that_an_option_names_counts_without_what_differs_between_copies(load, tmp_path):
    """Hidden files (of Git, of downloads) and Python's caches do not count.

    The same holds for a folder of weights.
    """
    folder = tmp_path / "weights"
    for name in (
        ".git/HEAD",
        ".cache/huggingface/w.metadata",
        "__pycache__/w.pyc",
        "deep/.w.lock",
        "deep/w.bin",
        "a.bin",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    source = (
        f"{MODEL}def make(file): return PythonModel(call=lambda x: x, inputs={INPUTS}, "
        "weights=WEIGHTS)"
    )
    for weights in ("()", "(file,)"):
        code = source.replace("WEIGHTS", weights)
        loaded = load(code, Options(extra={"file": str(folder)}))[1]
        assert loaded.sha256 == hashlib.sha256(f"{code}a.bindeep/w.bin".encode()).hexdigest()


def test_a_folder_that_is_no_model_is_not_hashed(load, tmp_path):
    """A data set would be read again in each process.

    If weights are stated the folder is left out, otherwise the error says to state them.
    """
    (tmp_path / "data").mkdir()
    source = (
        f"{MODEL}def make(data): return PythonModel(call=lambda x: x, inputs={INPUTS}, "
        "weights=WEIGHTS)"
    )
    options = Options(extra={"data": str(tmp_path / "data")})
    for files, size_bytes in ((1, 17 * 10**9), (1001, 0)):
        for number in range(files):
            with (tmp_path / "data" / str(number)).open("wb") as file:
                file.truncate(size_bytes)
        with (
            table_row(files, size_bytes),
            pytest.raises(
                ConfigError, match=r"'data' names a folder of more than 1000 files or 16 GB"
            ),
        ):
            load(source.replace("WEIGHTS", "()"), options)
    code = source.replace("WEIGHTS", "(__file__,)")
    assert load(code, options)[1].sha256 == hashlib.sha256(code.encode()).hexdigest()


def test_files_that_the_code_reads_beside_it_are_part_of_the_identity(load, tmp_path):
    """Weights that the code names itself count, and other files do not.

    They count whether they are read at import, in the factory or in the first call.
    """
    read = "np.load(Path(__file__).with_name('w.npy'))"
    for source in (
        f"W = {read}\ndef make(): return (lambda x: x * W), {INPUTS}",
        f"def make():\n W = {read}\n return (lambda x: x * W), {INPUTS}",
        f"def make(): return (lambda x: x * {read}), {INPUTS}",
        (
            "def make():\n W = "
            "np.frombuffer(Path(__file__).with_name('w.npy').read_bytes()[-32:])\n return "
            f"(lambda x: x * W), {INPUTS}"
        ),
    ):
        hashes = []
        for factor in (1.0, 1.0, 2.0):
            np.save(tmp_path / "w.npy", np.full(4, factor))
            (tmp_path / "other.txt").write_text(str(len(hashes)))
            hashes.append(load(f"import numpy as np\nfrom pathlib import Path\n{source}")[1].sha256)
        assert hashes[0] == hashes[1] != hashes[2], source
    assert io.open is open is _io.open


def test_files_that_a_run_writes_are_no_part_of_the_identity(load, tmp_path, monkeypatch):
    """Files in a scratch folder below the code's are read and imported but do not count."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    source = (
        "import os, sys, tempfile, time\nfrom pathlib import Path\nfolder = tempfile.mkdtemp()\n"
        "file = os.open(f'{folder}/net.bin', os.O_CREAT | os.O_WRONLY)\nos.write(file, "
        "str(time.time_ns()).encode())\nos.close(file)\n"
        "Path(folder, 'net.bin').read_text()\n"
        "sys.path.insert(0, folder)\nPath(folder, 'generated.py').write_text(f'K = "
        "{time.time_ns()}')\nimport generated\n"
        f"def make(): return (lambda x: x), {INPUTS}"
    )
    for _ in range(2):
        assert load(source)[1].sha256 == hashlib.sha256(source.encode()).hexdigest()
        sys.path.remove(str(Path(sys.modules.pop("generated").__file__).parent))


def test_modules_beside_the_code_are_part_of_the_identity(load, tmp_path, monkeypatch):
    """Only imported modules count, and no library that is installed there."""
    hashes = []
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    monkeypatch.syspath_prepend(packages)
    source = (
        "import layers_beside\nimport library_below\ndef make(): return (lambda x: x * "
        f"layers_beside.K), {INPUTS}"
    )
    for layers, other, library in (("K=2", "", ""), ("K=2", "X=1", "Y=1"), ("K=3", "", "")):
        (tmp_path / "layers_beside.py").write_text(layers)
        (tmp_path / "unused.py").write_text(other)
        (packages / "library_below.py").write_text(library)
        hashes.append(load(source)[1].sha256)
    for name in ("layers_beside", "library_below"):
        sys.modules.pop(name)
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_name_is_that_of_texts_weights_or_code(load, tmp_path):
    """Two networks from one general factory have different names."""
    (tmp_path / "tiny").mkdir()
    for file in ("w8.pt", "tiny/model.safetensors"):
        (tmp_path / file).write_bytes(b"0")
    for metadata, weights, name in [
        ({"name": "resnet"}, (), "resnet"),
        ({}, (), "net"),
        ({}, (f"{tmp_path}/w8.pt",), "w8"),
        ({}, (f"{tmp_path}/tiny/model.safetensors",), "tiny"),
    ]:
        model = (
            f"PythonModel(call=lambda x: x, inputs={INPUTS}, weights={weights}, "
            f"metadata={metadata})"
        )
        assert load(f"{MODEL}def make(): return {model}")[1].name == name


def test_the_first_call_is_timed_where_it_is_made(load, monkeypatch):
    """Compilation in the first call is in no later one; with open sizes the engine makes it."""
    stop_time(monkeypatch)
    slow = "import time\nn = []\ndef f(x):\n n or time.sleep(0.1)\n n.append(0)\n return x\n"
    _, loaded = load(f"{slow}def make(): return f, {INPUTS}")
    assert loaded.first_ns == 100e6
    _, loaded = load(slow + "def make(): return f, {'x': ('float32', (1, None))}")
    assert loaded.first_ns is None
    assert loaded.outputs == ()


def test_a_first_call_compiles_where_the_model_states_it(load):
    """A first call is also longer for other reasons, such as the memory pages it touches first."""
    for fields, compiles in (("", False), ("backend='jit,cpu'", True), ("compiles=True", True)):
        model = f"PythonModel(call=lambda x: x, inputs={INPUTS}, {fields})"
        assert load(f"{MODEL}def make(): return {model}")[1].compiles_at_call == compiles, fields


LAZY = """
import time
import numpy as np
class Lazy:
    dtype, shape, is_there = np.dtype("float32"), (1, 4), False
    def __array__(self, dtype=None, copy=None):
        assert self.is_there
        return np.ones((1, 4), np.float32)
def evaluate(lazy):
    time.sleep(0.05)
    lazy.is_there = True
class Graph(Lazy):
    def __dask_graph__(self): return {}
    def compute(self): return self
"""


def test_a_result_that_may_not_be_computed_yet_is_refused(load):
    """MLX, dask and others return before they compute.

    Whoever reads the result would wait, and the query would seem to take no time.
    """
    for result, text in [
        ("Lazy()", r"cannot tell when net\.Lazy is computed: .* PythonModel\(wait=\.\.\.\)"),
        ("{'y': Graph()}", r"lazy Graph, .* end it with `\.compute\(\)`"),
        ("(x, iter(x))", "returns an iterator"),
    ]:
        with table_row(result), pytest.raises(ConfigError, match=text):
            load(f"{LAZY}def make(): return (lambda x: {result}), {INPUTS}")


def test_an_object_whose_arrays_only_the_model_reads_needs_its_wait(load):
    """JAX arrays inside such an object would not be waited for.

    With texts and numbers alone there is nothing to wait for.
    """
    model = (
        "PythonModel(call=lambda x: RESULT, inputs={'x': ('float32', (1, 4))}, arrays=lambda r: "
        "[np.ones(4)], wait=WAIT)"
    )
    source = f"{MODEL}{LAZY}class Result: pass\ndef make(): return {model}"
    with pytest.raises(
        ConfigError, match=r"cannot tell when net\.Result is computed: .*PythonModel\(wait=\.\.\.\)"
    ):
        load(source.replace("RESULT", "[Result()]").replace("WAIT", "None"))
    load(source.replace("RESULT", "[Result()]").replace("WAIT", "lambda r: None"))
    load(source.replace("RESULT", "[{'label': 'cat', 'score': 0.5}]").replace("WAIT", "None"))


def test_inputs_are_where_the_model_reads_them_before_the_call(load, monkeypatch):
    """JAX goes on copying after `device_put` returns, which must not count for the query."""
    stop_time(monkeypatch)
    copy = "import time\nclass Copy:\n def __init__(self, x): self.x, self.is_there = x, False\n"
    copy += (
        " dtype, shape = 'float32', (1, 4)\n def block_until_ready(self):\n  time.sleep(0.05)\n  "
        "self.is_there = True\n"
    )
    call = "def call(copy):\n assert copy.is_there\n return copy.x\n"
    model = "PythonModel(call=call, inputs={'x': ('float32', (1, 4))}, place=Copy)"
    runtime, loaded = load(f"{MODEL}{copy}{call}def make(): return {model}")
    assert loaded.first_ns == 0
    np.testing.assert_array_equal(outputs_of(runtime), [X])


def test_results_that_are_computed_later_are_waited_for(load, monkeypatch):
    """The call returns when `block_until_ready` has returned.

    This also holds where only the first call can show how to wait.
    """
    stop_time(monkeypatch)
    source = (
        "import time\nclass Later:\n dtype = 'float32'\n shape = (1, 4)\n def __init__(self, x): "
        "self.x = x\n"
        " def block_until_ready(self): time.sleep(0.05)\n def __array__(self, dtype=None, "
        "copy=None): return self.x\n"
        "def make(): return Later, {'x': ('float32', (1, SIZE))}"
    )
    for size in ("4", "None"):
        runtime, _ = load(source.replace("SIZE", size))
        for _ in range(2):
            call = runtime.bind([X])
            begin_ns = time.monotonic_ns()
            call()
            assert time.monotonic_ns() - begin_ns == 50e6
        np.testing.assert_array_equal(runtime.outputs(), [X])


def test_a_models_own_functions_are_used(load, caplog):
    """They place inputs, wait, read results, report facts and close."""
    source = MODEL + (
        "log = []\ndef make(): return PythonModel(call=lambda x: x + 1, inputs=(TensorInfo('x', "
        "(1, 4), 'float32'),), "
        "place=lambda x: x * 10, wait=lambda r: log.append('wait'), arrays=lambda r: [r, r], "
        "packages=('numpy', 'pytest'), "
        "close=lambda: log.append('close'), backend='eager,cpu', precision='int8')"
    )
    runtime, loaded = load(source)
    np.testing.assert_array_equal(outputs_of(runtime), [10 * X + 1] * 2)
    assert (loaded.package, loaded.version) == (
        "numpy",
        f"{np.__version__}, pytest {pytest.__version__}",
    )
    assert (loaded.backend, loaded.precision) == ("eager,cpu", "int8")
    assert loaded.facts == {"numpy": np.__version__, "pytest": pytest.__version__}
    assert not loaded.compiles_at_call
    log = sys.modules["net"].log
    runtime.close()
    assert log[-1] == "close"
    # One that raises is logged: by then the run is measured.
    load(
        f"{MODEL}def make(): return PythonModel(call=lambda x: x, "
        f"inputs={INPUTS}, close=lambda: 1 / 0)"
    )[0].close()
    assert "`close` raised ZeroDivisionError" in caplog.text


DEVICE = """
from types import SimpleNamespace
class Placed:
    dtype, shape = "float32", (1, 4)
    def __init__(self, x): self.x = x
    def block_until_ready(self): pass
    def devices(self): return [SimpleNamespace(platform="PLATFORM", id=1)]
    def __array__(self, dtype=None, copy=None): return self.x
Placed.__module__ = "jaxlib.array"
"""


def test_the_device_that_results_show_is_recorded(load):
    """Runs on a GPU and on the processor are two cases.

    A device other than the one asked for is refused.
    """
    for platform, size, backend, recorded in [
        ("cpu", 4, None, "callable,cpu"),
        ("gpu", None, None, "callable,gpu:1"),
        ("gpu", 4, "cuda", "cuda"),
        ("gpu", 4, "cuda:0", None),
        ("cpu", 4, "gpu", None),
    ]:
        source = (
            f"{DEVICE.replace('PLATFORM', platform)}def make(backend=None): return Placed, "
            f"{{'x': ('float32', (1, {size}))}}"
        )
        with table_row(platform, size, backend):
            if recorded is None:
                with pytest.raises(
                    ConfigError,
                    match=f"backend '{backend}' was asked for, but the model ran on {platform}",
                ):
                    load(source, Options(backend=backend))
                continue
            runtime, loaded = load(source, Options(backend=backend))
            runtime.bind([X])()
            assert runtime.with_late_facts(loaded).backend == recorded


def test_the_framework_is_that_of_the_results(load, monkeypatch):
    """Of several imported frameworks none is named if the results belong to none.

    The versions of all are recorded as facts.
    """
    for name in ("jax", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(__version__="1.5"))
    monkeypatch.setattr("edgemeter.agent.runtimes.python_model.version", lambda _: "1.5")
    for result, package in (("Placed(x)", "jax"), ("x", "python")):
        model = f"PythonModel(call=lambda x: {result}, inputs={{'x': ('float32', (1, None))}})"
        runtime, loaded = load(
            f"{MODEL}{DEVICE.replace('PLATFORM', 'cpu')}def make(): return {model}"
        )
        outputs_of(runtime)
        assert runtime.with_late_facts(loaded).package == package
        assert {"jax", "tensorflow"} <= set(loaded.facts)


@pytest.mark.torch
def test_the_precision_is_that_of_parameters_that_can_be_seen(load):
    """Parameters are found in the variables around the function.

    Results count before they are read, because NumPy has no bfloat16.
    """
    for module, call, precision in [
        (
            "torch.nn.Linear(4, 2, dtype=torch.bfloat16)",
            "lambda x: net(torch.from_numpy(x).bfloat16())",
            "bf16",
        ),
        ("torch.nn.Linear(4, 2)", "lambda x: net(torch.from_numpy(x)).bfloat16()", "unknown"),
    ]:
        _, loaded = load(f"import torch\ndef make():\n net = {module}\n return ({call}), {INPUTS}")
        assert (loaded.precision, loaded.backend) == (precision, "callable,cpu")


def test_a_check_runs_nothing(tmp_path):
    """Invalid Python is refused, and errors at run time are left to the run."""
    (tmp_path / "net.py").write_text("raise SystemExit('this was run')")
    runtime = create("python")
    runtime.check(tmp_path / "net.py:make", Options())
    (tmp_path / "net.py").write_text("def make(:")
    with pytest.raises(ConfigError, match="is not Python in line 1"):
        runtime.check(tmp_path / "net.py:make", Options())


@dataclass(slots=True)
class Answer:
    """An answer that a model may return."""

    scores: object
    boxes: object = None


def test_results_are_read_in_any_nesting():
    """Tuples, lists, mappings and dataclasses are read in order, and None is left out."""
    result = Answer(OrderedDict(a=X, b=[2 * X, (3.0, True)]), None)
    arrays = arrays_of(result)
    assert [array.tolist() for array in arrays] == [X.tolist(), (2 * X).tolist(), 3.0, True]
    arrays[0][:] = 0
    assert X.any()
    assert len(arrays_of([0.5] * 2000)) == 2000


@pytest.mark.torch
def test_tensors_of_pytorch_are_read():
    """Tensors with a gradient or of a type that NumPy lacks are read too."""
    torch = importlib.import_module("torch")
    arrays = arrays_of(
        [torch.tensor([1.5], dtype=torch.bfloat16), torch.ones(2, requires_grad=True)]
    )
    assert [(array.dtype.name, array.tolist()) for array in arrays] == [
        ("float32", [1.5]),
        ("float32", [1.0, 1.0]),
    ]


def test_a_library_of_the_files_name_is_not_replaced(load):
    """A factory in types.py leaves the module `types` as it is."""
    runtime, _ = load(f"def make(): return (lambda x: x), {INPUTS}", name="types")
    assert sys.modules["types"] is types
    np.testing.assert_array_equal(outputs_of(runtime), [X])
