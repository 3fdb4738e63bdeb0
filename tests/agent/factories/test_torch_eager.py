"""PyTorch's modules, eager: equal to plain PyTorch, in the dtype that was asked for, with weights that fit."""

import hashlib
import importlib

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import noise
from tests.agent.factories.conftest import NETS

pytestmark = pytest.mark.torch
FACTORY = "torch_eager"


@pytest.fixture
def torch():
    """Return the library, imported only by tests that run."""
    return importlib.import_module("torch")


@pytest.fixture
def network(torch, tmp_path):
    """Return a network with its weights in net.pt."""
    torch.manual_seed(7)
    plain = importlib.import_module("tests.agent.factories.nets").Net()
    torch.save(plain.state_dict(), tmp_path / "net.pt")
    return plain.eval()


def test_outputs_are_those_of_plain_pytorch(drive, torch, network, tmp_path):
    """Evaluation mode (a dropout of 0.9 does nothing), the weights of the file, and the file in the identity."""
    model = drive(FACTORY, module=f"{NETS}:Net", weights=tmp_path / "net.pt", input="2x3x8x8")
    x = np.random.default_rng(1).random((2, 3, 8, 8), np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(model(x)[0], expected)
    assert (model.loaded.backend, model.loaded.precision, model.loaded.name) == ("eager,cpu", "fp32", "net")
    (tmp_path / "net.pt").write_bytes(b"")
    with pytest.raises(ConfigError, match="reading weights="):
        drive(FACTORY, module=f"{NETS}:Net", weights=tmp_path / "net.pt", input="2x3x8x8")


def test_inference_mode_ends_with_the_model(drive, torch):
    """It is entered once, outside what is timed, and left by close."""
    model = drive(FACTORY, module=f"{NETS}:ready", input="1x3x8x8")
    assert model.loaded.name == "ready"
    assert torch.is_inference_mode_enabled()
    model.runtime.close()
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("dtype", "size", "step", "precision"), [("float16", 2, 2**-10, "fp16"), ("bfloat16", 2, 2**-7, "bf16"), ("float32", 4, 2**-23, "fp32")]
)
def test_a_dtype_asked_for_is_computed_with(drive, dtype, size, step, precision):
    """The network sees numbers of so many bytes, and the smallest step above 1 survives while half of it is lost."""
    model = drive(FACTORY, module=f"{NETS}:Typed", input="2", dtype=dtype)
    sizes, sums = model(np.array([step, step / 2], np.float32))
    assert sizes.tolist() == [size]
    assert (sums.astype(np.float64) - 1).tolist() == [step, 0]
    assert model.loaded.precision == precision


# Quantisation by torch.ao is deprecated.
@pytest.mark.filterwarnings("ignore")
def test_the_precision_is_what_modules_show(drive, tmp_path):
    """Weights that are packed as integers, and several precisions at once; buffers that count are no weights."""
    (tmp_path / "kinds.py").write_text(
        "import torch\ndef plain(): return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))\n"
        "def dynamic(): return torch.ao.quantization.quantize_dynamic(plain().eval(), {torch.nn.Linear}, dtype=torch.qint8)\n"
        "class Mixed(torch.nn.Module):\n def __init__(self):\n  super().__init__()\n"
        "  self.register_buffer('weight', torch.ones(8, 8, dtype=torch.int8))\n  self.scale = torch.nn.Parameter(torch.ones(8))\n"
        " def forward(self, x): return x @ self.weight.float() * self.scale\n"
    )
    for name, precision in (("plain", "fp32"), ("dynamic", "int8-dynamic"), ("Mixed", "unknown")):
        assert drive(FACTORY, module=f"{tmp_path / 'kinds.py'}:{name}", input="1x8").loaded.precision == precision, name


def test_tokens_run_on_noise_below_their_limit(drive, tmp_path):
    """An embedding has so many rows; a mask lets all through."""
    (tmp_path / "words.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n def __init__(self):\n  super().__init__()\n\n"
        "  self.table = torch.nn.Embedding(1000, 4)\n def forward(self, ids, mask): return self.table(ids) * mask[..., None]\n"
    )
    model = drive(FACTORY, module=f"{tmp_path / 'words.py'}:Net", input="ids=1x8:int64<1000,mask=1x8:int64")
    for ids, mask in noise.inputs(model.loaded, 0):
        assert np.isfinite(model(ids, mask)[0]).all()
        assert mask.tolist() == [[1] * 8]
    for text in ("ids=1x8:int64<0", "x=1x8:float32<5"):
        with pytest.raises(ConfigError, match="a limit is of integers"):
            drive(FACTORY, module=f"{tmp_path / 'words.py'}:Net", input=text)


