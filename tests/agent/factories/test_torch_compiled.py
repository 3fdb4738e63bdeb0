"""`torch.compile`: the numbers of eager PyTorch, and its graphs, breaks and recompilations counted."""

import dataclasses
import sys
import time

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.engine.loading import describe_runtime
from tests.agent.factories.conftest import NETS
from tests.fixtures.run_jobs import one_case

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.one_worker("torch.compile")]
FACTORY = "torch_compiled"


@pytest.fixture(autouse=True)
def _forgotten():
    """Let each test compile anew, also after a test of this process that looked for pip: setuptools refuses to be imported after that."""
    if (hack := sys.modules.get("_distutils_hack")) is not None:
        vars(hack.DISTUTILS_FINDER).pop("spec_for_distutils", None)
    yield
    __import__("torch").compiler.reset()


# Inductor imports parts of PyTorch that are deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.needs("g++")
def test_an_unknown_mode_is_one_line(drive):
    """The message has the modes that there are."""
    with pytest.raises(ConfigError, match=r"Unrecognized mode=fast.*reduce-overhead") as raised:
        drive(FACTORY, module=f"{NETS}:Net", input="1x3x8x8", mode="fast")
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.needs("g++")
def test_inductor_computes_what_eager_does(drive, tmp_path, monkeypatch):
    """To rounding, from an empty cache; one graph, compiled once."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch = __import__("torch")
    options = {"module": f"{NETS}:Net", "weights": tmp_path / "net.pt", "input": "2x3x8x8"}
    torch.save(__import__("tests.agent.factories.nets", fromlist=["Net"]).Net().state_dict(), tmp_path / "net.pt")
    x = np.random.default_rng(1).random((2, 3, 8, 8), np.float32)
    compiled = drive(FACTORY, **options)
    np.testing.assert_allclose(compiled(x)[0], drive("torch_eager", **options)(x)[0], rtol=1e-5, atol=1e-6)
    facts = compiled.facts()
    assert (facts["graphs"], facts["graph_breaks"], facts["recompilations"], facts["compilations"]) == ("1", "0", "0", "1")
    assert compiled.loaded.backend == "compile,cpu"
    assert any(tmp_path.rglob("*.so"))


def test_a_graph_break_is_counted_with_its_reason(drive):
    """One break makes two graphs."""
    model = drive(FACTORY, module=f"{NETS}:Broken", input="2x3", compiler="eager")
    assert model(np.ones((2, 3), np.float32))[0].tolist() == [[3] * 3] * 2
    facts = model.facts()
    assert (facts["graphs"], facts["graph_breaks"]) == ("2", "1")
    assert "graph_break" in facts["graph_break_reason"]


def test_a_second_shape_compiles_again_and_shows_when(drive):
    """The same shape does not; the time of the compilation is within that of its call."""
    model = drive(FACTORY, module=f"{NETS}:Net", input="?x3x8x8", compiler="eager", dynamic="no")
    sizes = []
    for batch in (2, 2, 3):
        begin_ns = time.monotonic_ns()
        model(np.ones((batch, 3, 8, 8), np.float32))
        sizes.append(
            (model.facts()["recompilations"], [begin_ns < int(text) < time.monotonic_ns() for text in model.facts()["compiled_ns"].split()])
        )
    # The runtime's first calls, with a batch of 1, were the first compilation.
    assert [count for count, _ in sizes] == ["1", "1", "2"]
    assert [within[-1] for _, within in sizes] == [True, False, True]


def test_a_model_that_dynamo_gave_up_reports_it(drive, tmp_path):
    """After 8 recompilations the function runs eagerly."""
    (tmp_path / "counting.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n def __init__(self):\n  super().__init__()\n  self.calls = 0\n"
        " def forward(self, x):\n  self.calls += 1\n  return x * self.calls\n"
    )
    model = drive(FACTORY, module=f"{tmp_path / 'counting.py'}:Net", input="1x4", compiler="eager")
    assert "fell_back" not in model.facts()
    for _ in range(10):
        model(np.ones((1, 4), np.float32))
    assert "recompile limit" in model.facts()["fell_back"]
    described = describe_runtime(one_case(tmp_path / "net.py:make"), dataclasses.replace(model.loaded, facts=model.facts()))
    assert described.backend == "compile,cpu,fell-back"


def test_open_shapes_need_no_second_compilation(drive):
    """`dynamic=yes` compiles for all sizes at once."""
    model = drive(FACTORY, module=f"{NETS}:Net", input="?x3x8x8", compiler="eager", dynamic="yes")
    before = model.facts()["compilations"]
    for batch in (2, 3, 4):
        model(np.ones((batch, 3, 8, 8), np.float32))
    assert int(model.facts()["compilations"]) <= int(before) + 1


def test_a_whole_graph_asked_for_is_one_line_when_it_breaks(drive):
    """`fullgraph=yes` refuses what would break."""
    with pytest.raises(ConfigError, match="first call") as raised:
        drive(FACTORY, module=f"{NETS}:Broken", input="2x3", compiler="eager", fullgraph="yes")
    assert "\n" not in str(raised.value)


def test_without_a_compiler_the_package_is_named(drive, monkeypatch):
    """Inductor calls g++."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UnavailableError, match=r"sudo apt install g\+\+"):
        drive(FACTORY, module=f"{NETS}:Net", input="1x3x8x8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compiler": "inductr"}, "did you mean inductor"),
        ({"fullgraph": "maybe"}, "yes, no"),
    ],
)
def test_bad_options_are_one_line(drive, options, message):
    """Each names what was given."""
    with pytest.raises(ConfigError, match=message) as raised:
        drive(FACTORY, module=f"{NETS}:Net", input="1x3x8x8", **options)
    assert "\n" not in str(raised.value)
