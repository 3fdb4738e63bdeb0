"""One-operator programs of PyTorch compute what the call computes in its program; the profiler's nested calls belong to the outermost."""

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.profile import operator_cutting, torch_operators
from edgemeter.agent.profile.operator_models import DEEPBENCH, PEAK, Shape
from edgemeter.agent.profile.profiler import ProfileEvent, inference

torch = pytest.importorskip("torch", reason="needs the extra `torch`")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return an exported program: two equal convolutions, a sum with itself, a mean and a linear layer."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
            self.last = torch.nn.Linear(4, 3)

        def forward(self, x):
            x = torch.relu(self.second(self.first(x)))
            return torch.softmax(self.last((x + x).mean((2, 3))), 1)

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("program") / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(1, 4, 8, 8),)), str(path))
    return path


def answer(file, *arrays):
    """Return the first output of a file in the runtime."""
    runtime = runtimes.create("pytorch")
    loaded = runtime.load(file, runtimes.Options())
    runtime.bind(arrays)()
    outputs = runtime.outputs()
    runtime.close()
    return loaded, outputs[0]


def test_a_call_alone_computes_what_it_computes_in_its_program(program, tmp_path):
    """Its inputs and outputs taken from inside by PyTorch's own interpreter of graphs."""
    values = {}

    class Watching(torch.fx.Interpreter):
        def run_node(self, node):
            values[node.name] = super().run_node(node)
            return values[node.name]

    module = torch.export.load(str(program)).module()
    with torch.inference_mode():
        Watching(module).run(torch.randn(1, 4, 8, 8))
    cutter, kinds = torch_operators.open_model(program, tmp_path / "whole.pt2"), []
    calls = [node for node in module.graph.nodes if node.op == "call_function" and "aten" in str(node.target)]
    for number, node in enumerate(calls):
        assert cutter.obstacle(number) is None
        model = cutter.write([number], 0.5, tmp_path)
        moving = [values[other.name].numpy() for other in node.all_input_nodes if other.op != "get_attr"]
        loaded, result = answer(model.file, *moving)
        np.testing.assert_array_equal(result, values[node.name].numpy(), err_msg=node.name)
        assert loaded.metadata["edgemeter_operator"] == model.name
        kinds.append((model.kind, model.flops))
    flops = dict(kinds)
    assert flops["conv2d"] == 2 * (4 * 8 * 8) * (4 * 3 * 3)
    assert flops["linear"] == 2 * 3 * 4
    assert flops["relu"] is None


def test_a_call_has_the_time_of_what_it_calls(program, tmp_path):
    """In two inferences: 60 us of the first convolution with its kernel, 20 of the second, and 10 of no call of the program."""
    events = []
    for start in (0, 1000):
        events.append(inference(start, 100))
        for name, at, length in [
            ("conv2d", 0, 60), ("mkldnn_convolution", 10, 45), ("conv2d", 60, 20), ("relu", 80, 5), ("clone", 90, 10),
        ]:  # fmt: skip
            events.append(ProfileEvent(name=f"aten::{name}", type=f"aten::{name}", start_us=start + at, duration_us=length))
    cutter = torch_operators.open_model(program, tmp_path / "whole.pt2")
    (slowest, *_), left_out = operator_cutting.cut_slowest(cutter, events, 100.0, 5, tmp_path)
    assert (slowest.kind, slowest.count, slowest.profiled_ratio) == ("conv2d", 2, pytest.approx(0.8))
    assert left_out == ["what the runtime fused or added itself (aten::clone): 10.0% of the time"]


def test_a_shape_that_is_open_cannot_be_cut(tmp_path):
    """Its size follows from the data."""
    batch = torch.export.Dim("batch", min=2, max=8)
    exported = torch.export.export(torch.nn.ReLU(), (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, str(tmp_path / "open.pt2"))
    cutter = torch_operators.open_model(tmp_path / "open.pt2", tmp_path / "whole.pt2")
    assert "is not known before the model runs" in cutter.obstacle(0)


def test_the_operators_of_a_list_compute_what_they_are_called(tmp_path):
    """Against numpy: a product of matrices, a convolution and attention; the list has floats only."""
    draw = np.random.default_rng(3)
    shapes = [Shape("Gemm", (3, 8), (8, 5)), Shape("Conv", (1, 4, 9, 9), (6, 4, 3, 3)), Shape("Attention", (1, 2, 7, 8), (1, 2, 7, 8))]
    product, convolution, attention = operator_cutting.write_shapes(shapes, ".pt2", tmp_path)
    weights = [np.random.default_rng(0).standard_normal(shape.second).astype(np.float32) for shape in shapes]
    x = draw.standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(answer(product.file, x)[1], x @ weights[0], rtol=1e-5, atol=1e-5)
    x = draw.standard_normal((1, 4, 9, 9)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, weights[1])
    np.testing.assert_allclose(answer(convolution.file, x)[1], expected, rtol=1e-4, atol=1e-4)
    query, key, value = draw.standard_normal((3, 1, 2, 7, 8)).astype(np.float32)
    scores = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(8))
    expected = scores / scores.sum(-1, keepdims=True) @ value
    np.testing.assert_allclose(answer(attention.file, query, key, value)[1], expected, rtol=1e-4, atol=1e-5)
    assert [model.name for model in operator_cutting.write_shapes([PEAK, DEEPBENCH[1]], ".pt2", tmp_path)] == [PEAK.name]