def test_the_factorys_source_is_no_part_of_the_identity(drive, tmp_path):
    """A release that changes its docstring makes no other model of it; its name counts."""
    (tmp_path / "mine.py").write_text("import torch\ndef net(): return torch.nn.Linear(8, 8)\n")
    hashes = [
        drive(name, module=f"{tmp_path / 'mine.py'}:net", input="1x8", **options).loaded.sha256
        for name, options in ((FACTORY, {}), ("torch_compiled", {"compiler": "eager"}))
    ]
    content = (tmp_path / "mine.py").read_bytes()
    assert hashes[0] == hashlib.sha256(b"edgemeter.agent.factories.torch_eager:make" + content).hexdigest() != hashes[1]


def test_several_inputs_go_by_their_order(drive):
    """Names and dtypes as declared; a mapping's values are the outputs."""
    model = drive(FACTORY, module=f"{NETS}:Asking", input="ids=1x?:int64,mask=1x?:int64")
    assert [(info.name, info.shape, info.dtype) for info in model.loaded.inputs] == [
        ("ids", (1, None), "int64"),
        ("mask", (1, None), "int64"),
    ]
    assert model(np.array([[5, 6, 7]]), np.array([[1, 0, 1]]))[0].tolist() == [[5, 0, 7]]


def test_threads_are_those_of_the_case(drive, torch):
    """PyTorch computes with as many as were asked for."""
    before = torch.get_num_threads()
    drive(FACTORY, threads=2, module=f"{NETS}:Net", input="1x3x8x8")
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.needs(module="safetensors")
def test_weights_may_be_safetensors(drive, network, tmp_path):
    """The same numbers from the other format."""
    importlib.import_module("safetensors.torch").save_file(network.state_dict(), tmp_path / "net.safetensors")
    x = np.ones((1, 3, 8, 8), np.float32)
    first, second = (
        drive(FACTORY, module=f"{NETS}:Net", weights=tmp_path / name, input="1x3x8x8")(x) for name in ("net.pt", "net.safetensors")
    )
    np.testing.assert_array_equal(first[0], second[0])


def test_weights_that_do_not_fit_are_named(drive, torch, network, tmp_path):
    """The first keys: absent, superfluous, of another shape."""
    state = network.state_dict()
    del state["head.bias"]
    torch.save(state | {"extra": torch.zeros(1), "conv.bias": torch.zeros(9)}, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match=r"lacks head\.bias; has besides extra; has in another shape conv\.bias \[9\] for \[4\]"):
        drive(FACTORY, module=f"{NETS}:Net", weights=tmp_path / "other.pt", input="1x3x8x8")


def test_a_pickle_of_code_is_not_run(drive, torch, tmp_path):
    """What `weights_only` refuses is refused."""
    torch.save(importlib.import_module("tests.agent.factories.nets").Net(), tmp_path / "whole.pt")
    with pytest.raises(ConfigError, match="reading weights="):
        drive(FACTORY, module=f"{NETS}:Net", weights=tmp_path / "whole.pt", input="1x3x8x8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"module": f"{NETS}:words"}, "made 'str', not an nn.Module"),
        ({"module": f"{NETS}:Nett"}, "did you mean Net"),
        ({"module": f"{NETS}:Net", "input": "1x3xWide"}, "is no shape"),
        ({"module": f"{NETS}:Net", "input": "1x4x8x8"}, "first call"),
        ({"module": f"{NETS}:Net", "weights": "nowhere.pt"}, "weights='nowhere.pt' does not exist"),
        ({"module": f"{NETS}:Net", "dtype": "float61"}, "did you mean float64 or float16"),
    ],
)
def test_bad_options_are_one_line(drive, options, message):
    """Each names what was given and what would do."""
    with pytest.raises(ConfigError, match=message) as raised:
        drive(FACTORY, **({"input": "1x3x8x8"} | options))
    assert "\n" not in str(raised.value)


def test_an_absent_device_is_named(drive):
    """No CUDA device has this number."""
    with pytest.raises(UnavailableError, match="CUDA devices"):
        drive(FACTORY, backend="cuda:99", module=f"{NETS}:Net", input="1x3x8x8")
